//! The endpoint of a worker over raw sockets: what it answers to clients of every kind, and to those who mean harm.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use agent_bridge::scope::{CallLog, CallRecord, Limits, MAX_CONNECTIONS};
use support::prelude::*;
use support::scope::{Scope, Wire, refused_after};

fn initialized() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })
}

#[test]
fn the_acceptance_scenario_holds() {
    let scope = Scope::start();
    let list = scope.ask("tools/list", json!({})).json();
    let names: Vec<&str> =
        list["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["find_notes", "wait"]);
    assert_eq!(scope.call("find_notes", json!({ "query": "x" })).text(), "found x");

    let hidden = scope.call("delete_all", json!({}));
    assert_eq!(hidden.code(), (200, -32601));
    assert_eq!(hidden.json()["error"]["message"], "tool 'delete_all' is not available to this agent");

    let foreign = scope.call("find_notes", json!({ "query": "x", "workspace_id": "other" }));
    assert_eq!(foreign.code(), (200, -32602));

    let mut wire = scope.connect();
    let head = scope.head(0).replace(&scope.token(), &"0".repeat(64));
    wire.send(format!("{head}\r\n"));
    let reply = wire.reply();
    assert_eq!((reply.status, &reply.body[..]), (401, &br#"{"error":"unauthorized"}"#[..]));

    // The executor saw the one call that was allowed, in the folder that was bound.
    assert_eq!(scope.story.lines(), ["find x in /the/bound/folder"]);
    let expected = [
        "find_notes allowed ok",
        "delete_all refused forbidden_tool",
        "find_notes refused foreign_scope",
        "- refused wrong_token",
    ];
    assert_eq!(scope.recorded(), expected);
    let port = scope.endpoint.port();
    scope.endpoint.close();
    refused_after(port);
}

#[test]
fn a_notification_is_answered_with_202_and_not_a_byte_of_body() {
    let scope = Scope::start();
    for message in [
        initialized(),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/of_tomorrow", "params": {} }),
        json!({ "jsonrpc": "2.0", "id": 3, "result": {} }),
    ] {
        let body = message.to_string();
        let mut wire = scope.connect();
        wire.send(format!("{}Connection: close\r\n\r\n{body}", scope.head(body.len())));
        let expected = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert_eq!(String::from_utf8(wire.everything()).unwrap(), expected, "{body}");
    }
}

#[test]
fn every_method_but_post_is_405_and_no_answer_invites_a_browser() {
    let scope = Scope::start();
    for method in ["GET", "DELETE", "PUT", "OPTIONS", "PATCH", "HEAD", "TRACE", "CONNECT", "GETX"] {
        let mut wire = scope.connect();
        wire.send(format!("{}\r\n", scope.head(0).replacen("POST", method, 1)));
        let reply = wire.reply();
        assert_eq!((reply.status, reply.header("Allow")), (405, Some("POST")), "{method}");
        assert_eq!(reply.body.is_empty(), method == "HEAD");
        assert!(!reply.head.to_lowercase().contains("access-control"), "{method}");
        // Without the token nobody learns even that.
        let mut wire = scope.connect();
        wire.send(format!("{}\r\n", scope.head(0).replacen("POST", method, 1).replace(&scope.token(), "x")));
        assert_eq!(wire.reply().status, 401, "{method}");
    }
}

#[test]
fn a_page_in_a_browser_gets_nowhere_even_with_the_token() {
    let scope = Scope::start();
    let port = scope.endpoint.port();
    let own = format!("127.0.0.1:{port}");
    let hosts = [
        (own.clone(), true),
        (format!("localhost:{port}"), true),
        (format!("LocalHost:{port}"), true),
        (format!("[::1]:{port}"), true),
        (format!("evil.example:{port}"), false),
        (format!("127.0.0.1.evil.example:{port}"), false),
        ("127.0.0.1".to_owned(), false),
        ("127.0.0.1:1".to_owned(), false),
        (format!("0.0.0.0:{port}"), false),
        (String::new(), false),
    ];
    let origins = [None, Some("http://evil.example"), Some("null"), Some("http://127.0.0.1"), Some("")];
    for (host, is_ours) in &hosts {
        for origin in origins {
            let origin_line = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
            let head = scope.head(100).replace(&own, host);
            let mut wire = scope.connect();
            // The body is announced and never comes: whoever is refused is refused without it.
            wire.send(format!("{head}{origin_line}\r\n"));
            if *is_ours && origin.is_none() {
                wire.send(format!(
                    "{:100}",
                    json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string()
                ));
                assert_eq!(wire.reply().status, 200, "{host}");
            } else {
                assert_eq!(wire.reply().status, 403, "{host} {origin:?}");
            }
        }
    }
    // What a browser asks before it sends a token, and what it sends without asking.
    let preflight = format!(
        "OPTIONS /mcp HTTP/1.1\r\nHost: {own}\r\nOrigin: http://evil.example\r\n\
         Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n\r\n"
    );
    let simple = format!(
        "POST /mcp HTTP/1.1\r\nHost: {own}\r\nOrigin: http://evil.example\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    for request in [preflight, simple] {
        let mut wire = scope.connect();
        wire.send(request);
        let reply = wire.reply();
        assert_eq!(reply.status, 403);
        assert!(!reply.head.to_lowercase().contains("access-control"));
    }
    assert!(scope.story.lines().is_empty());
    assert!(
        scope.recorded().iter().all(|line| line.starts_with("- refused foreign_")),
        "{:?}",
        scope.recorded()
    );
}

#[test]
fn any_other_path_is_404_with_or_without_the_token() {
    let scope = Scope::start();
    for path in
        ["/", "/mcp/", "/mcp?x", "/MCP", "//mcp", "/.well-known/oauth-protected-resource/mcp", "/%6dcp", "*"]
    {
        for token in [scope.token(), "x".to_owned()] {
            let mut wire = scope.connect();
            let head = scope.head(0).replace(" /mcp ", &format!(" {path} ")).replace(&scope.token(), &token);
            wire.send(format!("{head}\r\n"));
            let reply = wire.reply();
            assert_eq!((reply.status, reply.header("WWW-Authenticate")), (404, None), "{path}");
        }
    }
    // A client may write the whole address, if that is ours.
    let own = format!("127.0.0.1:{}", scope.endpoint.port());
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (address, status) in [
        (format!("http://{own}/mcp"), 200),
        (format!("http://{own}/"), 404),
        (format!("http://{own}"), 403),
        (format!("http://evil.example:{}/mcp", scope.endpoint.port()), 403),
        (format!("http://user@{own}/mcp"), 403),
        (format!("https://{own}/mcp"), 404),
    ] {
        let mut wire = scope.connect();
        wire.send(format!("{}\r\n{ping}", scope.head(ping.len()).replace(" /mcp ", &format!(" {address} "))));
        assert_eq!(wire.reply().status, status, "{address}");
    }
}

#[test]
fn the_token_is_looked_at_before_the_body_and_its_scheme_has_any_case() {
    let scope = Scope::start();
    let good = format!("Bearer {}", scope.token());
    for authorization in
        ["Bearer", "", "Basic x", &good[..good.len() - 1], &format!("{good}0"), &good.replace("Bearer ", "")]
    {
        let mut wire = scope.connect();
        wire.send(format!("{}\r\n", scope.head(1000).replace(&good, authorization)));
        let reply = wire.reply();
        assert_eq!((reply.status, reply.header("WWW-Authenticate")), (401, None), "{authorization}");
        assert_eq!(wire.next_reply().map(|reply| reply.status), None, "the connection is over");
    }
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let mut wire = scope.connect();
    wire.send(format!("{}\r\n{body}", scope.head(body.len()).replace("Bearer", "bEaReR")));
    assert_eq!(wire.reply().status, 200);
    // Not even in the right place twice.
    let mut wire = scope.connect();
    wire.send(format!("{}Authorization: {good}\r\n\r\n{body}", scope.head(body.len())));
    assert_eq!(wire.reply().status, 400);
}

#[test]
fn a_body_may_have_one_mebibyte_and_not_a_byte_more() {
    let scope = Scope::start();
    let limit = Limits::default().body;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (size, status) in [(limit - 1, 200), (limit, 200), (limit + 1, 413)] {
        let body = format!("{ping}{}", " ".repeat(size - ping.len()));
        let mut wire = scope.connect();
        wire.send(format!("{}\r\n{body}", scope.head(size)));
        assert_eq!(wire.reply().status, status, "{size}");
        // The same in chunks, where the size is known only at the end.
        let head = scope.head(0).replace("Content-Length: 0", "Transfer-Encoding: chunked");
        let mut wire = scope.connect();
        let (first, second) = body.split_at(size / 2);
        wire.send(format!("{head}\r\n{:x}\r\n{first}\r\n", first.len()));
        wire.send(format!("{:x}\r\n{second}\r\n0\r\n\r\n", second.len()));
        assert_eq!(wire.reply().status, status, "{size} in chunks");
    }
    // Nobody waits for what is refused by its number.
    let mut wire = scope.connect();
    wire.send(format!(
        "{}\r\n",
        scope.head(0).replace("Content-Length: 0", "Content-Length: 18446744073709551616")
    ));
    assert_eq!(wire.reply().status, 413);
}

#[test]
fn requests_that_could_be_framed_in_two_ways_are_refused_and_end_the_connection() {
    let scope = Scope::start();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let good = format!("{}\r\n{ping}", scope.head(ping.len()));
    for (old, new, status) in [
        ("Content-Length: 40", "Content-Length: 40\r\nContent-Length: 40", 400),
        ("Content-Length: 40", "Content-Length: 40\r\nTransfer-Encoding: chunked", 400),
        ("Content-Length: 40", "Transfer-Encoding: gzip, chunked", 501),
        ("Content-Length: 40", "Content-Length: 40 ,40", 400),
        ("Content-Length: 40", "Content-Length : 40", 400),
        ("Content-Length: 40", "Content-Length: +40", 400),
        ("Content-Length: 40\r\n", "Content-Length: 40\n", 400),
        ("Content-Length: 40\r\n", "", 411),
        ("Accept: ", " folded\r\nAccept: ", 400),
        ("Host: ", "Host: evil.example\r\nHost: ", 400),
        ("HTTP/1.1", "HTTP/2.0", 505),
        ("HTTP/1.1", "HTTP/1.1 x", 400),
        ("application/json", "text/plain", 415),
        ("POST", "post", 400),
    ] {
        assert!(good.contains(old), "{old}");
        let mut wire = scope.connect();
        // What is behind must not be taken for a request of its own.
        wire.send(format!("{}{good}", good.replacen(old, new, 1)));
        assert_eq!(wire.reply().status, status, "{new:?}");
        if status != 415 {
            assert!(wire.next_reply().is_none(), "{new:?}: the connection is over");
        }
    }
    assert!(scope.story.lines().is_empty());
}

#[test]
fn a_connection_is_kept_as_long_as_the_client_likes() {
    let scope = Scope::start();
    let ping = |id: u32| {
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }).to_string();
        format!("{}\r\n{body}", scope.head(body.len()))
    };
    let mut wire = scope.connect();
    for id in 0..50 {
        wire.send(ping(id));
        assert_eq!(wire.reply().json()["id"], id);
    }
    // Several at once, and cut anywhere, are answered one after another.
    let many: String = (100..105).map(ping).collect();
    for piece in many.as_bytes().chunks(97) {
        wire.send(piece);
    }
    for id in 100..105 {
        assert_eq!(wire.reply().json()["id"], id);
    }
    // A refusal whose end is known does not end the connection.
    wire.send(ping(1).replace(&scope.token(), "x"));
    assert_eq!(wire.reply().status, 401);
    wire.send(ping(106));
    assert_eq!(wire.reply().json()["id"], 106);
    wire.send(ping(107).replace("Accept", "Connection: close\r\nAccept"));
    assert_eq!(wire.reply().header("Connection"), Some("close"));
    assert!(wire.next_reply().is_none());
    let mut wire = scope.connect();
    wire.send(ping(108).replace("HTTP/1.1", "HTTP/1.0"));
    assert_eq!(wire.reply().header("Connection"), Some("close"));
    assert!(wire.next_reply().is_none());
}

#[test]
fn a_client_that_asks_before_it_sends_is_told_to_go_on_or_refused() {
    let scope = Scope::start();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let mut wire = scope.connect();
    wire.send(format!("{}Expect: 100-continue\r\n\r\n", scope.head(ping.len())));
    assert_eq!(wire.reply().status, 100);
    wire.send(ping);
    assert_eq!(wire.reply().status, 200);
    let mut wire = scope.connect();
    wire.send(format!("{}Expect: 100-continue\r\n\r\n", scope.head(ping.len()).replace(&scope.token(), "x")));
    assert_eq!(wire.reply().status, 401);
}

#[test]
fn whoever_sends_slowly_is_cut_off_while_others_are_served() {
    let scope = Scope::with(|options| options.limits.read = Duration::from_millis(300));
    let heads =
        [scope.head(1000), format!("{}\r\n{{", scope.head(1000)), "POST /m".to_owned(), String::new()];
    let slow: Vec<_> = heads
        .into_iter()
        .map(|begin| {
            let mut wire = scope.connect();
            thread::spawn(move || {
                let start = Instant::now();
                wire.send(&begin);
                wire.stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                // A byte now and then: each read is quick, the request never ends.
                let mut answer = Vec::new();
                loop {
                    use std::io::{Read, Write};
                    let mut buffer = [0; 1024];
                    match wire.stream.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(read) => answer.extend(&buffer[..read]),
                        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                        Err(_) if begin.is_empty() => {}
                        Err(_) => drop(wire.stream.write_all(b"X")),
                    }
                    assert!(start.elapsed() < DEADLINE, "still open");
                }
                (begin.is_empty(), String::from_utf8(answer).unwrap())
            })
        })
        .collect();
    while !slow.iter().all(thread::JoinHandle::is_finished) {
        assert_eq!(scope.call("find_notes", json!({ "query": "x" })).text(), "found x");
    }
    for client in slow {
        let (silent, answer) = client.join().unwrap();
        // Who never said a word is owed none.
        assert!(if silent { answer.is_empty() } else { answer.starts_with("HTTP/1.1 408 ") }, "{answer}");
    }
}

