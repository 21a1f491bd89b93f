//! What `agy` says on its own behalf, line by line: who must log in, what was denied, how it failed. Anchored on the
//! forms in which it says so; what a model or a tool says is never looked at.

use serde_json::Value;

use crate::agents::Failure;

/// Longest line that is one of these. Addresses for a login are long.
const MOST: usize = 2048;

/// A login that waits for a person, or wants one.
pub(super) fn is_login(line: &str) -> bool {
    let line = own_words(line);
    let lower = line.to_lowercase();
    const BEGINNINGS: [&str; 7] = [
        "authentication required. please visit the url to log in",
        "authentication required. run 'agy' to log in",
        "you are not logged into antigravity",
        "authentication expired. please log back in",
        "paste the authorization code",
        "or, paste the authorization code",
        "please visit the url to log in",
    ];
    line.len() <= MOST
        && (BEGINNINGS.iter().any(|start| lower.starts_with(start)) || is_login_address(&lower))
}

/// A line that is an address at which Google asks for a login.
fn is_login_address(lower: &str) -> bool {
    let Some(rest) = lower.strip_prefix("https://") else { return false };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    host == "accounts.google.com" && path.starts_with("o/oauth2") && !lower.contains(char::is_whitespace)
}

/// Something was not allowed.
pub(super) fn is_denial(line: &str) -> bool {
    let line = own_words(line);
    line.len() <= MOST
        && ((line.starts_with("a tool required the \"") && line.contains("auto-denied"))
            || (line.starts_with("permission check failed for ") && line.contains("denied")))
}

/// The run's time was over, and what there was is given as the answer.
pub(super) fn is_partial(line: &str) -> bool {
    let line = line.trim();
    let told = line.strip_prefix("[agy]").map(str::trim_start);
    told.is_some_and(|told| told.starts_with("print timeout after") && told.contains("partial output"))
        || own_words(line).starts_with("timeout waiting for response")
}

/// The conversation that was asked for is not there.
pub(super) fn is_conversation_miss(line: &str) -> bool {
    let lower = own_words(line).to_lowercase();
    lower.len() <= MOST && lower.starts_with("conversation ") && lower.contains("not found")
}

/// Whether the key ring did not answer, by the end of the log.
pub(super) fn keyring_in_log(log: &str) -> bool {
    log.lines().any(|line| {
        let lower = line.to_lowercase();
        let slow = lower.contains("timed out") || lower.contains("timeout") || lower.contains("no reply");
        let ring = ["keyring", "keychain", "org.freedesktop.secrets", "d-bus", "dbus"];
        slow && ring.iter().any(|word| lower.contains(word))
    })
}

/// The line without what stands before the words: `Error:`, `warning:`, `[agy]`.
fn own_words(line: &str) -> &str {
    let mut line = line.trim();
    for lead in ["[agy]", "Error:", "error:", "Warning:", "warning:"] {
        line = line.strip_prefix(lead).map_or(line, str::trim_start);
    }
    line
}

/// What `AGY_ERROR:` tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgyError {
    pub status: String,
    pub retryable: Option<bool>,
    pub error_id: Option<String>,
}

impl AgyError {
    /// Reads such a line, as JSON or as words.
    pub fn read(line: &str) -> Option<Self> {
        let told = line.trim().strip_prefix("AGY_ERROR:")?.trim();
        let told = &told[..told.floor_char_boundary(MOST)];
        if let Ok(Value::Object(facts)) = serde_json::from_str::<Value>(told) {
            let text = |key: &str| facts.get(key).and_then(Value::as_str).map(str::to_owned);
            return Some(Self {
                status: text("status").unwrap_or_default(),
                retryable: facts.get("retryable").and_then(Value::as_bool),
                error_id: text("error_id"),
            });
        }
        let word = |key: &str| {
            let rest = told.split_once(key)?.1.trim_start_matches(['"', ':', '=', ' ']);
            let end = rest.find(|c: char| !(c.is_alphanumeric() || "_-".contains(c))).unwrap_or(rest.len());
            (end > 0).then(|| rest[..end].to_owned())
        };
        Some(Self {
            status: word("status").unwrap_or_default(),
            retryable: word("retryable").and_then(|word| word.parse().ok()),
            error_id: word("error_id"),
        })
    }

    /// What its word means by itself: `ResourceExhausted`, `RESOURCE_EXHAUSTED`.
    pub fn failure(&self) -> Option<Failure> {
        let word: String = self.status.chars().filter(|c| c.is_alphanumeric()).collect();
        match word.to_lowercase().as_str() {
            "unauthenticated" => Some(Failure::LoginRequired),
            "permissiondenied" => Some(Failure::PermissionDenied),
            "resourceexhausted" => Some(Failure::Quota),
            "cancelled" | "canceled" => Some(Failure::Cancelled),
            _ => None,
        }
    }
}

