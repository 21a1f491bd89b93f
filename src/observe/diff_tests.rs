#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::super::signals::Signal;
use super::*;
use proptest::prelude::*;

fn id(letter: char) -> String {
    letter.to_string().repeat(40)
}

/// Output as git 2.47 prints it, for a change of each kind.
fn sample() -> Vec<u8> {
    let (a, b, zero) = (id('a'), id('b'), id('0'));
    let mut out = String::new();
    for (modes, ids, status, names) in [
        ("100644 100644", format!("{a} {b}"), "M", vec!["bin"]),
        ("100644 000000", format!("{a} {zero}"), "D", vec!["del"]),
        ("100644 100644", format!("{a} {a}"), "R100", vec!["mv", "mv2"]),
        ("000000 100644", format!("{zero} {b}"), "A", vec!["t\tn\nq\""]),
        ("100644 120000", format!("{a} {b}"), "T", vec!["ty"]),
        ("100644 100755", format!("{a} {a}"), "M", vec!["x"]),
        ("100644 100644", format!("{a} {b}"), "M", vec!["y.rs"]),
    ] {
        out += &format!(":{modes} {ids} {status}\0");
        for name in names {
            out += &format!("{name}\0");
        }
    }
    out += "-\t-\tbin\0";
    out += "0\t1\tdel\0";
    out += "0\t0\t\0mv\0mv2\0";
    out += "1\t0\tt\tn\nq\"\0";
    out += "1\t1\tty\0";
    out += "0\t0\tx\0";
    out += "3\t2\ty.rs\0";
    out += "\0";
    out += &format!("diff --git a/bin b/bin\nindex {a}..{b} 100644\nBinary files a/bin and b/bin differ\n");
    out += &format!(
        "diff --git a/del b/del\ndeleted file mode 100644\nindex {a}..{zero}\n--- a/del\n+++ /dev/null\n"
    );
    out += "@@ -1 +0,0 @@\n--- a/like a header\n";
    out += "diff --git a/mv b/mv2\nsimilarity index 100%\nrename from mv\nrename to mv2\n";
    out += &format!(
        "diff --git \"a/t\" \"b/t\"\nnew file mode 100644\nindex {zero}..{b}\n--- /dev/null\n+++ \"b/t\"\n"
    );
    out += "@@ -0,0 +1 @@\n+diff --git a/x b/x\n\\ No newline at end of file\n";
    out += &format!(
        "diff --git a/ty b/ty\ndeleted file mode 100644\nindex {a}..{zero}\n--- a/ty\n+++ /dev/null\n"
    );
    out += "@@ -1 +0,0 @@\n-z\n";
    out +=
        &format!("diff --git a/ty b/ty\nnew file mode 120000\nindex {zero}..{b}\n--- /dev/null\n+++ b/ty\n");
    out += "@@ -0,0 +1 @@\n+foo\n\\ No newline at end of file\n";
    out += "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n";
    out += &format!("diff --git a/y.rs b/y.rs\nindex {a}..{b} 100644\n--- a/y.rs\n+++ b/y.rs\n");
    out += "@@ -2,2 +2 @@ fn a() {\n-one\n-two\n+Command::new(x)\n@@ -10,0 +10,2 @@\n+@@ -1 +1 @@\n+last\n";
    out.into_bytes()
}

fn read(pieces: &[&[u8]]) -> DiffReader {
    let mut reader = DiffReader::new(100);
    for piece in pieces {
        reader.write_all(piece).unwrap();
    }
    reader.finish(true);
    reader
}

fn shown(reader: &DiffReader) -> Vec<String> {
    let line = |file: &FileDiff| {
        format!(
            "{} {} {:?} +{:?} -{:?} {} {}",
            char::from(file.status),
            String::from_utf8_lossy(&file.name),
            file.old_name.as_ref().map(|name| String::from_utf8_lossy(name).into_owned()),
            file.insertions,
            file.deletions,
            file.ranges.text().unwrap_or_default(),
            file.read,
        )
    };
    reader.files.iter().map(line).collect()
}

#[test]
fn every_kind_of_change_is_understood() {
    let reader = read(&[&sample()]);
    assert!(!reader.foreign);
    assert_eq!(
        shown(&reader),
        [
            "M bin None +None -None  true",
            "D del None +Some(0) -Some(1) 1-1 true",
            "R mv2 Some(\"mv\") +Some(0) -Some(0)  true",
            "A t\tn\nq\" None +Some(1) -Some(0) 1-1 true",
            "T ty None +Some(1) -Some(1) 1-1 true",
            "M x None +Some(0) -Some(0)  true",
            "M y.rs None +Some(3) -Some(2) 2-2, 10-11 true",
        ]
    );
    assert!(reader.files[0].binary && !reader.files[1].binary);
    assert!(reader.files[6].facts.gained(Signal::Programs));
}

#[test]
fn a_patch_that_is_cut_leaves_the_rest_unread() {
    let whole = sample();
    let mut reader = DiffReader::new(100);
    reader.write_all(&whole[..whole.len() - 20]).unwrap();
    reader.finish(false);
    let read: Vec<bool> = reader.files.iter().map(|file| file.read).collect();
    assert_eq!(read, [true, true, true, true, true, true, false]);
    assert_eq!(reader.files.len(), 7);
}

#[test]
fn a_patch_of_other_objects_is_not_believed() {
    let text = String::from_utf8(sample()).unwrap();
    let (head, tail) = text.rsplit_once("diff --git a/y.rs").unwrap();
    let other = format!("{head}diff --git a/y.rs{}", tail.replacen(&id('b'), &id('c'), 1));
    let reader = read(&[other.as_bytes()]);
    assert!(reader.foreign);
    assert!(!reader.files[6].read);
}

#[test]
fn files_beyond_the_limit_are_counted() {
    let mut reader = DiffReader::new(2);
    reader.write_all(&sample()).unwrap();
    reader.finish(true);
    assert_eq!((reader.files.len(), reader.more), (2, 5));
    assert!(!reader.foreign);
    assert_eq!(reader.files[1].name, b"del");
}

#[test]
fn an_endless_line_takes_bounded_memory() {
    let (a, b) = (id('a'), id('b'));
    let mut reader = DiffReader::new(10);
    let head = format!(
        ":100644 100644 {a} {b} M\0a\x001\t1\ta\0\0diff --git a/a b/a\nindex {a}..{b} 100644\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-"
    );
    reader.write_all(head.as_bytes()).unwrap();
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        reader.write_all(&chunk).unwrap();
        assert!(reader.buffer.capacity() < 1 << 17);
    }
    reader.write_all(b"\n+ok\n").unwrap();
    reader.finish(true);
    assert!(reader.files[0].read && !reader.foreign);
}

proptest! {
    #[test]
    fn it_is_the_same_however_it_is_cut(cuts in proptest::collection::vec(0usize..3000, 0..8)) {
        let whole = sample();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
        cuts.extend([0, whole.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &whole[pair[0]..pair[1]]).collect();
        prop_assert_eq!(shown(&read(&[&whole])), shown(&read(&pieces)));
    }

    #[test]
    fn nothing_makes_it_fail(at in 0usize..2500, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut whole = sample();
        let at = at.min(whole.len());
        whole.splice(at..at, bytes);
        let _ = read(&[&whole]);
    }
}