#[test]
fn a_connection_that_has_nothing_to_say_is_closed_without_a_word() {
    let scope = Scope::with(|options| options.limits.idle = Duration::from_millis(100));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let mut wire = scope.connect();
    wire.send(format!("{}\r\n{body}", scope.head(body.len())));
    assert_eq!(wire.reply().status, 200);
    assert!(wire.next_reply().is_none());
}

#[test]
fn silent_connections_do_not_keep_anybody_out() {
    let scope = Scope::start();
    let mut silent: Vec<Wire> = (0..MAX_CONNECTIONS * 2).map(|_| scope.connect()).collect();
    for wire in &mut silent {
        // Half of a request; those that were put out may have noticed already.
        let _ = std::io::Write::write_all(&mut wire.stream, b"POST /mcp HTTP/1.1\r\n");
    }
    for n in 0..20 {
        assert_eq!(scope.call("find_notes", json!({ "query": "x" })).text(), "found x", "{n}");
    }
    drop(silent);
    let closed = scope.endpoint.close();
    assert_eq!(closed.unfinished, 0);
}

#[test]
fn revisions_with_a_handshake_are_answered_as_they_ask() {
    let scope = Scope::start();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let reply = scope.ask("initialize", params);
        let result = &reply.json()["result"];
        assert_eq!((reply.status, &result["protocolVersion"]), (200, &json!(version)));
        assert_eq!(result["capabilities"], json!({ "tools": {} }));
        assert_eq!(result["serverInfo"]["name"], "agent-bridge");
        assert_eq!(
            (reply.header("Content-Type"), reply.header("Mcp-Session-Id")),
            (Some("application/json"), None)
        );
        let reply = scope.post_with(
            &format!("MCP-Protocol-Version: {version}\r\nMcp-Session-Id: mine\r\n"),
            &json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list" }),
        );
        let result = &reply.json()["result"];
        assert_eq!((reply.status, result.get("resultType"), result.get("ttlMs")), (200, None, None));
    }
    for version in ["2026-07-28", "1999-01-01", ""] {
        let reply = scope.ask("initialize", json!({ "protocolVersion": version }));
        assert_eq!(reply.json()["result"]["protocolVersion"], "2025-11-25", "{version}");
    }
    assert_eq!(scope.ask("ping", json!({})).json(), json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
    for method in ["server/discover", "resources/list", "prompts/list", "subscriptions/listen", "nothing"] {
        assert_eq!(scope.ask(method, json!({})).code(), (200, -32601), "{method}");
    }
    let reply = scope.post_with(
        "MCP-Protocol-Version: 2023-01-01\r\n",
        &json!({ "jsonrpc": "2.0", "id": 5, "method": "ping" }),
    );
    assert_eq!((reply.code(), &reply.json()["id"]), ((400, -32022), &json!(5)));
    assert_eq!(scope.post_with("MCP-Protocol-Version: 2023-01-01\r\n", &initialized()).status, 400);
}

