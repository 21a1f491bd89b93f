//! Whether a program serves MCP and offers what its metadata pin: handshake and tool list, nothing else.
//!
//! The digest of a tool is that of its JSON value as `tools/list` carries it, independent of the order of keys
//! ([`crate::digest::of_json`]); that of the catalogue is the digest of the array of all of them, sorted by
//! name. Nothing is taken away or added first: what a host sees is what is pinned.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::mcp_client::McpClient;
use super::metadata::ToolCatalogue;
use crate::digest;
use crate::error::{CodeDoc, Coded};
use crate::process::{Farewell, ProcessError};

pub use super::mcp_client::Launch;

/// Most tools that a server may list.
const MOST_TOOLS: usize = 1000;

/// How a tool list is compared with the pinned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// All pinned tools and no other.
    Exactly,
    /// Every listed tool is pinned as it is; a config may have switched others off.
    Subset,
}

/// What a server that passed said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// Its version.
    pub server_version: String,
    /// The protocol that was spoken.
    pub protocol: String,
    /// Names of its tools, sorted.
    pub tools: Vec<String>,
    /// Digest of the listed tools.
    pub catalogue_sha256: String,
    /// From the start to the end of the tool list.
    pub elapsed_ms: u64,
}

/// Why a program did not pass.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The system did not start it.
    #[error("it cannot be started: {0}")]
    NotStarted(ProcessError),
    /// It ended before it answered.
    #[error("{}", ended(.method, *.code, *.signal, *.silent))]
    Ended {
        /// What it was asked.
        method: String,
        /// Exit code.
        code: Option<i64>,
        /// Signal.
        signal: Option<i32>,
        /// Whether it printed nothing at all.
        silent: bool,
    },
    /// The same, with its last words on standard error.
    #[error("{}; its last words: {last_words}", ended(.method, *.code, *.signal, false))]
    EndedWith {
        /// What it was asked.
        method: String,
        /// Exit code.
        code: Option<i64>,
        /// Signal.
        signal: Option<i32>,
        /// The end of its standard error, redacted.
        last_words: String,
    },
    /// It answered with an error.
    #[error("it refused {method}: {message} ({code})")]
    Refused {
        /// What it was asked.
        method: String,
        /// JSON-RPC code.
        code: i64,
        /// Its words, redacted.
        message: String,
    },
    /// It asked to come back later: the installation is being changed.
    #[error("it put {method} off: {message}")]
    PutOff {
        /// What it was asked.
        method: String,
        /// Its words, redacted.
        message: String,
    },
    /// What it prints is not the protocol.
    #[error("it does not speak MCP: {what}{}", words(.last_words))]
    NotMcp {
        /// What it did.
        what: String,
        /// The end of its standard error, redacted.
        last_words: String,
    },
    /// No answer in time.
    #[error("it did not answer {method} within {} ms; its process tree was ended", .after.as_millis())]
    TimedOut {
        /// What it was asked.
        method: String,
        /// The whole talk.
        after: Duration,
    },
    /// Its tools are not the pinned ones.
    #[error("its tools are not the pinned ones: {}", differences(.missing, .unknown, .changed))]
    ToolsDiffer {
        /// Pinned and not listed.
        missing: Vec<String>,
        /// Listed and not pinned.
        unknown: Vec<String>,
        /// Listed with another description or schema.
        changed: Vec<String>,
    },
    /// Some of its processes could not be ended.
    #[error("processes of it could not be ended: {pids:?}")]
    Survivors {
        /// Their ids.
        pids: Vec<u32>,
    },
}

fn ended(method: &str, code: Option<i64>, signal: Option<i32>, silent: bool) -> String {
    let before = if silent { "before any output".to_owned() } else { format!("before it answered {method}") };
    match (signal, code) {
        (Some(9), _) if silent => {
            format!("it was ended by signal 9 {before}; on macOS this is usually quarantine or signing")
        }
        (Some(signal), _) => format!("it was ended by signal {signal} {before}"),
        // Codes of Windows are known by their hexadecimal form.
        (None, Some(code)) if code > 0xFFFF => format!("it ended with code {code:#x} {before}"),
        (None, Some(code)) => format!("it ended with code {code} {before}"),
        (None, None) => format!("it closed its output {before}"),
    }
}

