//! How to ask a CLI whether its login works, where a run would wait for a person without one.

use std::path::Path;

use super::{AgentError, Failure, Launch, RunEnd};

/// What a CLI said about its login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginAnswer {
    /// It works.
    Works,
    /// The answer is about something else, or there is none.
    Unclear,
    /// It does not, and why. The line may hold secrets.
    Fails(Failure, String),
}

/// A short start of a CLI that does no work.
pub trait LoginQuestion: Sync {
    /// Its arguments, and what it finds in the private folder that is made for it.
    ///
    /// # Errors
    /// As of a launch.
    fn launch(&self, version: Option<&str>, user_config: bool, folder: &Path) -> Result<Launch, AgentError>;

    /// Whether a line of either stream says that it waits for a person to log in.
    fn is_prompt(&self, line: &str) -> bool;

    /// What its end says. `in_time`: it was not we who ended it.
    fn answer(&self, end: &RunEnd<'_>, stdout: &str, in_time: bool) -> LoginAnswer;
}
