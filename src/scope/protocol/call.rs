//! `tools/call`: only the run's own tools, only with arguments that fit, only so many, and each written down.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::{Map, Value};

use super::{Era, Fault, INVALID_PARAMS, METHOD_NOT_FOUND, Params, Request};
use crate::scope::arguments::{self, Misfit};
use crate::scope::endpoint::{Made, REVOKED, Shared, locked};
use crate::scope::{Answer, Call, Cancel, Outcome};

/// Longest part of a tool's name that is shown back and written down.
const SHOWN: usize = 64;

impl Request<'_> {
    pub(super) fn call(&self, params: &Params<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let shared = self.shared;
        let raw = params.arguments.map(|arguments| arguments.get());
        let Some(name) = params.name.as_deref() else {
            self.record(None, Outcome::Refused, "no_tool_named", raw);
            return Err(Fault::new(self.bad_request(), INVALID_PARAMS, "`params.name` is missing"));
        };
        let Some(listed) = shared.options.tools.get(name) else {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
            // The worker is told the same either way.
            let reason = if shared.options.tools.is_hidden(name) { "forbidden_tool" } else { "unknown_tool" };
            let message = format!("tool '{shown}' is not available to this agent");
            self.record(Some(shown.into()), Outcome::Refused, reason, raw);
            let code = if self.era == Era::Modern { INVALID_PARAMS } else { METHOD_NOT_FOUND };
            return Err(Fault::new(200, code, message).with_reason("not_in_scope"));
        };
        let tool = || Some(Arc::clone(&listed.name));
        let refused = |code, reason, message: String| {
            self.record(tool(), Outcome::Refused, reason, raw);
            Err(Fault::new(200, code, message).with_reason(reason))
        };
        let arguments: Map<String, Value> = match raw.map(serde_json::from_str).transpose() {
            Ok(arguments) => arguments.unwrap_or_default(),
            Err(_) => {
                let message =
                    "`arguments` has to be a JSON object, not too deep, with numbers that can be read";
                return refused(INVALID_PARAMS, "invalid_arguments", message.into());
            }
        };
        match arguments::check(&listed.spec().schema, &arguments) {
            Ok(()) => {}
            Err(Misfit::Foreign(message)) => return refused(INVALID_PARAMS, "foreign_scope", message),
            Err(Misfit::Schema(message)) => return refused(INVALID_PARAMS, "invalid_arguments", message),
        }
        let unrecorded = shared.log_error.get().is_some();
        if unrecorded {
            return refused(
                -32603,
                "unrecorded",
                "calls cannot be recorded any more, so none is served".into(),
            );
        }
        let cancel = Arc::new(Cancel::with_peer((self.era == Era::Modern).then(|| Arc::clone(self.peer))));
        let running = match Running::begin(shared, self.id, &cancel) {
            Ok(running) => running,
            Err((reason, text)) => {
                self.record(tool(), Outcome::Refused, reason, raw);
                self.write(&Answer::error(text), out);
                return Ok(());
            }
        };
        let call = Call {
            bound: &shared.options.bound,
            arguments: &arguments,
            cancel: &cancel,
            deadline: Instant::now() + shared.options.limits.call,
        };
        let answer = catch_unwind(AssertUnwindSafe(|| listed.tool.call(&call)));
        drop(running);
        let (outcome, reason) = match &answer {
            Err(_) => (Outcome::Failed, "panic"),
            Ok(answer) if answer.is_error && cancel.reason().is_some() => (Outcome::Failed, "cancelled"),
            Ok(answer) if answer.is_error => (Outcome::Failed, "tool_error"),
            Ok(_) => (Outcome::Allowed, "ok"),
        };
        self.record(tool(), outcome, reason, raw);
        let answer =
            answer.unwrap_or_else(|_| Answer::error("the tool broke down; this is a defect of agent-bridge"));
        self.write(&answer, out);
        Ok(())
    }

    fn bad_request(&self) -> u16 {
        if self.era == Era::Modern { 400 } else { 200 }
    }

    fn record(
        &self,
        tool: Option<Arc<str>>,
        outcome: Outcome,
        reason: &'static str,
        arguments: Option<&str>,
    ) {
        self.shared.record(Made { tool, outcome, reason, begun: self.begun, arguments });
    }

    fn write(&self, answer: &Answer, out: &mut Vec<u8>) {
        let limit = self.shared.options.limits.output;
        let shortened;
        let text = if answer.text.len() > limit {
            let kept = &answer.text[..answer.text.floor_char_boundary(limit)];
            shortened = format!("{kept}\n[cut: {} of {} bytes shown]", kept.len(), answer.text.len());
            &shortened
        } else {
            &answer.text
        };
        let text = serde_json::to_string(text).unwrap_or_default();
        let end = if answer.is_error { r#"}],"isError":true"# } else { r#"}],"isError":false"# };
        self.result(out, &[r#"{"content":[{"type":"text","text":"#, &text, end], "");
    }
}

/// A call that counts as running until it is dropped.
struct Running<'a> {
    shared: &'a Shared,
    cancel: &'a Arc<Cancel>,
}

impl<'a> Running<'a> {
    fn begin(
        shared: &'a Shared,
        id: &str,
        cancel: &'a Arc<Cancel>,
    ) -> Result<Self, (&'static str, &'static str)> {
        let limits = &shared.options.limits;
        if shared.calls_running.fetch_add(1, Ordering::SeqCst) >= limits.calls_at_once {
            shared.calls_running.fetch_sub(1, Ordering::SeqCst);
            return Err(("busy", "too many calls are running; wait for one of them, then call again"));
        }
        locked(&shared.calls).push((id.to_owned(), Arc::clone(cancel)));
        let this = Self { shared, cancel };
        if shared.calls_begun.fetch_add(1, Ordering::SeqCst) >= limits.calls {
            return Err(("budget", "this run has used up its calls; finish with what you have"));
        }
        // Whoever closes looks at the calls after saying so.
        if shared.is_closed() {
            return Err(("revoked", REVOKED));
        }
        Ok(this)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        locked(&self.shared.calls).retain(|(_, call)| !Arc::ptr_eq(call, self.cancel));
        self.shared.calls_running.fetch_sub(1, Ordering::SeqCst);
    }
}