#[test]
fn the_revision_without_a_handshake_is_held_to_its_headers() {
    let scope = Scope::start();
    let discovered = scope.ask_modern("server/discover", json!({}), &[]);
    let result = &discovered.json()["result"];
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    let lists = json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
    for (name, value) in lists.as_object().unwrap() {
        assert_eq!(&result[name], value);
        assert_eq!(&scope.ask_modern("tools/list", json!({}), &[]).json()["result"][name], value);
    }
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "agent-bridge");
    let call = json!({ "name": "find_notes", "arguments": { "query": "x" } });
    let called = scope.ask_modern("tools/call", call.clone(), &[]);
    assert_eq!(
        (called.text(), &called.json()["result"]["resultType"]),
        ("found x".to_owned(), &json!("complete"))
    );
    let coded =
        scope.ask_modern("tools/call", call.clone(), &[("Mcp-Name", Some("=?base64?ZmluZF9ub3Rlcw==?="))]);
    assert_eq!(coded.text(), "found x");

    for (header, value) in [
        ("MCP-Protocol-Version", None),
        ("MCP-Protocol-Version", Some("2025-11-25")),
        ("Mcp-Method", None),
        ("Mcp-Method", Some("tools/list")),
        ("Mcp-Name", None),
        ("Mcp-Name", Some("wait")),
        ("Mcp-Name", Some("=?base64?d2FpdA==?=")),
        ("_meta", None),
        ("_meta", Some("2025-11-25")),
    ] {
        let reply = scope.ask_modern("tools/call", call.clone(), &[(header, value)]);
        assert_eq!(reply.code(), (400, -32020), "{header}: {value:?}");
    }
    let both = [("_meta", Some("2030-01-01")), ("MCP-Protocol-Version", Some("2030-01-01"))];
    let reply = scope.ask_modern("tools/list", json!({}), &both);
    assert_eq!(reply.code(), (400, -32022));
    let data = &reply.json()["error"]["data"];
    assert_eq!((&data["requested"], &data["supported"][0]), (&json!("2030-01-01"), &json!("2026-07-28")));

    for method in ["initialize", "ping", "subscriptions/listen", "logging/setLevel", "nothing"] {
        assert_eq!(scope.ask_modern(method, json!({}), &[]).code(), (404, -32601), "{method}");
    }
    for tool in ["delete_all", "no_such_tool"] {
        assert_eq!(
            scope.ask_modern("tools/call", json!({ "name": tool }), &[]).code(),
            (200, -32602),
            "{tool}"
        );
    }
    let answer = json!({ "jsonrpc": "2.0", "id": 3, "result": {} });
    assert_eq!(scope.post_with("MCP-Protocol-Version: 2026-07-28\r\n", &answer).status, 400);
    assert_eq!(scope.post_with("MCP-Protocol-Version: 2026-07-28\r\n", &initialized()).status, 202);
    assert_eq!(scope.story.lines().len(), 2, "no call with a fault ran");
}

