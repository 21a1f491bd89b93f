//! The parts of a verdict that all CLIs share: plain output, exit status, session ids.

use serde_json::{Map, Value, json};

use super::evidence::{self, Finding};
use super::{Failure, Outcome, RunEnd, UsageReport, Verdict};

/// A verdict in the making.
pub(super) struct Draft {
    /// Facts collected so far.
    pub meta: Map<String, Value>,
    /// The provider's session id, if proven.
    pub native_id: Option<String>,
    /// What it used.
    pub usage: UsageReport,
    /// Version in the stream.
    pub cli_version: Option<String>,
    /// Why it failed, if structured output proves it; else the words of the failure are looked at.
    pub cause: Option<Failure>,
    /// Version of the CLI that this adapter was measured with.
    tested_version: &'static str,
    /// The session that was asked for.
    resume: Option<String>,
}

impl Draft {
    pub fn new(resume: Option<&str>, tested_version: &'static str) -> Self {
        Self {
            meta: Map::new(),
            native_id: None,
            usage: UsageReport::default(),
            cli_version: None,
            cause: None,
            tested_version,
            resume: resume.map(str::to_owned),
        }
    }

    /// The verdict as stated.
    pub fn close(mut self, outcome: Outcome, answer: String, detail: Option<String>) -> Verdict {
        // The stream's id is the truth; another id than the one asked for means a lost context.
        if let (Some(asked), Some(got)) = (&self.resume, &self.native_id)
            && !asked.eq_ignore_ascii_case(got)
        {
            self.meta.insert("resumeMismatch".into(), json!(true));
            if outcome != Outcome::Success {
                self.meta.insert(Failure::KEY.into(), json!(Failure::ConversationLost.as_str()));
            }
        }
        Verdict {
            outcome,
            answer,
            detail: if outcome == Outcome::Success { None } else { detail },
            native_id: self.native_id,
            usage: self.usage,
            cli_version: self.cli_version,
            meta: Value::Object(self.meta),
        }
    }

    /// A failure that its own words explain; without a telling phrase it is a worker error.
    pub fn fail(mut self, finding: Option<Finding>, why: &str, answer: String) -> Verdict {
        let mut detail = evidence::detail(why);
        let cause = self.cause.or_else(|| match finding {
            Some(finding) => Failure::from_finding(finding),
            None => Failure::in_text(why),
        });
        if let Some(cause) = cause {
            self.meta.insert(Failure::KEY.into(), json!(cause.as_str()));
        }
        if let Some(finding) = finding {
            finding.note(why, &mut self.meta);
            match finding {
                // An id that the provider does not know is no session to continue, and its zeros are no totals.
                Finding::ResumeUnknown => {
                    self.native_id = None;
                    self.usage = UsageReport::default();
                }
                Finding::UsageError => {
                    detail = evidence::detail(&format!(
                        "the installed CLI does not take the arguments of this adapter (made for {}; check its \
                         version): {why}",
                        self.tested_version
                    ));
                }
                _ => {}
            }
        }
        self.close(finding.map_or(Outcome::WorkerError, Finding::outcome), answer, detail)
    }

    /// A run that went well in a format that is not understood; says which version would be.
    pub fn not_recognised(self, why: &str, text: String) -> Verdict {
        let why = format!("{why} (this adapter was made for {})", self.tested_version);
        self.close(Outcome::FormatUnrecognised, text, evidence::detail(&why))
    }

    /// A completed answer: empty, a refusal in disguise, spoilt by the exit status, or a success.
    pub fn answered(self, answer: String, end: &RunEnd<'_>) -> Verdict {
        if is_blank(&answer) {
            let why = "the run ended without an answer";
            return if ended_well(end) {
                self.close(Outcome::Empty, String::new(), evidence::detail(why))
            } else {
                let stderr = evidence::telling_stderr(end.stderr_tail);
                self.fail(evidence::classify(&stderr, true), &explain(end, &stderr), answer)
            };
        }
        if let Some(finding) = evidence::posing_as_answer(&answer) {
            let why = answer.clone();
            return self.fail(Some(finding), &why, answer);
        }
        if !ended_well(end) {
            let why = format!("the turn was complete, but {}", exit_text(end));
            return self.fail(None, &why, answer);
        }
        self.close(Outcome::Success, answer, None)
    }