fn words(last_words: &str) -> String {
    if last_words.is_empty() { String::new() } else { format!("; its last words: {last_words}") }
}

fn differences(missing: &[String], unknown: &[String], changed: &[String]) -> String {
    let parts = [("missing", missing), ("unknown", unknown), ("changed", changed)];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(word, names)| {
            let more = if names.len() > 10 { ", …" } else { "" };
            format!("{word} {}{more}", names.iter().take(10).cloned().collect::<Vec<_>>().join(", "))
        })
        .collect();
    if parts.is_empty() { "the list as a whole differs".into() } else { parts.join("; ") }
}

impl ProbeError {
    /// Adds what is known only after the end.
    pub(super) fn with_end(self, farewell: &Farewell, words: String) -> Self {
        match self {
            Self::Ended { method, silent, .. } => {
                // One that only closed its output was ended by us; then its status says nothing.
                let (code, signal) =
                    if farewell.killed { (None, None) } else { (farewell.exit_code, farewell.signal) };
                if words.is_empty() {
                    Self::Ended { method, code, signal, silent }
                } else {
                    Self::EndedWith { method, code, signal, last_words: words }
                }
            }
            Self::NotMcp { what, .. } => Self::NotMcp { what, last_words: words },
            other => other,
        }
    }
}

crate::codes! {
    PROBE_NOT_STARTED { exit: VerificationFailed, retryable: false,
        cause: "The system would not start the program of a release: it is missing, may not be executed, or is for another machine.",
        remedy: "Check the release with `agent-bridge inspect`; install its bundle again with `agent-bridge install-release BUNDLE --repair`." }
    PROBE_ENDED { exit: VerificationFailed, retryable: false,
        cause: "The program of a release was started and ended before it answered. Ended by signal 9 before any output is what macOS does to a program in quarantine or with a broken signature; on Linux it is often the memory limit.",
        remedy: "Start the program by hand with `--version`. On macOS look at `xattr -l FILE` and `codesign --verify FILE`; remove a quarantine with `xattr -d com.apple.quarantine FILE`." }
    PROBE_REFUSED { exit: VerificationFailed, retryable: false,
        cause: "The program of a release speaks MCP and answered the handshake, the tool list or a call with an error.",
        remedy: "Read its words in the message; they name what it would not accept." }
    PROBE_PUT_OFF { exit: VerificationFailed, retryable: true,
        cause: "The program of a release answered that the installation is being changed and that it may be asked again later. That says nothing about the release.",
        remedy: "Wait for the other command to end (`agent-bridge readiness` shows who is at work), then run the same command again." }
    PROBE_NOT_MCP { exit: VerificationFailed, retryable: false,
        cause: "The program of a release printed something on standard output that is not MCP, so no host could talk to it.",
        remedy: "Check that the release is the right one with `agent-bridge inspect`, and start the program by hand to see what it prints." }
    PROBE_TIMED_OUT { exit: VerificationFailed, retryable: true,
        cause: "The program of a release did not answer in time. Its whole process tree was ended.",
        remedy: "Run the command again on a quiet machine; if it repeats, the release hangs at start." }
    PROBE_TOOLS_DIFFER { exit: VerificationFailed, retryable: false,
        cause: "The tools that the program lists are not the ones that the metadata of its release pin.",
        remedy: "Don't use the release: get its bundle again from where it was packaged." }
    PROBE_SURVIVORS { exit: VerificationFailed, retryable: false,
        cause: "The program was ended, but processes that it started could not be.",
        remedy: "Look at the process ids in the message and end them by hand." }
}

