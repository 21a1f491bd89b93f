//! Whether the login works: `/usage`, which the program answers itself, without an agent, a quota and a conversation
//! (1.1.11), or the list of models, for which it asks its service.

use std::path::Path;

use super::envelope::Envelope;
use super::version::Version;
use super::{decoder, root, words};
use crate::agents::{
    AgentError, Failure, LOG_NAME, Launch, LoginAnswer, LoginQuestion, PrivateFiles, RunEnd, path_text,
    redaction, verdicts,
};

/// Shorter than who asks waits, so that the program's own words come first.
const LIMIT: &str = "--print-timeout=20s";

/// A slash command, so those must not be switched off. Last, as every prompt is.
const USAGE: &str = "-p=/usage";

/// The arguments.
pub(super) fn arguments(version: Option<&str>) -> Vec<String> {
    if Version::or_newest(version).answers_usage() {
        ["--output-format=json", LIMIT, USAGE].map(String::from).to_vec()
    } else {
        vec!["models".into()]
    }
}

pub(super) struct Question;

impl LoginQuestion for Question {
    fn launch(&self, version: Option<&str>, user_config: bool, folder: &Path) -> Result<Launch, AgentError> {
        let mut args = arguments(version);
        let mut private = PrivateFiles::default();
        // A subcommand takes none of these.
        if args.iter().any(|arg| arg == USAGE) {
            let mut more = vec![format!("--log-file={}", path_text(&folder.join(LOG_NAME))?)];
            if !user_config {
                more.push(format!("{}={}", root::FLAG, path_text(&root::folder(folder))?));
                private = root::files(folder, None);
                private.kept.clear();
            }
            args.splice(..0, more);
        }
        let env = [super::NO_UPDATE].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Ok(Launch { args, env, private: Some(private), ..Launch::default() })
    }

    fn is_prompt(&self, line: &str) -> bool {
        words::is_login(line)
    }

    fn answer(&self, end: &RunEnd<'_>, stdout: &str, in_time: bool) -> LoginAnswer {
        let said = || stdout.lines().chain(end.stderr_tail.lines());
        if let Some(line) = said().find(|line| words::is_login(line)) {
            return LoginAnswer::Fails(Failure::LoginRequired, line.trim().to_owned());
        }
        let envelope = envelope_in(stdout);
        let succeeded = envelope.as_ref().is_none_or(|envelope| envelope.status == "SUCCESS");
        if in_time && verdicts::ended_well(end) && succeeded && !verdicts::is_blank(stdout) {
            return LoginAnswer::Works;
        }
        let error = envelope.and_then(|envelope| envelope.error_text()).unwrap_or_default();
        let text = format!("{error} {}", end.stderr_tail);
        let failure = match said().find_map(words::AgyError::read).and_then(|error| error.failure()) {
            Some(failure) => Some(failure),
            None => words::failure_in(&text),
        };
        let why = || redaction::one_line(if text.trim().is_empty() { "no answer" } else { &text }, 400);
        match failure {
            Some(failure @ (Failure::LoginRequired | Failure::AuthTimeout | Failure::KeyringTimeout)) => {
                LoginAnswer::Fails(failure, why())
            }
            _ if words::keyring_in_log(end.log_tail) => LoginAnswer::Fails(Failure::KeyringTimeout, why()),
            _ if !in_time || failure == Some(Failure::PartialTimeout) => {
                LoginAnswer::Fails(Failure::AuthTimeout, why())
            }
            _ => LoginAnswer::Unclear,
        }
    }
}

/// The envelope among whatever stands around it.
fn envelope_in(stdout: &str) -> Option<Envelope> {
    let mut found = None;
    let mut decoder = decoder::Decoder::default();
    for line in stdout.lines() {
        decoder.line(line.as_bytes(), &mut |bytes| {
            let envelope = verdicts::event_in(bytes).and_then(Envelope::alone);
            let known = envelope.is_some();
            found = envelope.or(found.take());
            known
        });
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn answer(code: i64, stdout: &str, stderr_tail: &str, log_tail: &str) -> LoginAnswer {
        let end = RunEnd { exit_code: Some(code), stderr_tail, log_tail, ..RunEnd::default() };
        Question.answer(&end, stdout, true)
    }

    fn failure(answer: LoginAnswer) -> Option<Failure> {
        match answer {
            LoginAnswer::Fails(failure, _) => Some(failure),
            _ => None,
        }
    }

    #[test]
    fn an_answer_is_a_login_that_works() {
        for stdout in [
            "{\"conversation_id\":\"\",\"status\":\"SUCCESS\",\"response\":\"12% used\"}",
            "update available\n{\n \"status\": \"SUCCESS\",\n \"response\": \"a\nb\"\n}",
            "gemini-3-pro\tGemini 3 Pro\n",
        ] {
            assert_eq!(
                answer(0, stdout, "", "keyringAuth: timed out after 1s"),
                LoginAnswer::Works,
                "{stdout}"
            );
        }
    }

    #[test]
    fn failures_are_told_apart() {
        let expired = "{\"status\":\"ERROR\",\"response\":\"\",\"error\":\"authentication timed out\"}";
        for (code, stdout, stderr, log, expected) in [
            (
                1,
                "",
                "authentication required. Run 'agy' to log in, then retry",
                "",
                Some(Failure::LoginRequired),
            ),
            (
                0,
                "Authentication required. Please visit the URL to log in:",
                "",
                "",
                Some(Failure::LoginRequired),
            ),
            (3, "", "AGY_ERROR: {\"status\":\"Unauthenticated\"}", "", Some(Failure::LoginRequired)),
            (1, expired, "", "", Some(Failure::AuthTimeout)),
            (1, "", "", "E1201 keyringAuth: timed out after 5s", Some(Failure::KeyringTimeout)),
            (1, "", "Error: timeout waiting for response", "", Some(Failure::AuthTimeout)),
            (2, "", "flags provided but not defined: -p", "", None),
            (0, "", "", "", None),
        ] {
            assert_eq!(failure(answer(code, stdout, stderr, log)), expected, "{stdout}{stderr}{log}");
        }
        let silent = Question.answer(&RunEnd::default(), "", false);
        assert_eq!(failure(silent), Some(Failure::AuthTimeout));
    }
}
