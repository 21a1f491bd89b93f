//! `agent-bridge serve`

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use crate::bridge::{Bridge, BridgeError};
use crate::config::{Config, Toolset};
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::release::{launcher, lease};

/// Serve one MCP host on standard input and output.
///
/// Hosts start this; you rarely do. It answers at once, probes agents only when asked, and ends when the
/// host goes away. Standard output carries protocol only; one ready line goes to standard error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tool groups to offer, comma-separated: sessions, approvals, manus, workboards, recommendations, relay, diagnostics.
    #[arg(long, value_delimiter = ',', value_name = "GROUP", value_parser = parse_group)]
    toolsets: Option<Vec<Toolset>>,
}

fn parse_group(text: &str) -> Result<Toolset, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(|_| {
        "known groups: sessions, approvals, manus, workboards, recommendations, relay, diagnostics".to_owned()
    })
}

pub fn run(context: &Context, mut config: Config, args: Args) -> Result<Exit> {
    // In an installation: for as long as this runs, nobody takes the release away.
    let lease = match lease::hold(context, lease::Holding::Serve) {
        Ok(lease) => lease.map(Arc::new),
        Err(error) => {
            launcher::answer_first_request(&error);
            return Err(error);
        }
    };
    if let Some(groups) = args.toolsets {
        config.toolsets = groups;
    }
    let agents: Vec<&str> =
        config.agents.iter().filter(|(_, settings)| settings.enabled).map(|(id, _)| id.as_str()).collect();
    let _ = writeln!(
        std::io::stderr(),
        "agent-bridge {} ready: agents {}; state {}; default sandbox {}",
        env!("CARGO_PKG_VERSION"),
        agents.join(", "),
        config.state_dir.display(),
        config.defaults.sandbox
    );
    for warning in &config.warnings {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    if std::io::stdin().is_terminal() {
        let _ = writeln!(
            std::io::stderr(),
            "Hosts start this. Here it waits for JSON on the keyboard; Ctrl-D ends it."
        );
    }
    let runtime = super::event_loop()?;
    let introduced = lease.clone().map(|lease| -> crate::mcp::Introduced {
        Box::new(move |client, version| lease.introduce(client, version))
    });
    let bridge = Bridge::new(context.clone(), config);
    runtime
        .block_on(crate::mcp::serve(bridge, introduced))
        .map_err(|error| BridgeError::Supervisor(format!("standard input or output failed: {error}")))?;
    // Blocking reads of standard input cannot be interrupted, so the loop is not waited for.
    runtime.shutdown_background();
    drop(lease);
    Ok(Exit::Ok)
}