impl Coded for ProbeError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::NotStarted(_) => &PROBE_NOT_STARTED,
            Self::Ended { .. } | Self::EndedWith { .. } => &PROBE_ENDED,
            Self::Refused { .. } => &PROBE_REFUSED,
            Self::PutOff { .. } => &PROBE_PUT_OFF,
            Self::NotMcp { .. } => &PROBE_NOT_MCP,
            Self::TimedOut { .. } => &PROBE_TIMED_OUT,
            Self::ToolsDiffer { .. } => &PROBE_TOOLS_DIFFER,
            Self::Survivors { .. } => &PROBE_SURVIVORS,
        }
    }
}

/// Starts the program, shakes hands, reads the whole tool list, compares it with the pinned one and ends the
/// program with everything it started.
pub fn run(launch: &Launch, expected: Option<&ToolCatalogue>, how: Match) -> Result<Probed, ProbeError> {
    let began = Instant::now();
    let mut client = McpClient::start(launch, false)?;
    let probed = handshake(&mut client, expected, how, began);
    client.finish(probed)
}

/// The handshake and the tool list with a server that is running.
pub fn handshake(
    client: &mut McpClient,
    expected: Option<&ToolCatalogue>,
    how: Match,
    began: Instant,
) -> Result<Probed, ProbeError> {
    let greeting = client.initialize()?;
    let tools = client.tools()?;
    let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let listed = catalogue_of(&tools)?;
    if let Some(expected) = expected {
        compare(&listed, expected, how)?;
    }
    Ok(Probed {
        server_version: greeting.server_version,
        protocol: greeting.protocol,
        catalogue_sha256: listed.sha256,
        tools: listed.tools.into_keys().collect(),
        elapsed_ms,
    })
}

/// The digests of a tool list, as metadata pin them.
pub fn catalogue_of(tools: &[Value]) -> Result<ToolCatalogue, ProbeError> {
    let wrong = |what: &str| ProbeError::NotMcp { what: what.to_owned(), last_words: String::new() };
    if tools.len() > MOST_TOOLS {
        return Err(wrong("it lists too many tools"));
    }
    let mut by_name: BTreeMap<String, &Value> = BTreeMap::new();
    for tool in tools {
        let name = tool.get("name").and_then(Value::as_str).ok_or_else(|| wrong("a tool has no name"))?;
        if by_name.insert(name.to_owned(), tool).is_some() {
            return Err(wrong("it lists a tool twice"));
        }
    }
    let sorted = Value::Array(by_name.values().map(|tool| (*tool).clone()).collect());
    Ok(ToolCatalogue {
        sha256: digest::of_json(&sorted),
        tools: by_name.into_iter().map(|(name, tool)| (name, digest::of_json(tool))).collect(),
    })
}

fn compare(listed: &ToolCatalogue, pinned: &ToolCatalogue, how: Match) -> Result<(), ProbeError> {
    let keys = |from: &ToolCatalogue, keep: &dyn Fn(&str, &str) -> bool| -> Vec<String> {
        from.tools.iter().filter(|(name, sha)| keep(name, sha)).map(|(name, _)| name.clone()).collect()
    };
    let unknown = keys(listed, &|name, _| !pinned.tools.contains_key(name));
    let changed = keys(listed, &|name, sha| pinned.tools.get(name).is_some_and(|own| own != sha));
    let missing = match how {
        Match::Exactly => keys(pinned, &|name, _| !listed.tools.contains_key(name)),
        Match::Subset => Vec::new(),
    };
    let whole = how == Match::Subset || listed.sha256 == pinned.sha256;
    if whole && missing.is_empty() && unknown.is_empty() && changed.is_empty() {
        return Ok(());
    }
    // Names come from the program: only what can be a tool's name is repeated.
    let clean = |names: Vec<String>| -> Vec<String> {
        names.iter().map(|name| crate::agents::redaction::one_line(name, 64)).collect()
    };
    Err(ProbeError::ToolsDiffer { missing: clean(missing), unknown: clean(unknown), changed: clean(changed) })
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
