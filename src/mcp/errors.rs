//! What the front door itself refuses.

crate::codes! {
    INVALID_ARGUMENT { exit: Usage, retryable: false,
        cause: "A tool argument is missing, unknown, or of the wrong type or range.",
        remedy: "Compare the arguments with the tool's input schema; the message names the argument." }
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