#[test]
fn a_client_that_probes_falls_back_to_the_handshake_where_it_has_to() {
    let scope = Scope::with(|options| options.modern = false);
    let probe = scope.ask_modern("server/discover", json!({}), &[]);
    assert_eq!(probe.code(), (400, -32022));
    assert!(!probe.json()["error"]["data"]["supported"].as_array().unwrap().contains(&json!("2026-07-28")));
    // A probe that has no header yet.
    let probe = scope.ask_modern("server/discover", json!({}), &[("MCP-Protocol-Version", None)]);
    assert_eq!(probe.code(), (200, -32601));
    assert_eq!(scope.ask("initialize", json!({ "protocolVersion": "2025-11-25" })).status, 200);
    assert_eq!(scope.post(&initialized()).status, 202);
}

#[test]
fn a_hidden_tool_cannot_be_told_from_one_that_does_not_exist() {
    let scope = Scope::start();
    let answer = |name: &str, arguments: Value| {
        let reply = scope.call(name, arguments);
        String::from_utf8([reply.head.into_bytes(), reply.body].concat()).unwrap().replace(name, "NAME")
    };
    let hidden = answer("delete_all", json!({}));
    assert_eq!(hidden, answer("remove_all", json!({})));
    assert_eq!(answer("delete_all", json!({ "cwd": 1 })), answer("remove_all", json!({ "cwd": 1 })));
    assert!(hidden.contains(r#""data":{"reason":"not_in_scope"}"#), "{hidden}");
    // What is said back is short and plain.
    let odd = scope.call(&format!("\u{1b}[31m\n{}", "x".repeat(10_000)), json!({}));
    assert_eq!(
        odd.json()["error"]["message"],
        format!("tool '[31m{}' is not available to this agent", "x".repeat(60))
    );
    assert_eq!(scope.call("DELETE_ALL", json!({})).code(), (200, -32601));
    assert!(scope.story.lines().is_empty());
}

#[test]
fn arguments_that_name_another_place_or_do_not_fit_never_reach_the_tool() {
    let scope = Scope::start();
    for name in ["workspace_id", "workspaceId", "session", "user_id", "run_id", "cwd", "tenant-id"] {
        let reply = scope.call("find_notes", json!({ "query": "x", name: "other" }));
        assert_eq!(reply.code(), (200, -32602), "{name}");
        assert_eq!(reply.json()["error"]["data"]["reason"], "foreign_scope");
    }
    for arguments in [json!({ "query": 1 }), json!({ "other": 1 }), json!([]), json!("x"), json!(7)] {
        let reply = scope.call("find_notes", arguments.clone());
        assert_eq!(reply.code(), (200, -32602), "{arguments}");
        assert_eq!(reply.json()["error"]["data"]["reason"], "invalid_arguments");
    }
    assert!(scope.story.lines().is_empty());
    assert_eq!(scope.recorded().len(), 12);
    // Nothing at all is no fault where nothing is required.
    assert_eq!(scope.ask("tools/call", json!({ "name": "find_notes" })).text(), "found ");
    assert_eq!(scope.ask("tools/call", json!({ "name": "find_notes", "arguments": null })).text(), "found ");
}

#[test]
fn bodies_that_are_no_message_are_told_apart_and_none_hurts() {
    let scope = Scope::start();
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let call = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"find_notes","arguments":{arguments}}}}}"#
        )
    };
    for (body, expected) in [
        (String::new(), (400, -32700)),
        ("\u{feff}{}".to_owned(), (400, -32700)),
        (r#"{"jsonrpc":"2.0","id":1,"#.to_owned(), (400, -32700)),
        ("[]".to_owned(), (400, -32600)),
        (format!("[{}]", json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })), (400, -32600)),
        (deep(400_000), (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":null,"method":"tools/call"}"#.to_owned(), (400, -32600)),
        (r#"{"jsonrpc":"2.0","method":"tools/call"}"#.to_owned(), (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":1e999,"method":"ping"}"#.to_owned(), (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#.to_owned(), (400, -32600)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#.to_owned(), (200, -32602)),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","name":"find_notes"}}"#
                .to_owned(),
            (400, -32602),
        ),
        (call(&format!(r#"{{"query":{}}}"#, deep(400_000))), (200, -32602)),
        (call(r#"{"limit":1e999}"#), (200, -32602)),
        (call(r#"{"limit":123456789012345678901234567890}"#), (200, -32602)),
    ] {
        let mut wire = scope.connect();
        wire.send(format!("{}\r\n{body}", scope.head(body.len())));
        assert_eq!(wire.reply().code(), expected, "{:.60}", body);
    }
    assert!(scope.story.lines().is_empty());
}

#[test]
fn two_runs_do_not_open_each_other() {
    let (one, two) = (Scope::start(), Scope::start());
    assert_ne!(one.token(), two.token());
    for (here, there) in [(&one, &two), (&two, &one)] {
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "find_notes" } })
                .to_string();
        let mut wire = here.connect();
        wire.send(format!("{}\r\n{body}", here.head(body.len()).replace(&here.token(), &there.token())));
        assert_eq!(wire.reply().status, 401);
        assert!(here.story.lines().is_empty());
    }
    one.endpoint.close();
    assert_eq!(two.call("find_notes", json!({ "query": "x" })).text(), "found x");
}

#[test]
fn closing_cancels_what_runs_and_the_port_refuses_at_once() {
    let scope = Scope::start();
    let port = scope.endpoint.port();
    let mut idle = scope.connect();
    let mut calling = scope.connect();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "wait" } })
        .to_string();
    calling.send(format!("{}\r\n{body}", scope.head(body.len())));
    scope.story.wait_for(1);
    let watcher = thread::spawn(move || refused_after(port));
    let start = Instant::now();
    let closed = scope.endpoint.close();
    let took = start.elapsed();
    assert_eq!((closed.cancelled, closed.unfinished), (1, 0));
    assert_eq!(scope.story.lines(), ["waiting", "ended: the run has ended"]);
    // Bounds of a machine that is busy; alone it is a fraction of a millisecond.
    assert!(took < Duration::from_millis(500), "{took:?}");
    watcher.join().unwrap();
    assert!(idle.next_reply().is_none());
    // Whoever was being answered still gets the answer, and nothing after it.
    let reply = calling.reply();
    assert_eq!((reply.text(), reply.header("Connection")), ("the run has ended".to_owned(), Some("close")));
    assert!(calling.next_reply().is_none());
    assert_eq!(scope.recorded(), ["wait failed cancelled"]);
    assert_eq!(scope.endpoint.close().cancelled, 0, "a second time there is nothing left to do");
}

#[cfg(unix)]
#[test]
fn the_port_refuses_within_fifty_milliseconds() {
    let mut times: Vec<Duration> = (0..15)
        .map(|_| {
            let scope = Scope::start();
            scope.call("find_notes", json!({}));
            let port = scope.endpoint.port();
            let start = Instant::now();
            scope.endpoint.close();
            refused_after(port);
            start.elapsed()
        })
        .collect();
    times.sort();
    // The median: another program may hold the processor for longer than that.
    assert!(times[times.len() / 2] < Duration::from_millis(50), "{times:?}");
}

#[test]
fn a_tool_that_panics_fails_alone() {
    let scope = Scope::start();
    let mut wire = scope.connect();
    for (query, is_error) in [("panic", true), ("x", false), ("error", true)] {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "find_notes", "arguments": { "query": query } } })
        .to_string();
        wire.send(format!("{}\r\n{body}", scope.head(body.len())));
        let reply = wire.reply();
        assert_eq!((reply.status, &reply.json()["result"]["isError"]), (200, &json!(is_error)), "{query}");
    }
    assert_eq!(
        scope.recorded(),
        ["find_notes failed panic", "find_notes allowed ok", "find_notes failed tool_error"]
    );
}