    /// Output without any event of the expected format. The text is kept as the answer.
    pub fn plain(self, text: String, end: &RunEnd<'_>) -> Verdict {
        let stderr = evidence::telling_stderr(end.stderr_tail);
        if ended_well(end) {
            if is_blank(&text) {
                // Silence with a telling standard error is not just an empty answer.
                return match evidence::classify(&stderr, false) {
                    Some(finding) => self.fail(Some(finding), &stderr, String::new()),
                    None => {
                        let why = "the agent ended normally and printed nothing";
                        self.close(Outcome::Empty, String::new(), evidence::detail(why))
                    }
                };
            }
            if let Some(finding) = evidence::posing_as_answer(&text).or_else(|| short_login(&text)) {
                return self.fail(Some(finding), &text.clone(), text);
            }
            let why =
                "the agent ended normally, but its output is in another format; the text is kept as it came";
            return self.not_recognised(why, text);
        }
        let said = if stderr.is_empty() { clip_bytes(&text, 4096) } else { stderr.as_str() };
        let finding =
            evidence::classify(said, false).or_else(|| evidence::classify(clip_bytes(&text, 4096), false));
        self.fail(finding, &explain(end, said), text)
    }
}

/// A login hint that is the whole output.
fn short_login(text: &str) -> Option<Finding> {
    (text.lines().count() <= 6 && evidence::waits_for_login(text)).then_some(Finding::Login)
}

/// The first bytes of a text, cut between characters.
fn clip_bytes(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Exit code 0 and no signal. An unknown end (neither known) is not a good one.
pub(super) fn ended_well(end: &RunEnd<'_>) -> bool {
    end.exit_code == Some(0) && end.signal.is_none()
}

/// How the process ended, in words.
pub(super) fn exit_text(end: &RunEnd<'_>) -> String {
    match (end.exit_code, end.signal) {
        (_, Some(signal)) => format!("the agent was ended by signal {signal}"),
        (Some(code), None) => format!("the agent exited with code {code}"),
        (None, None) => "it is not known how the agent ended".to_owned(),
    }
}

/// Standard error's words, or at least the exit status.
pub(super) fn explain(end: &RunEnd<'_>, said: &str) -> String {
    if said.trim().is_empty() {
        exit_text(end)
    } else if ended_well(end) {
        said.to_owned()
    } else {
        format!("{said} ({})", exit_text(end))
    }
}

/// One event. A line that is JSON but for bytes that are no UTF-8 (output of a command, cut or in another
/// encoding) counts, with these bytes replaced: the answer may be in it.
pub(super) fn event_in<T: serde::de::DeserializeOwned>(line: &[u8]) -> Option<T> {
    if !line.starts_with(b"{") {
        return None;
    }
    match serde_json::from_slice(line) {
        Ok(event) => Some(event),
        Err(_) if std::str::from_utf8(line).is_err() => {
            serde_json::from_str(&String::from_utf8_lossy(line)).ok()
        }
        Err(_) => None,
    }
}

/// Nothing a person could read.
pub(super) fn is_blank(text: &str) -> bool {
    crate::process::strip_terminal(text).trim().is_empty()
}

/// A UUID in its usual form. Both CLIs take anything else for a title or a new session.
pub(super) fn is_uuid(id: &str) -> bool {
    id.len() == 36 && uuid::Uuid::try_parse(id).is_ok()
}

/// A small list of strings, each clipped and redacted.
pub(super) fn few(lines: &[String]) -> Value {
    json!(lines.iter().take(5).map(|line| super::redaction::one_line(line, 200)).collect::<Vec<_>>())
}

/// A version number among other words.
pub(super) fn version_in(text: &str) -> Option<String> {
    text.lines().flat_map(str::split_whitespace).map(|word| word.trim_start_matches('v')).find_map(|word| {
        let version: String =
            word.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+')).collect();
        let numbers =
            version.split('.').take_while(|part| part.bytes().next().is_some_and(|b| b.is_ascii_digit()));
        (numbers.count() >= 2 && version.len() <= 64).then_some(version)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn versions_are_found_among_words() {
        assert_eq!(version_in("codex-cli 0.171.0\n").as_deref(), Some("0.171.0"));
        assert_eq!(version_in("2.1.332 (Claude Code)").as_deref(), Some("2.1.332"));
        assert_eq!(version_in("tool v1.2.3-beta.1, built today").as_deref(), Some("1.2.3-beta.1"));
        assert_eq!(version_in("no version here. 7"), None);
    }

    #[test]
    fn bytes_that_are_no_text_cost_only_themselves() {
        let text = |line: &[u8]| event_in::<Value>(line).map(|event| event["text"].clone());
        assert_eq!(text(b"{\"text\":\"caf\xE9\"}"), Some(json!("caf\u{FFFD}")));
        assert_eq!(text(b"{\"text\":\"plain\"}"), Some(json!("plain")));
        assert_eq!(text(b"{\"text\":\"caf\xE9"), None);
        assert_eq!(text(b"caf\xE9"), None);
    }

    #[test]
    fn only_the_usual_form_is_a_uuid() {
        assert!(is_uuid("01a22da4-c4d5-7380-a8a6-b574a17c03d0"));
        for id in [
            "",
            "not-a-uuid",
            "01a22da4c4d57380a8a6b574a17c03d0",
            "{01a22da4-c4d5-7380-a8a6-b574a17c03d0}",
            "--last",
        ] {
            assert!(!is_uuid(id), "{id}");
        }
    }
}