/// Phrases in lower case, the special ones first.
const PHRASES: [(&str, Failure); 22] = [
    ("authentication timed out", Failure::AuthTimeout),
    ("keyringauth: timed out", Failure::KeyringTimeout),
    ("timeout waiting for response", Failure::PartialTimeout),
    ("user denied permission", Failure::PermissionDenied),
    ("unauthenticated", Failure::LoginRequired),
    ("run 'agy' to log in", Failure::LoginRequired),
    ("please log back in", Failure::LoginRequired),
    ("resourceexhausted", Failure::Quota),
    ("resource_exhausted", Failure::Quota),
    ("quota", Failure::Quota),
    ("out of credits", Failure::Quota),
    ("insufficient credits", Failure::Quota),
    ("429", Failure::Quota),
    ("unknown model", Failure::ModelUnavailable),
    ("available models", Failure::ModelUnavailable),
    ("model not found", Failure::ModelUnavailable),
    ("model is not available", Failure::ModelUnavailable),
    ("model is unavailable", Failure::ModelUnavailable),
    ("prohibited_content", Failure::ContentFiltered),
    ("content filter", Failure::ContentFiltered),
    ("blocked by safety", Failure::ContentFiltered),
    ("finish_reason_safety", Failure::ContentFiltered),
];

/// What a text that tells of a failure means.
pub(super) fn failure_in(text: &str) -> Option<Failure> {
    let lower = text.to_lowercase();
    PHRASES.iter().find(|(phrase, _)| contains_word(&lower, phrase)).map(|(_, failure)| *failure)
}

/// A number counts only by itself, so that no id or time is taken for it.
fn contains_word(text: &str, phrase: &str) -> bool {
    if !phrase.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.contains(phrase);
    }
    text.split(|c: char| !c.is_alphanumeric()).any(|word| word == phrase)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_login_is_what_the_program_says_itself() {
        for line in [
            "Authentication required. Please visit the URL to log in:",
            "  https://accounts.google.com/o/oauth2/auth?client_id=1&state=x",
            "Or, paste the authorization code here and press Enter:",
            "Error: authentication required. Run 'agy' to log in, then retry",
            "You are not logged into Antigravity.",
            "Authentication expired. Please log back in.",
        ] {
            assert!(is_login(line), "{line}");
        }
        for line in [
            "The client prints \"Authentication required. Please visit the URL to log in\" when …",
            "see https://accounts.google.com/o/oauth2/auth for the flow",
            "https://accounts.google.com.evil.example/o/oauth2/auth",
            "https://evil.example/?u=https://accounts.google.com/o/oauth2",
            "401 in src/login.rs",
        ] {
            assert!(!is_login(line), "{line}");
        }
    }

    #[test]
    fn denials_and_time_outs_are_told_by_the_program_and_not_by_a_text_about_them() {
        assert!(is_denial(
            "a tool required the \"write_file\" permission that headless mode cannot prompt for, so it was auto-denied"
        ));
        assert!(is_denial("permission check failed for write_file: user denied permission"));
        assert!(!is_denial("grep: a tool required the \"x\" permission … auto-denied"));
        assert!(is_partial("[agy] print timeout after 30m0s; returning partial output"));
        assert!(is_partial("Error: timeout waiting for response"));
        assert!(!is_partial("the test printed [agy] print timeout after 1s returning partial output"));
        assert!(is_conversation_miss("warning: conversation 1-2 not found, starting a new conversation"));
    }

    #[test]
    fn an_error_is_read_as_json_and_as_words() {
        let json = AgyError::read(
            "AGY_ERROR: {\"status\":\"ResourceExhausted\",\"code\":8,\"retryable\":true,\"error_id\":\"e-1\"}",
        );
        let words = AgyError::read(
            "AGY_ERROR: {status: RESOURCE_EXHAUSTED, code: 8, retryable: true, error_id: e-1}",
        );
        for error in [json.unwrap(), words.unwrap()] {
            assert_eq!(error.failure(), Some(Failure::Quota), "{error:?}");
            assert_eq!((error.retryable, error.error_id.as_deref()), (Some(true), Some("e-1")));
        }
        assert_eq!(AgyError::read("the log says AGY_ERROR: {}"), None);
        assert_eq!(AgyError::read("AGY_ERROR:").unwrap().failure(), None);
    }

    #[test]
    fn numbers_in_a_text_are_no_codes_unless_they_stand_alone() {
        assert_eq!(failure_in("HTTP 429: slow down"), Some(Failure::Quota));
        assert_eq!(failure_in("request 14290 of 2026"), None);
        assert_eq!(failure_in("unknown model \"x\". Available models:"), Some(Failure::ModelUnavailable));
    }

    #[test]
    fn the_key_ring_is_found_in_a_log() {
        assert!(keyring_in_log("I1201 keyringAuth: timed out after 5s, trying the next source"));
        assert!(keyring_in_log("E1201 org.freedesktop.secrets: did not receive a reply, timeout"));
        assert!(!keyring_in_log("I1201 keyringAuth: ok\nI1201 fetch timed out"));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in "\\PC{0,60}|(AGY_ERROR: )?(status|retryable|error_id|[\":={}İß ]){0,12}") {
            is_login(&line);
            is_denial(&line);
            is_partial(&line);
            is_conversation_miss(&line);
            AgyError::read(&line);
            failure_in(&line);
            keyring_in_log(&line);
        }
    }
}
