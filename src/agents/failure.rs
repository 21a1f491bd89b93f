//! Why a run failed, in a finer word than its outcome, where the CLI's own output proves it.

use serde::{Deserialize, Serialize};

use super::Verdict;
use super::evidence::Finding;

/// A cause that calls for a remedy of its own. Its name is in the verdict's `meta` as `failure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The key ring with the login did not answer in time.
    KeyringTimeout,
    /// There is a login, but it was not confirmed in time.
    AuthTimeout,
    /// There is no login, or it is not valid any more.
    LoginRequired,
    /// A usage limit, rate limit or empty account.
    Quota,
    /// The provider does not have the model, or not for this account.
    ModelUnavailable,
    /// The provider held the answer back.
    ContentFiltered,
    /// The provider's answer broke off.
    StreamError,
    /// The output is not in the format that was asked for.
    InvalidJson,
    /// The output is in that format and no result, or one with members that are not understood.
    InvalidEnvelope,
    /// The worker's own time was over; what it had is given as the answer.
    PartialTimeout,
    /// The conversation that was to be resumed is not there, or another came back.
    ConversationLost,
    /// The provider or the CLI refused the run for want of a right.
    PermissionDenied,
    /// The worker was interrupted, and not by us.
    Cancelled,
    /// The worker failed, for a reason that calls for no other remedy.
    WorkerError,
}

impl Failure {
    /// The name in a verdict's facts.
    pub const KEY: &'static str = "failure";

    const ALL: [Self; 14] = [
        Self::KeyringTimeout,
        Self::AuthTimeout,
        Self::LoginRequired,
        Self::Quota,
        Self::ModelUnavailable,
        Self::ContentFiltered,
        Self::StreamError,
        Self::InvalidJson,
        Self::InvalidEnvelope,
        Self::PartialTimeout,
        Self::ConversationLost,
        Self::PermissionDenied,
        Self::Cancelled,
        Self::WorkerError,
    ];

    /// The name used in records and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KeyringTimeout => "keyring-timeout",
            Self::AuthTimeout => "auth-timeout",
            Self::LoginRequired => "login-required",
            Self::Quota => "quota",
            Self::ModelUnavailable => "model-unavailable",
            Self::ContentFiltered => "content-filtered",
            Self::StreamError => "stream-error",
            Self::InvalidJson => "invalid-json",
            Self::InvalidEnvelope => "invalid-envelope",
            Self::PartialTimeout => "partial-timeout",
            Self::ConversationLost => "conversation-lost",
            Self::PermissionDenied => "permission-denied",
            Self::Cancelled => "cancelled",
            Self::WorkerError => "worker-error",
        }
    }

    /// Whether it may go well a moment later, with nothing changed.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::KeyringTimeout | Self::AuthTimeout)
    }

    /// The cause of a run's failure, if one is known.
    pub fn of(verdict: &Verdict) -> Option<Self> {
        let name = verdict.meta[Self::KEY].as_str()?;
        Self::ALL.into_iter().find(|failure| failure.as_str() == name)
    }

    /// What a finding means in these words.
    pub(super) fn from_finding(finding: Finding) -> Option<Self> {
        match finding {
            Finding::Quota => Some(Self::Quota),
            Finding::ResumeUnknown => Some(Self::ConversationLost),
            Finding::Login | Finding::UsageError | Finding::Limit(_) => None,
        }
    }

    /// What a provider's HTTP status means, for what no finding stands for.
    pub(super) fn from_status(status: i64) -> Option<Self> {
        match status {
            402 | 429 => Some(Self::Quota),
            403 => Some(Self::PermissionDenied),
            404 => Some(Self::ModelUnavailable),
            _ => None,
        }
    }

    /// What the words of a failure prove.
    pub(super) fn in_text(text: &str) -> Option<Self> {
        let lower = text.to_lowercase();
        let says = |phrase: &str| lower.contains(phrase);
        if says("model") && ["does not exist", "is not found", "may not exist"].into_iter().any(says) {
            return Some(ModelUnavailable);
        }
        PHRASES.iter().find(|(phrase, _)| says(phrase)).map(|(_, failure)| *failure)
    }
}

use Failure::{AuthTimeout, ContentFiltered, ModelUnavailable, PermissionDenied, StreamError};

/// Phrases that the CLIs print, in lower case; the first that occurs decides.
const PHRASES: &[(&str, Failure)] = &[
    ("authentication timed out", AuthTimeout),
    ("authentication timeout", AuthTimeout),
    ("model_not_found", ModelUnavailable),
    ("modelnotfounderror", ModelUnavailable),
    ("model is not supported", ModelUnavailable),
    ("blocked due to safety", ContentFiltered),
    ("content_filter", ContentFiltered),
    ("violate our usage policy", ContentFiltered),
    ("prohibited_content", ContentFiltered),
    ("stream disconnected", StreamError),
    ("stream closed before", StreamError),
    ("stream error", StreamError),
    ("api error: terminated", StreamError),
    ("connection closed mid-response", StreamError),
    ("permission_denied", PermissionDenied),
    ("403 forbidden", PermissionDenied),
    ("error: 403", PermissionDenied),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::agents::Outcome;
    use serde_json::json;

    #[test]
    fn each_has_a_name_that_is_found_again() {
        for failure in Failure::ALL {
            let verdict = Verdict {
                outcome: Outcome::WorkerError,
                answer: String::new(),
                detail: None,
                native_id: None,
                usage: Default::default(),
                cli_version: None,
                meta: json!({ Failure::KEY: failure.as_str() }),
            };
            assert_eq!(Failure::of(&verdict), Some(failure));
            assert!(failure.as_str().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
        }
    }

    #[test]
    fn words_prove_a_cause_or_nothing() {
        assert_eq!(Failure::in_text("[API Error: terminated]"), Some(StreamError));
        for text in ["The model `nope` does not exist", "[API Error: models/nope is not found]"] {
            assert_eq!(Failure::in_text(text), Some(ModelUnavailable), "{text}");
        }
        assert_eq!(Failure::in_text("the file does not exist"), None);
    }
}
