//! Errors as every room raises them and every front door shows them.
//!
//! A room has its own `thiserror` enum; each variant points at a [`CodeDoc`], so an error without a
//! documented code cannot be written. Front doors only ever see [`Error`], which is rendered in one
//! place: a line on stderr for people, `{code, message, hint, retryable}` for programs.

use std::fmt;

use serde_json::{Value, json};

/// Process exit codes. They tell the state of the machine, not the mood of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// Something nobody foresaw, or a worker that ran and failed.
    Unexpected = 1,
    /// Refused, or not ready; nothing was changed.
    Refused = 2,
    /// A check ran and did not hold.
    VerificationFailed = 3,
    /// A step was left half done; run the recovery command.
    RecoveryNeeded = 4,
    /// The command line was wrong.
    Usage = 64,
    /// Busy or in maintenance; the same command may work later.
    RetryLater = 75,
}

/// What `agent-bridge explain CODE` prints, and what every error carries.
#[derive(Debug, PartialEq, Eq)]
pub struct CodeDoc {
    /// Stable UPPER_SNAKE name.
    pub code: &'static str,
    /// Exit code of a command that ends with this error.
    pub exit: Exit,
    /// Whether the same request may succeed later without any change.
    pub retryable: bool,
    /// Why this happens, in one or two sentences.
    pub cause: &'static str,
    /// What to do next; the default hint.
    pub remedy: &'static str,
}

/// Declares documented codes and the room's `CODES` list in one go, so that none can be forgotten.
///
/// ```ignore
/// codes! {
///     CONFIG_NOT_FOUND { exit: Refused, retryable: false,
///         cause: "No config file was found.", remedy: "Run `agent-bridge config init`." }
/// }
/// ```
#[macro_export]
macro_rules! codes {
    ($($name:ident { exit: $exit:ident, retryable: $retryable:literal, cause: $cause:literal, remedy: $remedy:literal $(,)? })*) => {
        $(
            #[doc = $cause]
            pub static $name: $crate::error::CodeDoc = $crate::error::CodeDoc {
                code: stringify!($name),
                exit: $crate::error::Exit::$exit,
                retryable: $retryable,
                cause: $cause,
                remedy: $remedy,
            };
        )*
        /// Every code of this room.
        pub static CODES: &[&$crate::error::CodeDoc] = &[$(&$name),*];
    };
}

/// An error of one room.
pub trait Coded: std::error::Error {
    /// The documented code of this error.
    fn doc(&self) -> &'static CodeDoc;
    /// The next step; override it where the error knows a more exact command.
    fn hint(&self) -> String {
        self.doc().remedy.to_owned()
    }
    /// Facts for programs, such as the id of the turn that is in the way.
    fn details(&self) -> Option<Value> {
        None
    }
}

/// An error as the front doors see it.
#[derive(Debug, Clone)]
pub struct Error {
    doc: &'static CodeDoc,
    message: String,
    hint: String,
    details: Option<Box<Value>>,
}

impl<E: Coded> From<E> for Error {
    fn from(error: E) -> Self {
        Self {
            doc: error.doc(),
            message: error.to_string(),
            hint: error.hint(),
            details: error.details().map(Box::new),
        }
    }
}

impl Error {
    /// An error straight from a documented code, for front doors that have no room enum of their own.
    pub fn new(doc: &'static CodeDoc, message: impl Into<String>) -> Self {
        Self { doc, message: message.into(), hint: doc.remedy.to_owned(), details: None }
    }

    /// Replaces the hint by a more exact next step.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Attaches machine-readable facts (for instance the id of the turn that holds a session).
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// The documented code.
    pub fn doc(&self) -> &'static CodeDoc {
        self.doc
    }

    /// Stable name of the code.
    pub fn code(&self) -> &'static str {
        self.doc.code
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do next.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// Exit code of a command that ends with this error.
    pub fn exit(&self) -> Exit {
        self.doc.exit
    }

    /// Whether the same request may succeed later without any change.
    pub fn retryable(&self) -> bool {
        self.doc.retryable
    }

    /// `{code, message, hint, retryable[, details]}`.
    pub fn to_json(&self) -> Value {
        let mut value = json!({
            "code": self.doc.code,
            "message": self.message,
            "hint": self.hint,
            "retryable": self.doc.retryable,
        });
        if let Some(details) = &self.details {
            value["details"] = details.as_ref().clone();
        }
        value
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doc.code, self.message)
    }
}

/// Shorthand used at the edges.
pub type Result<T, E = Error> = std::result::Result<T, E>;

// What the front doors themselves refuse.
codes! {
    INVALID_ARGUMENT { exit: Usage, retryable: false,
        cause: "An argument of a tool or a command is missing, unknown, or of the wrong type or range.",
        remedy: "The message names the argument; compare it with the tool's input schema or the command's --help." }
    UNKNOWN_TOOL { exit: Usage, retryable: false,
        cause: "No tool of that name is offered; it may belong to a tool group that is switched off.",
        remedy: "Call tools/list to see the tools; `toolsets` in the config file selects the groups." }
    INTERNAL_ERROR { exit: Unexpected, retryable: true,
        cause: "A defect in agent-bridge: a request handler panicked.",
        remedy: "Try again; if it repeats, report it with the output of `agent-bridge doctor --json`." }
    SERVER_BUSY { exit: RetryLater, retryable: true,
        cause: "Too many calls are waiting on this connection at once.",
        remedy: "Wait for some of them to finish, then call again." }
}