#[test]
fn a_call_is_cancelled_by_its_id_and_only_if_that_is_plain() {
    let scope = Scope::start();
    let begin = |id: Value| {
        let body =
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "wait" } })
                .to_string();
        let mut wire = scope.connect();
        wire.send(format!("{}\r\n{body}", scope.head(body.len())));
        wire
    };
    let cancel = |id: Value| {
        let message =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
        assert_eq!(scope.post(&message).status, 202);
    };
    let mut first = begin(json!(7));
    let mut second = begin(json!("7"));
    scope.story.wait_for(2);
    cancel(json!(8));
    cancel(json!("7"));
    assert_eq!(second.reply().text(), "the client cancelled the call");
    let mut third = begin(json!(7));
    scope.story.wait_for(4);
    // Two clients count alike: neither may end the other's call.
    cancel(json!(7));
    assert_eq!(scope.call("find_notes", json!({})).status, 200);
    assert_eq!(scope.story.lines().iter().filter(|line| line.starts_with("ended")).count(), 1);
    scope.endpoint.close();
    assert_eq!(
        (first.reply().text(), third.reply().text()),
        ("the run has ended".into(), "the run has ended".into())
    );
}

#[test]
fn hanging_up_cancels_only_where_the_revision_says_so() {
    let scope = Scope::start();
    let body = |meta: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "wait", "_meta": meta } }).to_string()
    };
    let legacy = body(json!({}));
    let mut wire = scope.connect();
    wire.send(format!("{}\r\n{legacy}", scope.head(legacy.len())));
    scope.story.wait_for(1);
    drop(wire);
    let modern = body(json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" }));
    let lines = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: wait\r\n";
    let mut wire = scope.connect();
    wire.send(format!("{}{lines}\r\n{modern}", scope.head(modern.len())));
    scope.story.wait_for(2);
    drop(wire);
    scope.story.wait_for(3);
    assert_eq!(scope.story.lines()[2], "ended: the client hung up");
    // A call is over when it is written down.
    let end = Instant::now() + DEADLINE;
    while scope.recorded() != ["wait failed cancelled"] {
        assert!(Instant::now() < end, "{:?}", scope.recorded());
        thread::yield_now();
    }
    assert_eq!(scope.endpoint.close().cancelled, 1, "the other one still ran");
}

