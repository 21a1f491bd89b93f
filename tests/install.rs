//! `install-release`: from a bundle to a read-only release, or nothing at all.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use support::prelude::*;

#[test]
fn a_release_that_a_test_places_is_whole_and_can_be_made_current() {
    let at = ReleaseWorld::new();
    let first = at.place(&Release::new("1.0.0"));
    let second = at.place(&Release::new("1.1.0").deflated());
    assert_eq!(at.make_current(&first), 1);
    assert_eq!(at.make_current(&second), 2);
    assert_eq!(at.current().release_id.as_str(), second);
    assert_eq!(at.current().previous.unwrap().release_id.as_str(), first);
}
