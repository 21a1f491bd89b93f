//! Whether a program waits for the disk where it has to, read off its recorded calls: when a record goes into a
//! journal, and at the end, everything that was changed before is on the disk. On some file systems the flush of a
//! record would bring the rest with it; on others, and where client files lie on another disk, it does not.

use std::collections::BTreeSet;

use super::trace::Call;

/// What was changed before a record or the end, and not flushed by then.
pub fn unflushed(calls: &[Call], folder: &str) -> Vec<String> {
    let mut dirty: BTreeSet<String> = BTreeSet::new();
    let mut wrong = Vec::new();
    for call in calls {
        if call.line.contains(" = -1 ") {
            continue;
        }
        let names: Vec<String> =
            paths(call).into_iter().map(plain).filter(|path| path.starts_with(folder)).collect();
        let Some(name) = names.first() else { continue };
        let is_record = call.name == "write" && name.ends_with(".jsonl");
        if is_record && !dirty.is_empty() {
            wrong.push(format!("{dirty:?} when a record is written: {}", call.line));
            dirty.clear();
        }
        match call.name.as_str() {
            "fsync" | "fdatasync" => {
                dirty.remove(name);
            }
            // The records themselves are flushed one by one, and the room that is kept need not last.
            "write" | "pwrite64" | "ftruncate" | "fchmod" | "chmod" | "fchown" | "fsetxattr"
                if !is_record && !name.contains("/.ballast") && !name.contains("/locks/") =>
            {
                dirty.insert(name.clone());
            }
            "rename" | "renameat" | "renameat2" => {
                if dirty.remove(name) {
                    wrong.push(format!("its content is not flushed: {}", call.line));
                }
                dirty.extend(names.iter().map(|name| parent(name)));
            }
            "mkdir" | "mkdirat" | "link" | "linkat" | "symlink" => {
                dirty.insert(parent(names.last().unwrap_or(name)));
            }
            "unlink" | "unlinkat" | "rmdir" if !name.contains("/.ballast") => {
                dirty.retain(|other| other != name && !other.starts_with(&format!("{name}/")));
                dirty.insert(parent(name));
            }
            _ => {}
        }
    }
    if !dirty.is_empty() {
        wrong.push(format!("{dirty:?} at the end"));
    }
    wrong
}

/// The paths of a call: of its first descriptor, or its strings.
fn paths(call: &Call) -> Vec<&str> {
    let Some((_, arguments)) = call.line.split_once('(') else { return Vec::new() };
    if arguments.starts_with(|first: char| first.is_ascii_digit()) {
        return arguments
            .split_once('<')
            .and_then(|(_, rest)| rest.split_once('>'))
            .map(|(path, _)| path)
            .into_iter()
            .collect();
    }
    arguments.split('"').skip(1).step_by(2).collect()
}

/// Without `folder/..`, as descriptors name it.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => parts.truncate(parts.len().saturating_sub(1)),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn parent(path: &str) -> String {
    path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned()
}
