//! Full-text search over finished turns.

use super::*;
use proptest::prelude::*;

fn finished(store: &Store, prompt: &str, answer: &str) -> NewTurn {
    let turn = NewTurn { prompt: prompt.into(), ..first_turn() };
    begin(store, &turn).unwrap();
    store.blobs().write_answer(&turn.id, answer).unwrap();
    store.finish_turn(&turn.id, &success(), None).unwrap();
    turn
}

#[test]
fn words_are_found_in_prompt_answer_and_title() {
    let (_folder, store) = store();
    let first = finished(&store, "count the zebras", "there are three giraffes, Ümläut");
    let second = finished(&store, "count the lions", "none\u{0}here\u{1}");
    let find = |query: &str| {
        let hits = store.search(query, 10).unwrap().rows;
        hits.into_iter().map(|hit| (hit.turn, hit.field)).collect::<Vec<_>>()
    };
    assert_eq!(find("Zebras"), [(first.id.clone(), HitField::Prompt)]);
    assert_eq!(find("giraffes zebras"), [(first.id.clone(), HitField::Prompt)]);
    assert_eq!(find("giraffes"), [(first.id.clone(), HitField::Answer)]);
    assert_eq!(find("umlaut"), [(first.id.clone(), HitField::Answer)]);
    assert_eq!(find("lions none"), [(second.id.clone(), HitField::Prompt)]);
    assert_eq!(find("count").len(), 2);
    assert_eq!(find("giraffes lions"), []);
    let title = store.search("parser", 10).unwrap().rows;
    assert_eq!((title.len(), title[0].field), (2, HitField::Title));
    assert_eq!(title[0].snippet, "Fix the parser");
}

#[test]
fn only_the_first_turn_carries_the_title() {
    let (_folder, store) = store();
    let first = finished(&store, "a", "b");
    let second = NewTurn { prompt: "c".into(), ..next_turn(&first, 1) };
    begin(&store, &second).unwrap();
    store.finish_turn(&second.id, &success(), None).unwrap();
    let hits = store.search("parser", 10).unwrap().rows;
    assert_eq!(hits.iter().map(|hit| &hit.turn).collect::<Vec<_>>(), [&first.id]);
}

#[test]
fn snippets_are_short_even_when_the_text_is_one_word() {
    let (_folder, store) = store();
    finished(
        &store,
        &"x".repeat(60_000),
        &format!("{} needle {}", "long ".repeat(9000), "tail ".repeat(90_000)),
    );
    for query in ["needle", "parser"] {
        let hit = store.search(query, 10).unwrap().rows.remove(0);
        assert!(hit.snippet.contains(query) && hit.snippet.chars().count() <= 240, "{hit:?}");
    }
    let answer = format!("{} beyond", "y ".repeat(40_000));
    finished(&store, "q", &answer);
    assert!(store.search("beyond", 10).unwrap().rows.is_empty(), "only 64 KiB are searched");
}

#[test]
fn a_text_that_repeats_a_word_is_searched_in_linear_time() {
    let (_folder, store) = store();
    finished(&store, &"a ".repeat(32_000), &"a ".repeat(32_000));
    let started = std::time::Instant::now();
    assert_eq!(store.search("a a a a", 10).unwrap().rows.len(), 1);
    // The square of 32,000 would be many minutes; a busy machine may take 12 s for this.
    assert!(started.elapsed() < std::time::Duration::from_secs(45), "{:?}", started.elapsed());
}

#[test]
fn hostile_queries_are_words_and_nothing_else() {
    let (_folder, store) = store();
    let turn = finished(&store, "NEAR and OR prompt: a\"b", "x");
    for query in [
        "\"",
        "\"\"",
        "*",
        "a*",
        "(",
        "NEAR(",
        "NOT",
        "prompt:",
        "prompt : x",
        "^a",
        "{a b}:c",
        "+",
        "-a",
        "a AND",
        "'; DROP TABLE turns; --",
        "\0",
        "a\0b",
        "\u{1}",
        "%",
        "",
        "   ",
        "AND OR NOT",
        "rank MATCH",
        "𝔘𝔫𝔦",
        "\u{202e}x",
    ] {
        store.search(query, 5).unwrap_or_else(|error| panic!("{query:?}: {error}"));
    }
    assert_eq!(store.search("NEAR OR prompt:", 5).unwrap().rows[0].turn, turn.id);
    store.search(&"word ".repeat(100_000), 5).unwrap();
    store.search(&"w".repeat(1_000_000), usize::MAX).unwrap();
}

#[test]
fn no_query_is_an_error() {
    let (_folder, store) = store();
    finished(&store, "some words", "more words");
    proptest!(ProptestConfig::with_cases(300), |(query in "[\\PC\"*()^:+{} \0-]{0,40}")| {
        prop_assert!(store.search(&query, 5).is_ok());
    });
}
