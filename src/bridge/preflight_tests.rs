//! The pause. What is asked, and how often, is tested with a program (tests/agy_preflight.rs).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

#[test]
fn the_pause_doubles_and_is_a_fifth_more_or_less() {
    let pause = |repetition, random| backoff(Duration::from_secs(1), repetition, random).as_millis();
    assert_eq!([pause(0, 0), pause(0, 255)], [800, 1200]);
    assert_eq!([pause(1, 0), pause(1, 255)], [1600, 2400]);
    assert_eq!(pause(3, 0), 6400);
    assert!((990..=1010).contains(&pause(0, 128)), "the middle is the base");
    assert!(backoff(Duration::from_secs(1), u32::MAX, 255) > Duration::from_secs(1));
}

#[test]
fn a_success_of_the_future_is_none() {
    let known = Known { last_success_ms: Some(1000), ..Known::default() };
    assert!(known.success_within(60_000, 1000) && known.success_within(60_000, 60_999));
    assert!(!known.success_within(60_000, 61_000) && !known.success_within(60_000, 999));
    assert!(!Known::default().success_within(60_000, 0));
}
