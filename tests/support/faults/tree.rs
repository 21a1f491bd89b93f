//! A folder with everything in it as a value: names, kinds, permissions, owners, extended attributes, link targets
//! and contents. Two runs of the same command differ only in what is blanked here.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use agent_bridge::digest;
use agent_bridge::release::pointer;
use serde_json::Value;

/// Keys of records whose values are times, chance, or made of them.
const TIMES: &[&str] = &[
    "prev",
    "pid",
    "tokenSha256",
    "at",
    "beganAt",
    "promotedAt",
    "installedAt",
    "finishedAt",
    "startedAt",
    "downtimeMs",
    "untilMs",
];

/// Files that are as good as equal to others: larger ones are told apart by their digest.
const SHOWN: usize = 64 * 1024;

/// A folder by its relative names.
#[derive(Clone, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, Entry>);

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    kind: &'static str,
    mode: u32,
    owner: (u32, u32),
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    content: Vec<u8>,
}

/// What is looked at beside the folders themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Every byte, for telling states apart.
    Exactly,
    /// Without times, journals and empty locks, for comparing two runs.
    Settled,
    /// With journals, but without times and what follows from them: two that are equal so are recovered equally.
    Cut,
}

/// What changes when a file does: device, inode, size, and the time of the change.
type Version = (u64, u64, u64, i64, i64);

/// Digests by version.
static SEEN: Mutex<BTreeMap<Version, String>> = Mutex::new(BTreeMap::new());

impl Tree {
    /// Takes it in. `installation` is the name of the folder in it that is an installation.
    pub fn of(folder: &Path, installation: &str, look: Look) -> Self {
        let mut entries = BTreeMap::new();
        walk(folder, "", &mut |name, path, found| {
            let inside = name.strip_prefix(installation).map(|rest| rest.trim_start_matches('/'));
            if look == Look::Settled && inside.is_some_and(|inside| is_apart(inside, found)) {
                return;
            }
            let mut entry = entry(path, found);
            let mut name = name.to_owned();
            if look != Look::Exactly && inside.is_some() {
                name = if look == Look::Settled { without_numbers(&name) } else { name };
                entry.content = settled(&name, entry.content);
            }
            entries.insert(name, entry);
        });
        Self(entries)
    }

    /// What differs, in words; none if nothing does.
    pub fn difference(&self, other: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, mine) in &self.0 {
            match other.0.get(name) {
                None => lines.push(format!("{name} is too much ({}, {})", mine.kind, show(&mine.content))),
                Some(theirs) if mine != theirs => lines.push(format!("{name}: {}", mine.against(theirs))),
                Some(_) => {}
            }
        }
        for name in other.0.keys().filter(|name| !self.0.contains_key(*name)) {
            lines.push(format!("{name} is missing"));
        }
        lines
    }

    /// Leaves out every name that begins so.
    pub fn forget(&mut self, prefix: &str) {
        self.0.retain(|name, _| !name.starts_with(prefix));
    }

    /// One text for the whole, to find equal ones.
    pub fn fingerprint(&self) -> String {
        let mut text = Vec::new();
        for (name, entry) in &self.0 {
            text.extend(format!("{name}\0{} {:o} {:?}\0", entry.kind, entry.mode, entry.owner).bytes());
            text.extend(format!("{:?}", entry.attributes).bytes());
            text.extend(&entry.content);
        }
        digest::of_bytes(&text)
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Entry {
    fn against(&self, other: &Self) -> String {
        let mut parts = Vec::new();
        if self.kind != other.kind {
            parts.push(format!("it is a {}, not a {}", self.kind, other.kind));
        }
        if self.mode != other.mode {
            parts.push(format!("mode {:o}, not {:o}", self.mode, other.mode));
        }
        if self.owner != other.owner {
            parts.push(format!("owner {:?}, not {:?}", self.owner, other.owner));
        }
        if self.attributes != other.attributes {
            parts.push(format!("attributes {:?}, not {:?}", self.attributes, other.attributes));
        }
        if self.content != other.content {
            parts.push(format!("it holds {}, not {}", show(&self.content), show(&other.content)));
        }
        parts.join("; ")
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, entry) in &self.0 {
            writeln!(f, "{name} {} {:o} {}", entry.kind, entry.mode, show(&entry.content))?;
        }
        Ok(())
    }
}

fn show(content: &[u8]) -> String {
    let text = String::from_utf8_lossy(content);
    let short: String = text.chars().take(700).collect();
    format!("{short:?} ({} bytes)", content.len())
}

/// What is judged otherwise: journals by their chain, locks by being empty, and the bare folders of an installation
/// that any command makes.
fn is_apart(inside: &str, found: &fs::Metadata) -> bool {
    let empty_file = found.is_file() && found.len() == 0;
    let (first, rest) = inside.split_once('/').unwrap_or((inside, ""));
    if rest.is_empty() {
        const SKELETON: &[&str] = &[
            "",
            "locks",
            "leases",
            "holders",
            "receipts",
            "configs",
            "generations",
            "backups",
            "pointer",
            "bin",
            "releases",
            "journal",
            "trial",
        ];
        return found.is_dir() && SKELETON.contains(&first) && found.mode() & 0o777 == 0o700;
    }
    match first {
        "journal" => rest.ends_with(".jsonl"),
        "locks" | "leases" | "holders" => empty_file && !rest.starts_with('.'),
        _ => false,
    }
}

