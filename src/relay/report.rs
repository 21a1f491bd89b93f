//! The worker's own report: its schema, where it may come from, and what makes it valid. Nothing in it is a fact:
//! it is what the worker claims.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agents::redaction;

/// Longest summary that is kept, in characters.
const SUMMARY_CHARS: usize = 2000;
/// Files that are kept of a report.
const FILES: usize = 500;
/// Entries that are kept of each other list.
const ENTRIES: usize = 50;
/// Longest line of a report, in characters.
const LINE_CHARS: usize = 1000;

/// What a worker reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerReport {
    /// What was done, for a reviewer.
    pub summary: String,
    /// Whether the task is done.
    pub outcome: WorkerOutcome,
    /// Files that the worker says it changed.
    #[serde(default)]
    pub files: Vec<ClaimedFile>,
    /// Tests that the worker says it ran.
    #[serde(default)]
    pub tests: ClaimedTests,
    /// The acceptance criteria, as the worker sees them.
    #[serde(default)]
    pub criteria: Vec<Criterion>,
    /// What may go wrong.
    #[serde(default)]
    pub risks: Vec<String>,
    /// What the worker would have asked.
    #[serde(default)]
    pub open_questions: Vec<String>,
}

/// Whether the task is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkerOutcome {
    /// All of it.
    #[default]
    Done,
    /// A part of it.
    Partial,
    /// Nothing could be done.
    Blocked,
}

/// A file that the worker says it changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimedFile {
    /// As the worker wrote it.
    pub path: String,
    /// `added`, `modified`, `deleted` or `renamed`.
    #[serde(default)]
    pub change: String,
    /// Remark.
    #[serde(default)]
    pub note: String,
}

/// Tests that the worker says it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimedTests {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
    /// Not run.
    pub not_run: u64,
    /// How.
    #[serde(default)]
    pub commands: Vec<String>,
}

/// One acceptance criterion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    /// As given.
    pub text: String,
    /// Whether the worker says that it is met.
    pub met: bool,
    /// Why.
    #[serde(default)]
    pub evidence: String,
}

/// The JSON Schema that is handed to workers whose program can be given one. Every property is required and no other
/// is allowed: some providers insist on both.
pub fn schema() -> Value {
    let object = |properties: Value| {
        let required: Vec<String> =
            properties.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
    };
    let text = || json!({ "type": "string" });
    let list = |items: Value| json!({ "type": "array", "items": items });
    let count = || json!({ "type": "integer" });
    object(json!({
        "summary": { "type": "string", "description": "What was done, for a reviewer; at most 2000 characters." },
        "outcome": { "type": "string", "enum": ["done", "partial", "blocked"] },
        "files": list(object(json!({
            "path": text(),
            "change": { "type": "string", "enum": ["added", "modified", "deleted", "renamed"] },
            "note": text(),
        }))),
        "tests": object(json!({ "passed": count(), "failed": count(), "not_run": count(), "commands": list(text()) })),
        "criteria": list(object(json!({ "text": text(), "met": { "type": "boolean" }, "evidence": text() }))),
        "risks": list(text()),
        "open_questions": list(text()),
    }))
}

/// Where a report came from, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportSource {
    /// Handed in through the run's endpoint.
    SubmitReport,
    /// The program's structured output.
    StructuredOutput,
    /// A JSON object in the answer.
    Answer,
}

/// The report of a turn: handed in, or structured output, or the last JSON object of the answer that is one.
pub fn of_turn(meta: &Value, answer: &str) -> Option<(WorkerReport, ReportSource)> {
    let given = |key: &str| valid(meta.get(key)?);
    given("report")
        .map(|report| (report, ReportSource::SubmitReport))
        .or_else(|| given("structuredOutput").map(|report| (report, ReportSource::StructuredOutput)))
        .or_else(|| in_text(answer).map(|report| (report, ReportSource::Answer)))
}

/// A value as a report, bounded; none if it is no valid one. A string is none, whatever it holds.
fn valid(value: &Value) -> Option<WorkerReport> {
    if !value.is_object() {
        return None;
    }
    let report: WorkerReport = serde_json::from_value(value.clone()).ok()?;
    (!report.summary.trim().is_empty()).then(|| bounded(report))
}

