//! Text on its way to a person, a log or a record.
#![no_main]

use agent_bridge::agents::redaction;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let once = redaction::redact(text);
    assert_eq!(redaction::redact(&once), once, "redacting twice changes the text again");
    // A value that is known to be secret is gone, wherever it stands.
    let secret = "s3cr3t-v4lue-0123456789";
    let planted = format!("{text}{secret}{text}");
    assert!(!redaction::redact_values(&planted, &[secret]).contains(secret));
    let line = redaction::one_line(text, 80);
    assert!(line.chars().count() <= 81, "{line:?}");
    assert!(!line.chars().any(char::is_control), "{line:?}");
});
