//! The Rust SDK's own HTTP client at a worker's endpoint, in both eras. It speaks through a Unix socket (that client
//! needs the fewest packages), and a relay carries the bytes to the port.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rmcp::ServiceError;
use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use support::prelude::*;
use support::scope::Scope;

/// Carries bytes between a socket in the file system and a port, until the test ends.
fn relay(folder: &Path, port: u16) -> PathBuf {
    let path = folder.join("scope.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for here in listener.incoming() {
            let (Ok(here), Ok(there)) = (here, TcpStream::connect(("127.0.0.1", port))) else { return };
            let (here, there) = (Arc::new(here), Arc::new(there));
            let (from, to) = (Arc::clone(&here), Arc::clone(&there));
            thread::spawn(move || {
                let (from, to): (&UnixStream, &TcpStream) = (&from, &to);
                let _ = std::io::copy(&mut { from }, &mut { to });
                let _ = to.shutdown(Shutdown::Write);
            });
            thread::spawn(move || {
                let (from, to): (&TcpStream, &UnixStream) = (&there, &here);
                let _ = std::io::copy(&mut { from }, &mut { to });
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    path
}

/// A client that has been let in.
async fn connect(
    scope: &Scope,
    socket: &Path,
    token: &str,
    lifecycle: ClientLifecycleMode,
) -> Result<rmcp::service::RunningService<rmcp::RoleClient, ()>, String> {
    let config = StreamableHttpClientTransportConfig::with_uri(scope.endpoint.url()).auth_header(token);
    let transport =
        StreamableHttpClientTransport::from_unix_socket_with_config(socket.to_str().unwrap(), config);
    ().serve_with_lifecycle(transport, lifecycle).await.map_err(|error| error.to_string())
}

fn call(name: &'static str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name).with_arguments(arguments.as_object().unwrap().clone())
}

fn check(lifecycle: impl Fn() -> ClientLifecycleMode, refused: i32, version: &str) {
    let folder = tempfile::tempdir().unwrap();
    let scope = Scope::start();
    let socket = relay(folder.path(), scope.endpoint.port());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = connect(&scope, &socket, &scope.token(), lifecycle()).await.unwrap();
        let peer = client.peer_info().unwrap();
        assert_eq!(peer.server_info.as_ref().map(|info| info.name.as_str()), Some("agent-bridge"));
        assert_eq!(peer.protocol_version.as_str(), version);
        let tools = client.list_all_tools().await.unwrap();
        assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["find_notes", "wait"]);
        let result = client.call_tool(call("find_notes", json!({ "query": "x" }))).await.unwrap();
        assert_eq!(serde_json::to_value(&result).unwrap()["content"][0]["text"], "found x");
        for (name, arguments, code) in [
            ("delete_all", json!({}), refused),
            ("no_such_tool", json!({}), refused),
            ("find_notes", json!({ "workspace": "other" }), -32602),
        ] {
            match client.call_tool(call(name, arguments)).await {
                Err(ServiceError::McpError(error)) => assert_eq!(error.code.0, code, "{name}"),
                other => panic!("{name}: {other:?}"),
            }
        }
        client.cancel().await.unwrap();
        let kept_out = connect(&scope, &socket, &"0".repeat(64), lifecycle()).await;
        assert!(kept_out.is_err(), "a wrong token was let in");
    });
    assert_eq!(scope.story.lines(), ["find x in /the/bound/folder"]);
    assert_eq!(scope.endpoint.close().unfinished, 0);
}

#[test]
fn the_rust_sdk_is_a_worker_in_the_old_way() {
    check(|| ClientLifecycleMode::Initialize, -32601, "2025-11-25");
}

#[test]
fn the_rust_sdk_is_a_worker_in_the_new_way() {
    let modern = || vec![ProtocolVersion::V_2026_07_28];
    check(|| ClientLifecycleMode::Discover { preferred_versions: modern() }, -32602, "2026-07-28");
}

#[test]
fn the_rust_sdk_finds_out_by_itself() {
    let auto = || ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: None,
    };
    check(auto, -32602, "2026-07-28");
}
