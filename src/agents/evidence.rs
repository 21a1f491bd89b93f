//! What a failure text means. One table of phrases that the CLIs really print, most telling first.

use serde_json::{Map, Value, json};

use super::{Outcome, redaction};

/// Longest detail line, in characters.
pub(super) const DETAIL_CHARS: usize = 400;

/// What a phrase proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The provider does not know the session id that should be resumed.
    ResumeUnknown,
    /// The CLI does not know the arguments: it is older or newer than what is spoken here.
    UsageError,
    /// A login is missing or no longer valid.
    Login,
    /// A usage limit, rate limit or empty account.
    Quota,
    /// The agent's own limit; which one.
    Limit(&'static str),
}

impl Finding {
    /// The outcome it stands for.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::ResumeUnknown | Self::UsageError => Outcome::WorkerError,
            Self::Login => Outcome::LoginRequired,
            Self::Quota => Outcome::Quota,
            Self::Limit(_) => Outcome::TurnLimit,
        }
    }

    /// Notes it in a verdict's facts.
    pub fn note(self, text: &str, meta: &mut Map<String, Value>) {
        match self {
            Self::ResumeUnknown => {
                meta.insert("resumeUnknown".into(), json!(true));
            }
            Self::UsageError => {
                meta.insert("usageError".into(), json!(true));
            }
            Self::Quota => {
                if let Some(at) = reset_time(text) {
                    meta.insert("resetAt".into(), json!(at));
                }
            }
            Self::Limit(which) => {
                meta.insert("limit".into(), json!(which));
            }
            Self::Login => {}
        }
    }
}

use Finding::{Limit, Login, Quota, ResumeUnknown, UsageError};

/// Phrases in lower case. The first that occurs decides, so the special come before the general.
const PHRASES: &[(&str, Finding)] = &[
    ("no rollout found", ResumeUnknown),
    ("invalid session identifier", ResumeUnknown),
    ("error resuming session", ResumeUnknown),
    ("no conversation found", ResumeUnknown),
    ("no saved session found", ResumeUnknown),
    ("--resume requires a valid session", ResumeUnknown),
    ("thread/resume failed", ResumeUnknown),
    ("unrecognized subcommand", UsageError),
    ("unknown subcommand", UsageError),
    ("unexpected argument", UsageError),
    ("unknown option", UsageError),
    ("unknown command", UsageError),
    ("unrecognized option", UsageError),
    ("unknown feature flag", UsageError),
    ("unknown argument", UsageError),
    ("flags provided but not defined", UsageError),
    ("flag provided but not defined", UsageError),
    ("cannot be used multiple times", UsageError),
    ("the following required arguments were not provided", UsageError),
    ("please set an auth method", Login),
    ("invalid auth method selected", Login),
    ("manual authorization is required", Login),
    ("api key not valid", Login),
    ("api_key_invalid", Login),
    ("\"unauthenticated\"", Login),
    ("not logged in", Login),
    ("please run /login", Login),
    ("login required", Login),
    ("login is required", Login),
    ("please log in", Login),
    ("please login", Login),
    ("codex login", Login),
    ("claude auth login", Login),
    ("claude login", Login),
    ("missing environment variable", Login),
    ("invalid api key", Login),
    ("invalid x-api-key", Login),
    ("incorrect api key", Login),
    ("authentication_failed", Login),
    ("authentication_error", Login),
    ("failed to authenticate", Login),
    ("invalid bearer token", Login),
    ("token has expired", Login),
    ("token could not be refreshed", Login),
    ("refresh token was already used", Login),
    ("401 unauthorized", Login),
    ("status 401", Login),
    ("status: 401", Login),
    ("error: 401", Login),
    ("usage limit", Quota),
    ("session limit", Quota),
    ("weekly limit", Quota),
    ("rate limit", Quota),
    ("rate_limit", Quota),
    ("-hour limit", Quota),
    ("limit reached", Quota),
    ("insufficient_quota", Quota),
    ("exhausted your", Quota),
    ("resource_exhausted", Quota),
    ("quota exceeded", Quota),
    ("exceeded your current quota", Quota),
    ("credit balance", Quota),
    ("billing_error", Quota),
    ("out of credits", Quota),
    ("429 too many requests", Quota),
    ("status 429", Quota),
    ("status: 429", Quota),
    ("error: 429", Quota),
    ("(429)", Quota),
    ("model's context window", Limit("context")),
    ("model’s context window", Limit("context")),
    ("exceeds the context window", Limit("context")),
    ("context_length_exceeded", Limit("context")),
    ("prompt is too long", Limit("context")),
    ("prompt_too_long", Limit("context")),
    ("input token count", Limit("context")),
    ("maximum number of turns", Limit("turns")),
    ("maximum session turns", Limit("turns")),
    ("max session turns", Limit("turns")),
    ("error_max_turns", Limit("turns")),
    ("maximum budget", Limit("budget")),
    ("output token maximum", Limit("output-tokens")),
    ("max_output_tokens", Limit("output-tokens")),
];

