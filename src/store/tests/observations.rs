//! What turns really changed, and what a dead supervisor leaves.

use super::*;
use crate::observe::{Observation, Status};

#[test]
fn an_observation_is_kept_with_its_turn() {
    let (folder, store) = store();
    let turn = first_turn();
    begin(&store, &turn).unwrap();
    assert_eq!(store.observation(&turn.id).unwrap(), None);
    let first = Observation::unknown("git took too long");
    store.put_observation(&turn.id, &first).unwrap();
    assert_eq!(store.observation(&turn.id).unwrap(), Some(first));
    let second = Observation { status: Status::Observed, count: 3, ..Observation::default() };
    store.put_observation(&turn.id, &second).unwrap();
    store.finish_turn(&turn.id, &success(), None).unwrap();
    drop(store);
    let store = Store::open(folder.path(), Clock::Fixed(NOW)).unwrap();
    assert_eq!(store.observation(&turn.id).unwrap(), Some(second));
    assert_eq!(code(store.put_observation(&id(), &Observation::default())), "TURN_NOT_FOUND");
    damage(&store, "UPDATE observations SET record = '{'");
    assert_eq!(code(store.observation(&turn.id)), "STORE_ROW_CORRUPT");
}

#[test]
fn the_scratch_folder_of_an_interrupted_turn_is_removed() {
    let (folder, store) = store();
    let turn = first_turn();
    begin(&store, &turn).unwrap();
    let scratch = scratch_path(folder.path(), &turn.id).unwrap();
    std::fs::create_dir_all(scratch.join("0/objects")).unwrap();
    std::fs::write(scratch.join("0/index"), "x").unwrap();
    assert!(store.mark_interrupted(&turn.id).unwrap());
    assert!(!scratch.exists());
    assert_eq!(code(scratch_path(folder.path(), "../x")), "STORE_BAD_ID");
}
