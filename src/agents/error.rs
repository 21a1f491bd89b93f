//! Why a turn cannot be given to an agent.

use crate::codes;
use crate::error::{CodeDoc, Coded};
use crate::policy::AgentId;

codes! {
    AGENT_NOT_AVAILABLE { exit: Refused, retryable: false,
        cause: "This build has no adapter for the agent that was named.",
        remedy: "Run `agent-bridge doctor` to see which agents this build can use, and name one of them." }
    AGENT_EXTRA_ARG_REFUSED { exit: Refused, retryable: false,
        cause: "An entry of `extraArgs` would change what the agent may do, where it works, or how its output is read.",
        remedy: "Remove the argument from `extraArgs`; use the settings `sandbox`, `cwd`, `model` and `useUserConfig` instead." }
    AGENT_MODEL_REFUSED { exit: Refused, retryable: false,
        cause: "The model name does not look like one: a letter or digit first, then letters, digits and `. _ : / @ [ ] -`, at most 128 characters.",
        remedy: "Give the model name exactly as the agent's own documentation writes it." }
    AGENT_RESUME_ID_REFUSED { exit: Refused, retryable: false,
        cause: "The provider session id is not a UUID, so the agent might resume another conversation or start a new one.",
        remedy: "Start a new conversation, or continue the session without a native resume." }
    AGENT_PATH_NOT_TEXT { exit: Refused, retryable: false,
        cause: "A folder or file name is not valid Unicode, so it cannot be passed to the agent exactly.",
        remedy: "Use a folder or file whose name is valid Unicode." }
    AGENT_VERSION_UNSUPPORTED { exit: Refused, retryable: false,
        cause: "The installed version of the agent's CLI is older than the first one that this program can work with.",
        remedy: "Update the agent's CLI, then try again; a restart is not needed." }
    AGENT_PROMPT_TOO_LONG { exit: Refused, retryable: false,
        cause: "The installed version of the agent's CLI takes its prompt as an argument, and this one is too long for that.",
        remedy: "Update the agent's CLI, or send a shorter prompt that names a file to read." }
    AGENT_PROMPT_IS_COMMAND { exit: Refused, retryable: false,
        cause: "The prompt begins with a word that the agent's CLI would take for a command of its own, and in a read-only run that cannot be switched off.",
        remedy: "Begin the prompt with another word." }
    AGENT_ENDPOINT_UNSUPPORTED { exit: Refused, retryable: false,
        cause: "Tools were asked for by name, or an endpoint was to be attached, for an agent that cannot be given one.",
        remedy: "Leave the tools out, or name another agent." }
    AGENT_ENDPOINT_NEEDS_ISOLATION { exit: Refused, retryable: false,
        cause: "The agent would load the MCP servers of its user's config beside the endpoint (`useUserConfig`), and they cannot be kept out.",
        remedy: "Set `useUserConfig` to false for the agent, or `scope.tools` to [] in its section of the config." }
}

/// Why a turn cannot be given to an agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// No adapter.
    #[error("{0} is not available in this build")]
    NotAvailable(AgentId),
    /// An extra argument that may not be passed.
    #[error("extraArgs of {agent}: `{flag}` is refused because {reason}")]
    ExtraArgRefused {
        /// The agent.
        agent: AgentId,
        /// The flag, without any value.
        flag: String,
        /// What it would change.
        reason: &'static str,
    },
    /// A model name outside the grammar.
    #[error("{0:?} is not an acceptable model name")]
    ModelRefused(String),
    /// A provider session id of the wrong shape.
    #[error("{agent} cannot resume {id:?}: that is not a session id of this agent")]
    ResumeIdRefused {
        /// The agent.
        agent: AgentId,
        /// The id, clipped.
        id: String,
    },
    /// Too old.
    #[error("{agent} {version} is too old; {oldest} or newer is needed")]
    VersionUnsupported {
        /// The agent.
        agent: AgentId,
        /// What is installed.
        version: String,
        /// The first that can be used.
        oldest: String,
    },
    /// A prompt that does not fit into an argument.
    #[error("the prompt has {bytes} bytes; this version of {agent} takes {limit}")]
    PromptTooLong {
        /// The agent.
        agent: AgentId,
        /// Length of the prompt.
        bytes: usize,
        /// The longest.
        limit: usize,
    },
    /// A prompt that would be a command.
    #[error("{agent} would take {word:?} at the beginning of the prompt for a command")]
    PromptIsCommand {
        /// The agent.
        agent: AgentId,
        /// The word, clipped.
        word: String,
    },
    /// A path that has no exact text form.
    #[error("{0} is not valid Unicode")]
    PathNotText(String),
    /// It cannot be given an endpoint.
    #[error("{0} cannot be given an endpoint")]
    EndpointUnsupported(AgentId),
    /// It would have other servers too.
    #[error(
        "{0} with `useUserConfig` cannot be given an endpoint: its user's MCP servers would be there too"
    )]
    EndpointNeedsIsolation(AgentId),
}

impl Coded for AgentError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::NotAvailable(_) => &AGENT_NOT_AVAILABLE,
            Self::ExtraArgRefused { .. } => &AGENT_EXTRA_ARG_REFUSED,
            Self::ModelRefused(_) => &AGENT_MODEL_REFUSED,
            Self::ResumeIdRefused { .. } => &AGENT_RESUME_ID_REFUSED,
            Self::VersionUnsupported { .. } => &AGENT_VERSION_UNSUPPORTED,
            Self::PromptTooLong { .. } => &AGENT_PROMPT_TOO_LONG,
            Self::PromptIsCommand { .. } => &AGENT_PROMPT_IS_COMMAND,
            Self::PathNotText(_) => &AGENT_PATH_NOT_TEXT,
            Self::EndpointUnsupported(_) => &AGENT_ENDPOINT_UNSUPPORTED,
            Self::EndpointNeedsIsolation(_) => &AGENT_ENDPOINT_NEEDS_ISOLATION,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::ExtraArgRefused { agent, flag, .. } => {
                format!("Remove `{flag}` from agents.{agent}.extraArgs. {}", AGENT_EXTRA_ARG_REFUSED.remedy)
            }
            _ => self.doc().remedy.to_owned(),
        }
    }
}