/// Whole answers that are really a refusal of the provider, by how they begin.
const POSING_AS_ANSWER: &[(&str, Finding)] = &[
    ("claude ai usage limit reached", Quota),
    ("claude usage limit reached", Quota),
    ("you've hit your usage limit", Quota),
    ("you've hit your limit", Quota),
    ("you've hit your session limit", Quota),
    ("you've hit your weekly limit", Quota),
    ("you have hit your usage limit", Quota),
    ("you've reached your usage limit", Quota),
    ("you have reached your usage limit", Quota),
    ("usage limit reached", Quota),
    ("session limit reached", Quota),
    ("5-hour limit reached", Quota),
    ("weekly limit reached", Quota),
    ("rate limit reached", Quota),
    ("credit balance is too low", Quota),
    ("quota exceeded", Quota),
    ("not logged in", Login),
    ("invalid api key", Login),
    ("please run /login", Login),
];

/// Longest text that can pose as an answer, in bytes: such messages are one short paragraph.
const POSING_BYTES: usize = 600;

/// What a text that tells of a failure proves. A usage error counts only where no turn began.
pub(super) fn classify(text: &str, turn_began: bool) -> Option<Finding> {
    let lower = text.to_lowercase();
    PHRASES
        .iter()
        .filter(|(_, finding)| !(turn_began && *finding == UsageError))
        .find(|(phrase, _)| lower.contains(phrase))
        .map(|(_, finding)| *finding)
}

/// Whether a text that came as the answer is in truth a refusal: all of it, not a mention.
pub(super) fn posing_as_answer(text: &str) -> Option<Finding> {
    let text = text.trim();
    if text.len() > POSING_BYTES || text.lines().count() > 3 {
        return None;
    }
    let lower = text.to_lowercase().replace('’', "'");
    POSING_AS_ANSWER.iter().find(|(start, _)| lower.starts_with(start)).map(|(_, finding)| *finding)
}

/// What a CLI says that waits for a person to log in.
const WAITING: &[&str] = &[
    "opening browser",
    "opening your browser",
    "opening authentication page in your browser",
    "visit the following url to authorize",
    "in your browser to log in",
    "in your browser to authenticate",
    "waiting for authentication",
    "paste code here",
    "enter the authorization code",
];

/// Whether a plain line says that the CLI waits for a person to log in, or wants one to.
pub(super) fn waits_for_login(line: &str) -> bool {
    let lower = line.to_lowercase();
    let wanted = ["please run /login", "not logged in"];
    line.len() <= POSING_BYTES && wanted.iter().chain(WAITING).any(|phrase| lower.contains(phrase))
}

/// Whether a line of standard error says that the CLI waits for a person to log in. Less proves it than on
/// standard output: warnings about a login to something else stand there beside a run that goes well.
pub(super) fn is_login_wait(line: &[u8]) -> bool {
    let lower = String::from_utf8_lossy(line).to_lowercase();
    line.len() <= 200 && WAITING.iter().any(|phrase| lower.contains(phrase))
}

/// Whether the n-th line (from 1) of plain output is such a line on its own. Late or long lines and lines
/// of a document are somebody's prose, for which no run may be ended.
pub(super) fn is_login_prompt(line: &[u8], nth: u64) -> bool {
    let line = line.trim_ascii();
    nth <= 20
        && line.len() <= 200
        && !line.starts_with(b"\"")
        && !line.starts_with(b"{")
        && waits_for_login(&String::from_utf8_lossy(line))
}

/// When a limit ends, as far as the text says: RFC 3339 where it gives an epoch second, else its words.
pub(super) fn reset_time(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    for lead in ["limit reached|", "\"resets_at\":", "resets_at\\\":", "\"reset_at\":"] {
        if let Some(at) = lower.find(lead) {
            let digits: String =
                lower[at + lead.len()..].trim_start().chars().take_while(char::is_ascii_digit).collect();
            let seconds = digits.parse::<i64>().ok().and_then(|n| jiff::Timestamp::from_second(n).ok());
            if let Some(time) = seconds {
                return Some(time.to_string());
            }
        }
    }
    for lead in [
        "try again at ",
        "try again in ",
        "resets at ",
        "resets in ",
        "reset at ",
        "available again at ",
        "resets ",
    ] {
        let Some(at) = lower.find(lead) else { continue };
        // Lower-casing may change lengths outside ASCII; such a text keeps its lower-case words.
        let source = if lower.len() == text.len() { text } else { lower.as_str() };
        let Some(rest) = source.get(at + lead.len()..) else { continue };
        let end = rest
            .char_indices()
            .find(|(at, c)| {
                matches!(c, '\n' | ';' | '"' | '|' | '·')
                    || (*c == '.' && rest[at + 1..].chars().next().is_none_or(char::is_whitespace))
            })
            .map_or(rest.len(), |(at, _)| at);
        let words = redaction::one_line(&rest[..end], 64);
        if !words.is_empty() {
            return Some(words);
        }
    }
    None
}