#[test]
fn calls_are_bounded_at_once_and_in_all() {
    let scope = Scope::with(|options| {
        options.limits.calls_at_once = 2;
        options.limits.calls = 4;
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "wait" } })
        .to_string();
    let mut waiting: Vec<Wire> = (0..2).map(|_| scope.connect()).collect();
    for wire in &mut waiting {
        wire.send(format!("{}\r\n{body}", scope.head(body.len())));
    }
    scope.story.wait_for(2);
    let busy = scope.call("find_notes", json!({}));
    assert!(busy.json()["result"]["isError"] == true && busy.text().contains("too many calls"), "{busy:?}");
    scope.endpoint.close();

    let scope = Scope::with(|options| options.limits.calls = 2);
    for expected in ["found ", "found ", "this run has used up its calls; finish with what you have"] {
        assert_eq!(scope.call("find_notes", json!({})).text(), expected);
    }
    assert_eq!(scope.recorded()[2], "find_notes refused budget");
}

#[test]
fn a_long_result_is_cut_at_a_character_and_says_so() {
    let scope = Scope::with(|options| options.limits.output = 1001);
    let text = scope.call("find_notes", json!({ "query": "long" })).text();
    assert_eq!(text, format!("{}\n[cut: 1000 of 200000 bytes shown]", "é".repeat(500)));
}

