//! A worker's question put to the person at the host, where the host can do that.
//!
//! Each question is put once a connection, for as long as its worker waits, and anybody else may still answer it. Only a
//! filled-in form is an answer: hosts decline by themselves when nobody is there, so a refusal of the form says nothing
//! about the question, which then goes to whoever called.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    ServerRequest,
};
use rmcp::service::PeerRequestOptions;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::bridge::Bridge;
use crate::bridge::questions::{GivenAnswer, MAX_ANSWER, Seen};
use crate::policy::AgentId;
use crate::process::strip_terminal;
use crate::store::{QuestionKind, QuestionRow, QuestionState};

/// How often a question that is with a person is looked at: somebody else may have answered.
const LOOK: Duration = Duration::from_millis(250);
/// Beyond its wait a question is not with anybody.
const LATE: Duration = Duration::from_secs(5);

/// The person at the host of this connection.
#[derive(Debug, Default)]
pub struct Person {
    /// Questions that were put.
    asked: Seen,
    /// Those that did not come back with an answer.
    unanswered: Seen,
    came_back: Notify,
}

impl Person {
    /// Whether a question is with the person right now.
    pub fn has(&self, id: &str) -> bool {
        self.asked.has(id) && !self.unanswered.has(id)
    }

    /// Returns when a question comes back without an answer. Begin to wait before you look.
    pub fn came_back(&self) -> tokio::sync::futures::Notified<'_> {
        self.came_back.notified()
    }

    /// Puts each question of the turn that was not put before, if the host can ask a person.
    pub fn ask(
        self: &Arc<Self>,
        bridge: &Bridge,
        peer: &Peer<RoleServer>,
        requester: &str,
        agent: AgentId,
        questions: &[QuestionRow],
    ) {
        if !takes_forms(peer) {
            return;
        }
        for question in questions {
            if !self.asked.add(&question.id) {
                continue;
            }
            let (person, bridge, peer) = (Arc::clone(self), bridge.clone(), peer.clone());
            let (by, question) = (format!("user of {requester}"), question.clone());
            tokio::spawn(async move {
                let answered = match put(&bridge, &peer, agent, &question).await {
                    // Refused: somebody else was first, or the worker did not wait any more.
                    Some(answer) => bridge.answer(&question.id, answer, &by).await.is_ok(),
                    None => false,
                };
                if !answered {
                    person.unanswered.add(&question.id);
                    person.came_back.notify_waiters();
                }
            });
        }
    }
}

/// Whether the host said in the handshake that it shows forms. In the revision without a handshake a server asks nothing.
fn takes_forms(peer: &Peer<RoleServer>) -> bool {
    let info = peer.peer_info();
    let elicitation = info.as_ref().and_then(|info| info.capabilities.elicitation.as_ref());
    // Neither mode named means forms.
    elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

/// Puts a question. `None`: it came back without an answer, or is settled.
async fn put(
    bridge: &Bridge,
    peer: &Peer<RoleServer>,
    agent: AgentId,
    question: &QuestionRow,
) -> Option<GivenAnswer> {
    let left = question.wait_until.saturating_sub(bridge.context().clock.now_ms());
    let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message(agent, question, left),
        requested_schema: form(question.kind)?,
    };
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
    let mut sent = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await.ok()?;
    let response = tokio::select! {
        response = &mut sent.rx => response.ok()?.ok()?,
        () = settled(bridge, &question.id, left) => {
            let _ = sent.cancel(Some("the question is settled".into())).await;
            return None;
        }
    };
    match response {
        ClientResult::ElicitResult(result) => read(question.kind, &result),
        _ => None,
    }
}

/// Returns when nobody needs to answer any more.
async fn settled(bridge: &Bridge, id: &str, left: Duration) {
    let end = tokio::time::Instant::now() + left + LATE;
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(LOOK).await;
        let id = id.to_owned();
        let row = bridge.with_store(move |store| Ok(store.question(&id)?)).await;
        if row.is_ok_and(|row| row.state != QuestionState::Open) {
            return;
        }
    }
}

/// Whole: whoever approves has to see what.
fn message(agent: AgentId, question: &QuestionRow, left: Duration) -> String {
    let (text, seconds) = (strip_terminal(&question.text), left.as_secs());
    match &question.tool {
        Some(tool) => format!(
            "The {agent} worker asks for permission to use {}, within {seconds} s:\n\n{text}",
            strip_terminal(tool)
        ),
        None => format!("The {agent} worker asks, and waits {seconds} s:\n\n{text}"),
    }
}

fn form(kind: QuestionKind) -> Option<ElicitationSchema> {
    let text = |title: &str| json!({ "type": "string", "title": title, "maxLength": MAX_ANSWER });
    let schema = match kind {
        QuestionKind::Question => {
            json!({ "type": "object", "properties": { "answer": text("Answer") }, "required": ["answer"] })
        }
        QuestionKind::Approval => {
            let decision = json!({ "type": "string", "title": "Decision", "enum": ["deny", "approve"] });
            json!({ "type": "object", "properties": { "decision": decision, "reason": text("Reason") },
                "required": ["decision"] })
        }
    };
    schema.as_object().and_then(|schema| ElicitationSchema::from_json_schema(schema.clone()).ok())
}

/// What a form says, if it was filled in.
fn read(kind: QuestionKind, result: &ElicitResult) -> Option<GivenAnswer> {
    if result.action != ElicitationAction::Accept {
        return None;
    }
    let field = |name: &str| result.content.as_ref()?.get(name).and_then(Value::as_str).map(str::to_owned);
    match kind {
        QuestionKind::Question => Some(GivenAnswer { approved: None, text: Some(field("answer")?) }),
        QuestionKind::Approval => {
            let approved = match field("decision")?.as_str() {
                "approve" => true,
                "deny" => false,
                _ => return None,
            };
            Some(GivenAnswer { approved: Some(approved), text: field("reason") })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_form_that_was_filled_in_is_an_answer() {
        let result = |action, content| ElicitResult::new(action).with_content(content);
        let approval = |content| read(QuestionKind::Approval, &result(ElicitationAction::Accept, content));
        assert_eq!(
            approval(json!({ "decision": "approve" })),
            Some(GivenAnswer { approved: Some(true), text: None })
        );
        let denied = GivenAnswer { approved: Some(false), text: Some("no".into()) };
        assert_eq!(approval(json!({ "decision": "deny", "reason": "no" })), Some(denied));
        for wrong in [json!({}), json!({ "decision": "yes" }), json!({ "decision": true }), json!([])] {
            assert_eq!(approval(wrong.clone()), None, "{wrong}");
        }
        for action in [ElicitationAction::Decline, ElicitationAction::Cancel] {
            let declined = result(action, json!({ "decision": "approve", "answer": "x" }));
            assert_eq!(read(QuestionKind::Approval, &declined), None);
            assert_eq!(read(QuestionKind::Question, &declined), None);
        }
        assert!(form(QuestionKind::Question).is_some() && form(QuestionKind::Approval).is_some());
    }
}