/// `backups/000012-cutover` has a number that depends on what failed before.
fn without_numbers(text: &str) -> String {
    text.split('/')
        .map(|part| match part.split_once('-') {
            Some((number, rest))
                if number.len() == 6 && number.bytes().all(|b| b.is_ascii_digit()) && !rest.is_empty() =>
            {
                format!("N-{rest}")
            }
            _ => part.to_owned(),
        })
        .collect::<Vec<_>>()
        .join("/")
}

fn settled(name: &str, content: Vec<u8>) -> Vec<u8> {
    if name.ends_with("/pointer/a") || name.ends_with("/pointer/b") {
        // Only a whole slot is read as one; anything else has to be equal byte for byte.
        if pointer::decode(&content).is_some() {
            let body = content.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            return settled_json(&content[body..]).unwrap_or(content);
        }
        return content;
    }
    if name.ends_with(".jsonl") {
        let lines = content.split_inclusive(|byte| *byte == b'\n');
        return lines.flat_map(|line| settled_json(line).unwrap_or_else(|| line.to_vec())).collect();
    }
    if name.ends_with(".json") {
        return settled_json(&content).unwrap_or(content);
    }
    content
}

fn settled_json(content: &[u8]) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(content).ok()?;
    blank(&mut value);
    Some(serde_json::to_string_pretty(&value).ok()?.into_bytes())
}

fn blank(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                if TIMES.contains(&key.as_str()) && !value.is_null() {
                    *value = Value::from("blanked");
                } else {
                    blank(value);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(blank),
        // A record in a record: the content of a file that is to be written, a pointer with its checksum first.
        Value::String(text) if text.contains('{') => {
            let start = text.find('{').unwrap_or_default();
            if let Ok(mut inner) = serde_json::from_str::<Value>(&text[start..]) {
                blank(&mut inner);
                *text = inner.to_string();
            }
        }
        Value::String(text) => *text = without_numbers(text),
        _ => {}
    }
}

fn entry(path: &Path, found: &fs::Metadata) -> Entry {
    let (kind, content) = if found.is_dir() {
        ("folder", Vec::new())
    } else if found.is_symlink() {
        ("link", fs::read_link(path).unwrap().into_os_string().into_encoded_bytes())
    } else if found.is_file() && found.len() > SHOWN as u64 {
        ("file", digest_of(path, found).into_bytes())
    } else if found.is_file() {
        ("file", fs::read(path).unwrap())
    } else {
        ("something else", Vec::new())
    };
    let mode = if found.is_symlink() { 0 } else { found.mode() & 0o7777 };
    Entry { kind, mode, owner: (found.uid(), found.gid()), attributes: attributes(path), content }
}

fn digest_of(path: &Path, found: &fs::Metadata) -> String {
    let key = (found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec());
    if let Some(known) = SEEN.lock().unwrap().get(&key) {
        return known.clone();
    }
    let (sha256, bytes) = digest::of_reader(fs::File::open(path).unwrap()).unwrap();
    let text = format!("{bytes} bytes with SHA-256 {sha256}");
    SEEN.lock().unwrap().insert(key, text.clone());
    text
}

fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 16 * 1024];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names) else { return BTreeMap::new() };
    names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user."))
        .map(|name| {
            let mut value = vec![0; 16 * 1024];
            let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap_or(0);
            (name.to_vec(), value[..length].to_vec())
        })
        .collect()
}

/// Everything below a folder, and the folder itself under the name ``.
fn walk(folder: &Path, name: &str, see: &mut impl FnMut(&str, &Path, &fs::Metadata)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        let own = path.file_name().unwrap().to_string_lossy();
        let name = if name.is_empty() { own.into_owned() } else { format!("{name}/{own}") };
        let found = fs::symlink_metadata(&path).unwrap();
        see(&name, &path, &found);
        if found.is_dir() {
            walk(&path, &name, see);
        }
    }
}

/// Files of this size are linked instead of copied: programs, which nothing writes in place.
const LINKED: u64 = 256 * 1024;

/// Copies a folder with permissions, times, links and attributes. The target must not exist. Large files are shared
/// with the copy, so whoever writes one in place is found out by the original.
pub fn copy(from: &Path, to: &Path) {
    let found = fs::symlink_metadata(from).unwrap();
    if found.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from).unwrap(), to).unwrap();
        return;
    }
    if found.is_dir() {
        fs::create_dir(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let name = entry.unwrap().file_name();
            copy(&from.join(&name), &to.join(&name));
        }
    } else if found.len() >= LINKED && fs::hard_link(from, to).is_ok() {
        return;
    } else {
        fs::copy(from, to).unwrap();
    }
    for (name, value) in attributes(from) {
        rustix::fs::setxattr(to, name.as_slice(), &value, rustix::fs::XattrFlags::empty()).unwrap();
    }
    // Order of installation is read from times.
    if found.is_file() {
        fs::File::open(to).unwrap().set_modified(found.modified().unwrap_or(SystemTime::UNIX_EPOCH)).unwrap();
    }
    fs::set_permissions(to, found.permissions()).unwrap();
}

/// Removes a folder with everything in it, also what is read-only.
pub fn remove(folder: &Path) {
    if fs::remove_dir_all(folder).is_ok() {
        return;
    }
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        let _ = fs::set_permissions(&next, fs::Permissions::from_mode(0o700));
        let Ok(entries) = fs::read_dir(&next) else { continue };
        folders.extend(entries.flatten().filter(|e| e.file_type().unwrap().is_dir()).map(|e| e.path()));
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => panic!("{}: {error}", folder.display()),
        _ => {}
    }
}