#[test]
fn records_have_neither_the_token_nor_the_arguments() {
    let scope = Scope::start();
    let secret = "correct horse battery staple";
    scope.call("find_notes", json!({ "query": secret }));
    scope.call("find_notes", json!({ "query": secret, "session": scope.token() }));
    let records = scope.log.records();
    let text: String = records.iter().map(|record| record.to_json().to_string()).collect();
    assert!(!text.contains(secret) && !text.contains(&scope.token()), "{text}");
    let arguments = json!({ "query": secret }).to_string();
    let record = records[0].to_json();
    assert_eq!(
        (&record["argument_bytes"], &record["at"], &record["run"]),
        (&json!(arguments.len()), &json!(1000), &json!("run-1"))
    );
    assert_eq!(record["argument_sha256"].as_str().map(str::len), Some(64));
    assert!(!format!("{:?}", scope.endpoint).contains(&scope.token()));
}

struct FullDisk;

impl CallLog for FullDisk {
    fn record(&self, _: CallRecord) -> Result<(), String> {
        Err("no space left".into())
    }

    fn flush(&self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn once_a_record_is_lost_no_further_call_is_served() {
    let scope = Scope::with(|options| options.log = Arc::new(FullDisk));
    assert_eq!(scope.call("find_notes", json!({})).text(), "found ");
    assert_eq!(scope.call("find_notes", json!({})).code(), (200, -32603));
    assert_eq!(scope.story.lines().len(), 1);
    assert_eq!(scope.endpoint.close().log_error.as_deref(), Some("no space left"));
}

#[test]
fn many_clients_at_once_each_get_their_own_answer() {
    let scope = Scope::with(|options| options.limits.calls_at_once = 64);
    thread::scope(|threads| {
        for client in 0..24 {
            let scope = &scope;
            threads.spawn(move || {
                let mut wire = scope.connect();
                for n in 0..40 {
                    let query = format!("{client}/{n}");
                    let body = json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call",
                        "params": { "name": "find_notes", "arguments": { "query": query } } })
                    .to_string();
                    wire.send(format!("{}\r\n{body}", scope.head(body.len())));
                    assert_eq!(wire.reply().text(), format!("found {query}"));
                }
            });
        }
    });
    assert_eq!(scope.recorded().len(), 24 * 40);
    assert_eq!(scope.endpoint.close().unfinished, 0);
}
