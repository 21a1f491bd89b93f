//! What of a question is kept, and that a question which cannot be put costs nobody a wait.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::bridge::companion::Notice;
use crate::context::Clock;

fn asking() -> (tempfile::TempDir, Asking, std::sync::mpsc::Receiver<Notice>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path(), Clock::System).unwrap());
    let (notices, heard) = Notices::channel();
    let id = || uuid::Uuid::new_v4().to_string();
    let asking = Asking {
        store,
        notices,
        session: id(),
        turn: id(),
        secrets: Mutex::new(vec!["correct-horse".into()]),
        asked: AtomicU32::new(0),
    };
    (folder, asking, heard)
}

#[test]
fn a_text_is_kept_without_secrets_and_says_when_it_was_cut() {
    let (_folder, asking, _heard) = asking();
    asking.hide_too("the-token-of-the-endpoint");
    let kept = asking.kept("Is correct-horse or the-token-of-the-endpoint right?", MAX_TEXT);
    assert!(kept.starts_with("Is ") && kept.ends_with(" right?"), "{kept}");
    assert!(!kept.contains("horse") && !kept.contains("endpoint"), "{kept}");
    assert_eq!(asking.kept("short", MAX_TEXT), "short");
    let whole = "é".repeat(MAX_TEXT);
    assert_eq!(asking.kept(&whole, MAX_TEXT), whole);
    for long in [MAX_TEXT + 1, LOOKED_AT, 4 * LOOKED_AT] {
        let long = "é".repeat(long);
        let kept = asking.kept(&long, MAX_TEXT);
        assert_eq!(kept.chars().count(), MAX_TEXT);
        assert!(kept.ends_with(&format!("(the beginning of {} bytes)", long.len())), "{kept:.40}");
    }
}

#[test]
fn what_cannot_be_asked_is_not_waited_for() {
    let (_folder, asking, heard) = asking();
    let until = Instant::now() + Duration::from_secs(3600);
    let bound = BoundRun { run: "r".into(), session: None, turn: None, workspace: ".".into() };
    // The turn is not in the store: nobody could answer.
    assert_eq!(kit::Supervisor::ask(&asking, &bound, "Left?", &Cancel::default(), until), None);
    let told: Vec<Notice> = heard.try_iter().collect();
    assert!(
        matches!(&told[..], [Notice::Activity(line)] if line.starts_with("a question could not be asked")),
        "{told:?}"
    );
    // Nor does a worker that asks without end keep anybody busy.
    asking.asked.store(QUESTIONS, Ordering::SeqCst);
    let input = serde_json::json!({});
    assert_eq!(kit::Approver::decide(&asking, &bound, "Bash", &input, &Cancel::default(), until), None);
    assert_eq!(heard.try_iter().count(), 0);
}