/// The last JSON object in a text that is a report; prose, fences and other objects around it do not matter.
fn in_text(text: &str) -> Option<WorkerReport> {
    // A report begins with a brace at the start of a line or of the text; the last that is valid counts.
    let starts = text.match_indices('{').map(|(at, _)| at).filter(|at| {
        let before = &text[..*at];
        before.trim_end_matches([' ', '\t']).is_empty()
            || before.trim_end_matches([' ', '\t']).ends_with('\n')
    });
    let starts: Vec<usize> = starts.collect();
    starts.iter().rev().take(200).find_map(|at| {
        let value = serde_json::Deserializer::from_str(&text[*at..]).into_iter::<Value>().next()?.ok()?;
        valid(&value)
    })
}

fn bounded(mut report: WorkerReport) -> WorkerReport {
    let line = |text: &mut String| {
        if text.chars().count() > LINE_CHARS {
            *text = redaction::clip(text, LINE_CHARS);
        }
        *text = redaction::redact(text);
    };
    if report.summary.chars().count() > SUMMARY_CHARS {
        report.summary = redaction::clip(&report.summary, SUMMARY_CHARS);
    }
    report.summary = redaction::redact(&report.summary);
    report.files.truncate(FILES);
    for file in &mut report.files {
        line(&mut file.path);
        line(&mut file.change);
        line(&mut file.note);
    }
    report.tests.commands.truncate(ENTRIES);
    report.tests.commands.iter_mut().for_each(line);
    report.criteria.truncate(ENTRIES);
    for criterion in &mut report.criteria {
        line(&mut criterion.text);
        line(&mut criterion.evidence);
    }
    report.risks.truncate(ENTRIES);
    report.risks.iter_mut().for_each(line);
    report.open_questions.truncate(ENTRIES);
    report.open_questions.iter_mut().for_each(line);
    report
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn report(summary: &str) -> Value {
        json!({ "summary": summary, "outcome": "done", "files": [], "tests": { "passed": 1, "failed": 0, "not_run": 0, "commands": [] },
            "criteria": [], "risks": [], "open_questions": [] })
    }

    #[test]
    fn the_surest_source_counts() {
        let meta = json!({ "report": report("handed in"), "structuredOutput": report("structured") });
        let (found, source) = of_turn(&meta, &report("text").to_string()).unwrap();
        assert_eq!((found.summary.as_str(), source), ("handed in", ReportSource::SubmitReport));
        let meta = json!({ "structuredOutput": report("structured") });
        assert_eq!(of_turn(&meta, "").unwrap().1, ReportSource::StructuredOutput);
        let text = format!("Done.\n```json\n{}\n```\nBye {{x}}", report("text"));
        assert_eq!(of_turn(&json!({}), &text).unwrap().1, ReportSource::Answer);
    }

    #[test]
    fn what_is_no_report_is_none() {
        for meta in [
            json!({ "structuredOutput": report("a string").to_string() }),
            json!({ "structuredOutput": { "summary": "x", "outcome": "fine" } }),
            json!({ "structuredOutput": { "summary": " ", "outcome": "done" } }),
            json!({ "structuredOutput": { "summary": "x", "outcome": "done", "run_id": "other" } }),
            json!({ "structuredOutput": [report("in a list")] }),
        ] {
            assert_eq!(of_turn(&meta, ""), None, "{meta}");
        }
        assert_eq!(of_turn(&json!({}), "I changed {\"summary\": 1} and more"), None);
    }

    #[test]
    fn the_last_report_of_a_text_counts_and_it_is_bounded() {
        let long = "ä".repeat(5000);
        let text = format!("{}\n{}\n", report("first"), report(&long));
        let (found, _) = of_turn(&json!({}), &text).unwrap();
        assert!(found.summary.chars().count() <= SUMMARY_CHARS + 1);
        assert!(found.summary.starts_with('ä'));
    }

    #[test]
    fn the_schema_and_the_type_agree() {
        let all = WorkerReport {
            summary: "s".into(),
            files: vec![ClaimedFile { path: "a".into(), change: "added".into(), note: String::new() }],
            criteria: vec![Criterion::default()],
            ..WorkerReport::default()
        };
        let written = serde_json::to_value(&all).unwrap();
        let schema = schema();
        fn check(schema: &Value, value: &Value) {
            match value {
                Value::Object(map) => {
                    let keys: Vec<&String> = map.keys().collect();
                    let known: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
                    assert_eq!(keys, known);
                    map.iter().for_each(|(key, inner)| check(&schema["properties"][key], inner));
                }
                Value::Array(items) => items.iter().for_each(|item| check(&schema["items"], item)),
                _ => {}
            }
        }
        check(&schema, &written);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(\\{|\\}|\"|summary|outcome|:|,|\\[|\\n| |ä|done){0,60}") {
            of_turn(&json!({ "report": text.clone() }), &text);
        }
    }
}
