//! The words a worker is sent: the task, what bounds it, and what it is to hand in. What a caller wrote stands in
//! blocks that end with a word made for this run, so no text can pretend to be another block.

use std::fmt::Write as _;

/// What a run is about, as the caller put it.
#[derive(Clone, Debug, Default)]
pub struct Contract<'a> {
    /// The task.
    pub task: &'a str,
    /// Steps, at most eight.
    pub plan: &'a [String],
    /// When it is done.
    pub criteria: &'a [String],
    /// What must be kept: fixed, of the profile, of the call.
    pub constraints: &'a [String],
    /// A word that no caller could know.
    pub nonce: &'a str,
    /// The worker can hand the report in with a tool.
    pub submit: bool,
}

const ROLE: &str = "You are the implementer. A reviewer gave you one task in this folder and reads only your report and the \
    changes that the repository shows. Work on your own, ask nobody, keep to the task, and leave nothing half done.";

/// The whole prompt of a first run.
pub fn execute(contract: &Contract<'_>) -> String {
    let mut text = format!("{ROLE}\n\n");
    block(&mut text, "task", contract.nonce, contract.task);
    list(&mut text, "plan", contract.nonce, contract.plan);
    list(&mut text, "acceptance criteria", contract.nonce, contract.criteria);
    list(&mut text, "constraints", contract.nonce, contract.constraints);
    text.push_str(&report(contract.submit));
    text
}

/// The prompt of a correction: the feedback, which stands in the place of the task, and what is new beside it. The
/// conversation has the rest.
pub fn correct(contract: &Contract<'_>) -> String {
    let mut text = "The reviewer looked at your changes and wants this corrected:\n\n".to_owned();
    block(&mut text, "feedback", contract.nonce, contract.task);
    list(&mut text, "plan", contract.nonce, contract.plan);
    list(&mut text, "acceptance criteria", contract.nonce, contract.criteria);
    list(&mut text, "constraints", contract.nonce, contract.constraints);
    text.push_str(&report(contract.submit));
    text
}

fn block(text: &mut String, name: &str, nonce: &str, content: &str) {
    let _ = writeln!(text, "<<<{name} {nonce}\n{}\n{name} {nonce}>>>\n", content.trim());
}

fn list(text: &mut String, name: &str, nonce: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let numbered: Vec<String> =
        items.iter().enumerate().map(|(at, item)| format!("{}. {}", at + 1, item.trim())).collect();
    block(text, name, nonce, &numbered.join("\n"));
}

fn report(submit: bool) -> String {
    let form = "{\"summary\": \"what was done, for a reviewer\", \"outcome\": \"done\" | \"partial\" | \"blocked\", \
        \"files\": [{\"path\": \"…\", \"change\": \"added\" | \"modified\" | \"deleted\" | \"renamed\", \"note\": \"…\"}], \
        \"tests\": {\"passed\": 0, \"failed\": 0, \"not_run\": 0, \"commands\": []}, \
        \"criteria\": [{\"text\": \"…\", \"met\": true, \"evidence\": \"…\"}], \"risks\": [], \"open_questions\": []}";
    if submit {
        return format!(
            "When you are done, hand in the report: call the tool submit_report once. If there is no such tool, end \
             your answer with the report as one JSON object of this form, with nothing after it:\n{form}\n"
        );
    }
    format!(
        "When you are done, end your answer with the report as one JSON object of this form, with nothing after it:\n{form}\n"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_parts_stand_in_their_order() {
        let lists = ["a".to_owned(), "b".to_owned()];
        let contract = Contract {
            task: "T",
            plan: &lists,
            criteria: &lists,
            constraints: &lists,
            nonce: "n",
            submit: true,
        };
        let text = execute(&contract);
        let places: Vec<_> = [
            "implementer",
            "<<<task n",
            "<<<plan n",
            "<<<acceptance criteria n",
            "<<<constraints n",
            "submit_report",
        ]
        .iter()
        .map(|part| text.find(part))
        .collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}\n{text}");
        assert!(text.contains("1. a\n2. b"));
        assert!(!execute(&Contract { task: "T", nonce: "n", ..Contract::default() }).contains("<<<plan"));
    }

    proptest! {
        #[test]
        fn no_content_ends_its_block(content in "(>>>|<<<|task|feedback|\\n| |x){0,40}") {
            let text = correct(&Contract { task: &content, nonce: "4f1c", ..Contract::default() });
            prop_assert_eq!(text.matches("feedback 4f1c>>>").count(), 1);
            prop_assert_eq!(text.matches("<<<feedback 4f1c").count(), 1);
        }
    }
}
