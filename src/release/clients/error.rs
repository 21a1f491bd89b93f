//! Why a client was not configured, by stable codes.

use std::path::PathBuf;

use crate::error::{CodeDoc, Coded};

/// Why a client's file was not changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientsError {
    /// A client that is not in the table.
    #[error("there is no client {id:?}; there are: {known}", known = super::table::ids().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// As given.
        id: String,
    },
    /// The file is there and cannot be used.
    #[error("{path} was left as it is: {why}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Links that lead nowhere, or to where nothing can be written.
    #[error("{path} was left as it is: {why}", path = .path.display())]
    Link {
        /// The file as the client names it.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// More than one entry of ours.
    #[error("{path} has more than one entry for agent-bridge: {names}", path = .path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// Their names.
        names: String,
    },
    /// A shape that is not edited.
    #[error("{path} was left as it is: {why}", path = .path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is not understood.
        why: String,
        /// What to paste.
        snippet: String,
    },
    /// Some of the wanted clients cannot be configured.
    #[error("nothing was written, because {count} of the clients cannot be configured: {why}")]
    Blocked {
        /// How many.
        count: usize,
        /// The first reason.
        why: String,
        /// Its next step.
        hint: String,
    },
    /// A plan that does not fit what is there now.
    #[error("the plan is out of date: {why}")]
    Stale {
        /// Which file, which digest, what changed.
        why: String,
        /// Whether `--rebase` would do.
        rebase: bool,
    },
    /// A plan file that is none, or of another installation.
    #[error("{path} is no plan for this installation: {why}", path = .path.display())]
    PlanInvalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The transaction changed no client.
    #[error("{txid} cannot be taken back: {why}")]
    NothingToRestore {
        /// As given.
        txid: String,
        /// What was found.
        why: String,
    },
    /// Put back, but not everywhere.
    #[error("{path} was changed since, and our entry cannot be taken out of it alone: {why}", path = .path.display())]
    Conflict {
        /// The file.
        path: PathBuf,
        /// What is in the way.
        why: String,
    },
    /// Nothing that clients could start.
    #[error("{path} is not there, so clients would have nothing to start", path = .path.display())]
    NoLauncher {
        /// The launcher.
        path: PathBuf,
    },
}

crate::codes! {
    CLIENT_UNKNOWN { exit: Usage, retryable: false,
        cause: "No client of that id can be configured.",
        remedy: "The message names the ids there are; `agent-bridge configure-clients --help` tells more." }
    CLIENT_FILE_UNREADABLE { exit: Refused, retryable: false,
        cause: "A client's config file is there, but cannot be read or is not what the client reads. It is never taken for absent.",
        remedy: "Mend or move away the file, then run the same command again." }
    CLIENT_LINK_UNUSABLE { exit: Refused, retryable: false,
        cause: "A client's config file is read-only, or is a link that leads nowhere, in a circle, or to where nothing may be written.",
        remedy: "Make the file and its folder writable or mend the link; or change the file with the program that owns it (for instance home-manager)." }
    CLIENT_AMBIGUOUS { exit: Refused, retryable: false,
        cause: "A client's config file has more than one entry for agent-bridge, so it cannot be told which one counts.",
        remedy: "Delete all but one of the entries, then run the same command again." }
    CLIENT_SHAPE_UNSUPPORTED { exit: Refused, retryable: false,
        cause: "Our entry cannot be put into this file without a change to anything else in it.",
        remedy: "Paste the entry that the plan shows, then run `agent-bridge configure-clients` again: it must find nothing to do." }
    CLIENTS_BLOCKED { exit: Refused, retryable: false,
        cause: "At least one of the wanted clients cannot be configured, so none was.",
        remedy: "Mend what the message names, or leave that client out by naming the others with `--client`." }
    CLIENTS_PLAN_STALE { exit: Refused, retryable: false,
        cause: "A client's file is not what it was when the plan was made.",
        remedy: "Make a new plan, or pass `--rebase` if only other programs' entries changed." }
    CLIENTS_PLAN_INVALID { exit: Refused, retryable: false,
        cause: "The plan file is damaged, of another version or of another installation.",
        remedy: "Make a new one with `agent-bridge configure-clients --plan-out FILE`." }
    CLIENTS_NOTHING_TO_RESTORE { exit: Refused, retryable: false,
        cause: "The transaction does not exist, was undone, or changed no client's file.",
        remedy: "List the transactions with `agent-bridge history`." }
    CLIENT_CONFLICT { exit: Refused, retryable: false,
        cause: "A client's file was changed after us, our own entry included. A later edit is never overwritten.",
        remedy: "Look at the entry. `agent-bridge configure-clients --remove --client ID` takes it out whatever it says; `agent-bridge configure-clients --client ID` shows what would be written over it." }
    CLIENTS_NO_LAUNCHER { exit: Refused, retryable: false,
        cause: "The installation has no launcher yet, so an entry would lead to a program that is not there.",
        remedy: "Install a release with `agent-bridge install-release BUNDLE`, or name the installation with `--root DIR`." }
}

impl Coded for ClientsError {
    fn doc(&self) -> &'static CodeDoc {
        match self {
            Self::Unknown { .. } => &CLIENT_UNKNOWN,
            Self::Unreadable { .. } => &CLIENT_FILE_UNREADABLE,
            Self::Link { .. } => &CLIENT_LINK_UNUSABLE,
            Self::Ambiguous { .. } => &CLIENT_AMBIGUOUS,
            Self::Unsupported { .. } => &CLIENT_SHAPE_UNSUPPORTED,
            Self::Blocked { .. } => &CLIENTS_BLOCKED,
            Self::Stale { .. } => &CLIENTS_PLAN_STALE,
            Self::PlanInvalid { .. } => &CLIENTS_PLAN_INVALID,
            Self::NothingToRestore { .. } => &CLIENTS_NOTHING_TO_RESTORE,
            Self::Conflict { .. } => &CLIENT_CONFLICT,
            Self::NoLauncher { .. } => &CLIENTS_NO_LAUNCHER,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Blocked { hint, .. } => format!("{hint} Or name the other clients with `--client`."),
            Self::Stale { rebase: true, .. } => {
                "Only other entries of the file changed: pass `--rebase`, or make a new plan.".into()
            }
            Self::Stale { rebase: false, .. } => "Make a new plan and look at it.".into(),
            other => other.doc().remedy.to_owned(),
        }
    }
}
