//! The chain of the audit trail: what was changed, put in or taken out is found; what is of before it stays.

use super::*;

/// A store with this many records of its own.
fn trail(records: usize) -> (TempDir, Store) {
    let (folder, store) = store();
    for number in 0..records {
        store.audit("scope-call", Some("s"), Some("t"), &json!({ "number": number })).unwrap();
    }
    (folder, store)
}

#[test]
fn a_trail_is_whole_and_its_digests_are_found_again() {
    let (_folder, store) = trail(5);
    let verdict = store.verify_audit(None).unwrap();
    assert_eq!((verdict.records, verdict.before_chain, verdict.last), (5, 0, 5));
    assert_eq!((verdict.broken, verdict.found), (None, None));
    let noted = store.audit_rows(&AuditFilter::default(), 500).unwrap().rows[3].hash.clone().unwrap();
    assert_eq!(store.verify_audit(Some(&noted)).unwrap().found, Some(true));
    assert_eq!(store.verify_audit(Some("0000")).unwrap().found, Some(false));
    let (_folder, empty) = super::store();
    assert_eq!(empty.verify_audit(None).unwrap(), AuditVerdict::of_nothing(None));
}

#[test]
fn whatever_is_done_to_a_record_is_found_where_it_was_done() {
    // What is done, and the record that is named.
    let deeds = [
        ("UPDATE audit SET detail = '{\"number\":9}' WHERE id = 3", 3),
        ("UPDATE audit SET at = at + 1 WHERE id = 1", 1),
        ("UPDATE audit SET kind = 'turn-began' WHERE id = 5", 5),
        ("UPDATE audit SET session_id = NULL WHERE id = 2", 2),
        ("UPDATE audit SET turn_id = 'u' WHERE id = 2", 2),
        ("UPDATE audit SET session_id = 't', turn_id = 's' WHERE id = 2", 2),
        ("UPDATE audit SET hash = NULL WHERE id = 4", 4),
        ("UPDATE audit SET id = 9 WHERE id = 5", 9),
        ("DELETE FROM audit WHERE id = 3", 4),
        ("DELETE FROM audit WHERE id = 1", 2),
        // The end too.
        ("DELETE FROM audit WHERE id = 5", 4),
        ("DELETE FROM audit WHERE id > 2", 2),
        ("DELETE FROM audit", 0),
        ("INSERT INTO audit (at, kind, detail) VALUES (1, 'scope-call', '{}')", 6),
        ("INSERT INTO audit (at, kind, detail, hash) VALUES (1, 'x', '{}', 'a')", 6),
        // A forger would have to do all of them again.
        ("UPDATE audit SET hash = 'a' WHERE id = 2", 2),
        ("UPDATE audit_head SET id = 4", 5),
        ("UPDATE audit_head SET hash = 'a'", 5),
        ("DELETE FROM audit_head", 5),
    ];
    for (deed, named) in deeds {
        let (_folder, store) = trail(5);
        damage(&store, deed);
        let broken = store.verify_audit(None).unwrap().broken;
        assert_eq!(broken.map(|broken| broken.id), Some(named), "{deed}");
        // Work goes on, and what comes later does not hide it (a wrong count of the end touched no record).
        store.audit("scope-call", None, None, &json!({})).unwrap();
        let healed = deed == "UPDATE audit_head SET id = 4";
        assert_eq!(store.verify_audit(None).unwrap().broken.is_none(), healed, "{deed}");
    }
}

#[test]
fn an_end_that_is_cut_off_with_everything_beside_it_is_told_by_a_noted_digest() {
    let (_folder, store) = trail(5);
    let noted = store.verify_audit(None).unwrap().head.unwrap();
    let third = "SELECT 1, id, hash FROM audit WHERE id = 3";
    damage(&store, &format!("DELETE FROM audit WHERE id > 3; INSERT OR REPLACE INTO audit_head {third}"));
    let verdict = store.verify_audit(Some(&noted)).unwrap();
    assert_eq!((verdict.broken, verdict.found), (None, Some(false)));
}

#[test]
fn records_of_before_the_chain_stay_and_the_chain_begins_after_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(database::FILE_NAME);
    // As the first version left it.
    let mut old = rusqlite::Connection::open(&file).unwrap();
    schema::migrate(&mut old, &file, &schema::MIGRATIONS[..1]).unwrap();
    let records =
        "INSERT INTO audit (at, kind, detail) VALUES (1, 'turn-began', '{}'), (2, 'turn-ended', '{}')";
    old.execute(records, []).unwrap();
    drop(old);
    let store = Store::open(folder.path(), Clock::Fixed(NOW)).unwrap();
    let verdict = store.verify_audit(None).unwrap();
    assert_eq!((verdict.records, verdict.before_chain, verdict.broken), (2, 2, None));
    store.audit("scope-call", None, None, &json!({})).unwrap();
    let verdict = store.verify_audit(None).unwrap();
    assert_eq!((verdict.records, verdict.before_chain, verdict.last, verdict.broken), (3, 2, 3, None));
    damage(&store, "DELETE FROM audit WHERE id = 3");
    assert_eq!(store.verify_audit(None).unwrap().broken.map(|broken| broken.id), Some(2));
}

#[test]
fn many_writers_make_one_chain() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Store::open(folder.path(), Clock::Fixed(NOW)).unwrap();
    let stores = [open(), open(), open()];
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(move || {
                for number in 0..20 {
                    let entry = |part: usize| AuditEntry {
                        at: NOW,
                        kind: "scope-call",
                        session: None,
                        turn: Some(format!("t{part}")),
                        detail: json!({ "number": number }),
                    };
                    store.audit_all(&[entry(0), entry(1), entry(2)]).unwrap();
                }
            });
        }
    });
    let verdict = stores[0].verify_audit(None).unwrap();
    assert_eq!((verdict.records, verdict.broken), (180, None));
}

#[test]
fn a_list_is_filtered_and_paged() {
    let (_folder, store) = trail(4);
    store.audit("turn-ended", Some("s"), Some("u"), &json!({})).unwrap();
    let ids = |filter: &AuditFilter, limit| {
        let list = store.audit_rows(filter, limit).unwrap();
        (list.rows.iter().map(|row| row.id).collect::<Vec<_>>(), list.next)
    };
    assert_eq!(ids(&AuditFilter::default(), 2), (vec![5, 4], Some("4".into())));
    let before = |id| AuditFilter { before: Some(id), ..AuditFilter::default() };
    assert_eq!(ids(&before(4), 2), (vec![3, 2], Some("2".into())));
    assert_eq!(ids(&before(2), 2), (vec![1], None));
    let calls = AuditFilter { kind: Some("scope-call".into()), ..AuditFilter::default() };
    assert_eq!(ids(&calls, 10), (vec![4, 3, 2, 1], None));
    let turn = AuditFilter { turn: Some("u".into()), ..AuditFilter::default() };
    assert_eq!(ids(&turn, 10), (vec![5], None));
    let none = AuditFilter { session: Some("' OR 1".into()), ..AuditFilter::default() };
    assert_eq!(ids(&none, 10), (vec![], None));
}