/// The last lines of standard error that tell something: the CLIs' own noise is left out.
pub(super) fn telling_stderr(tail: &str) -> String {
    const NOISE: &[&str] = &[
        "Reading additional input from stdin",
        "Reading prompt from stdin",
        "WARNING: proceeding, even though we could not create PATH aliases",
        "warning: Untrusted project-local configuration",
        "[claude-code:",
        "Stack backtrace:",
        "For more information, try",
        "Usage: ",
    ];
    let lines: Vec<&str> = tail
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !NOISE.iter().any(|noise| line.starts_with(noise)))
        .filter(|line| !is_backtrace_frame(line))
        .collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

fn is_backtrace_frame(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// One redacted line for a verdict's detail; `None` if there is nothing to say.
pub(super) fn detail(text: &str) -> Option<String> {
    Some(redaction::one_line(&unwrap_error_json(text), DETAIL_CHARS)).filter(|line| !line.is_empty())
}

/// Providers' error bodies arrive as JSON text; a person wants the message in it.
fn unwrap_error_json(text: &str) -> String {
    let message =
        text.trim_start().starts_with('{').then(|| serde_json::from_str::<Value>(text).ok()).flatten();
    message
        .as_ref()
        .and_then(|body| body.pointer("/error/message").or_else(|| body.get("message")))
        .and_then(Value::as_str)
        .map_or_else(|| text.to_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_special_phrase_wins_over_the_general_one() {
        assert_eq!(
            classify("thread/resume failed: no rollout found for thread id", false),
            Some(ResumeUnknown)
        );
        assert_eq!(classify("unexpected status 401 Unauthorized: Incorrect API key", true), Some(Login));
        assert_eq!(classify("exceeded retry limit, last status: 429 Too Many Requests", true), Some(Quota));
        assert_eq!(classify("We’re currently experiencing high demand", true), None);
    }

    #[test]
    fn a_usage_text_in_the_middle_of_a_turn_is_no_usage_error() {
        assert_eq!(classify("error: unexpected argument '--x' found", false), Some(UsageError));
        assert_eq!(classify("error: unexpected argument '--x' found", true), None);
    }

    #[test]
    fn an_answer_about_limits_is_an_answer() {
        assert_eq!(posing_as_answer("Claude AI usage limit reached|1760000000"), Some(Quota));
        assert_eq!(posing_as_answer("You’ve hit your usage limit. Try again at 3pm."), Some(Quota));
        assert_eq!(posing_as_answer("The client prints \"usage limit reached\" when it is throttled."), None);
        assert_eq!(posing_as_answer(&format!("Rate limit reached handling:\n{}", "line\n".repeat(9))), None);
    }

    #[test]
    fn prose_about_logins_ends_no_run() {
        assert!(is_login_prompt(b"  Not logged in. Please run /login", 1));
        assert!(!is_login_prompt(b"Not logged in. Please run /login", 21));
        assert!(!is_login_prompt(b"  \"result\": \"Not logged in\",", 3));
        assert!(!is_login_prompt(format!("not logged in {}", "x".repeat(200)).as_bytes(), 1));
    }

    #[test]
    fn stated_reset_times_are_read() {
        for (text, expected) in [
            ("Claude AI usage limit reached|1760000000", "2025-10-09T08:53:20Z"),
            ("You've hit your usage limit. Try again at Feb 3rd, 2027 4:05 PM.", "Feb 3rd, 2027 4:05 PM"),
            ("5-hour limit reached ∙ resets 3pm (UTC)", "3pm (UTC)"),
            ("{\"error\":{\"resets_at\": 1760000000}}", "2025-10-09T08:53:20Z"),
            ("Rate limit. Please try again in 1.5s. Thanks", "1.5s"),
        ] {
            assert_eq!(reset_time(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(reset_time("or try again later."), None);
    }

    #[test]
    fn the_message_inside_an_error_body_is_the_detail() {
        assert_eq!(detail("{\"error\": {\"message\": \"bad request\"}}").as_deref(), Some("bad request"));
        assert_eq!(detail(" \n "), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,120}|(İ|ß|resets at |\"resets_at\":|[0-9]{1,20}|\\.| ){0,12}") {
            classify(&text, false);
            posing_as_answer(&text);
            reset_time(&text);
            telling_stderr(&text);
            detail(&text);
        }
    }
}
