//! From the files of a work tree to a tree of git: what is small enough becomes content that can be compared line by line,
//! the rest is known by its marks. Everything happens in a repository of our own.
//!
//! `git add` is not used: it asks every submodule for its status, which runs in the submodule with the submodule's own
//! config, and with whatever program that names.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use super::git::{Git, Input, Place};
use super::names::{Name, file_name, path_below};
use super::repository::Repository;
use super::scratch::OwnRepository;
use super::status::{Differing, StatusReader};
use super::watch::{Fault, Watch};
use super::{
    Limits,
    index::{self, IndexFile},
};
use crate::platform::{FileMark, MarkKind};

/// Most output of a status: a record has about a hundred bytes.
const MAX_STATUS: u64 = 512 << 20;
/// How often a file that vanishes or changes while it is read is left out and the rest tried again.
const TRIES: usize = 5;
/// One in so many sampled files may differ from the index before all of them are looked at first.
const STALE_SHARE: usize = 16;

/// What both looks need.
pub(super) struct Bench<'a> {
    pub(super) git: &'a Git,
    pub(super) real: &'a Repository,
    pub(super) own: &'a OwnRepository,
    pub(super) limits: &'a Limits,
    pub(super) watch: &'a Watch,
}

/// How files are to become a tree.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    /// Content is taken.
    pub(super) add: Vec<Name>,
    /// Gone.
    pub(super) remove: Vec<Name>,
    /// Known by their marks only.
    pub(super) marked: BTreeMap<Name, FileMark>,
    /// Repositories of their own that the index does not know.
    pub(super) repositories: Vec<Name>,
}

/// Room for content.
pub(super) struct Room {
    files: usize,
    bytes: u64,
}

impl Room {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { files: limits.content_files, bytes: limits.content_bytes }
    }

    /// Whether a file of that size still has room, and takes it.
    fn take(&mut self, size: u64) -> bool {
        let fits = self.files > 0 && size <= self.bytes;
        if fits {
            self.files -= 1;
            self.bytes -= size;
        }
        fits
    }
}

impl Bench<'_> {
    /// For commands that read objects.
    fn reading<'b>(&'b self, index: &'b Path) -> Place<'b> {
        let objects = Some(self.own.objects.as_path());
        Place { git_dir: &self.own.git_dir, work_tree: &self.real.top, index, objects }
    }

    /// For commands that write objects.
    fn writing<'b>(&'b self, index: &'b Path) -> Place<'b> {
        Place { objects: None, ..self.reading(index) }
    }

    fn run(&self, place: &Place<'_>, args: &[&str], stdin: Vec<u8>) -> Result<Vec<u8>, Fault> {
        let mut answer = Vec::new();
        let input = Input { stdin, ..Input::default() };
        let done = self.git.work(place, args, input, MAX_STATUS, &mut answer, self.watch)?;
        if done.cut {
            return Err(Fault::Refused(format!("`git {}` prints too much", args.first().unwrap_or(&""))));
        }
        Ok(answer)
    }

    /// How the files differ from an index.
    pub(super) fn status(&self, index: &Path) -> Result<StatusReader, Fault> {
        let mut reader = StatusReader::new(self.limits.entries);
        let args = [
            "status",
            "--porcelain=2",
            "-z",
            "--untracked-files=all",
            "--ignored=matching",
            // Nobody asks submodules: each is looked at by itself.
            "--ignore-submodules=dirty",
            "--no-renames",
        ];
        let input = Input::default();
        let done = self.git.work(&self.reading(index), &args, input, MAX_STATUS, &mut reader, self.watch)?;
        if !reader.is_whole() && !done.cut {
            return Err(Fault::Refused("`git status` printed something that is not understood".into()));
        }
        // Git goes on where it may not read, and only says so.
        if ["could not open directory", "Permission denied"].iter().any(|words| done.words.contains(words)) {
            reader.unreadable = true;
        }
        reader.cut = done.cut;
        Ok(reader)
    }

    /// Prepares the copied index: no file is exempt from being looked at, and what the index remembers is fresh. Gives
    /// the files that are exempt because they are not there.
    pub(super) fn prepare(&self, known: Option<&IndexFile>) -> Result<Vec<Name>, Fault> {
        let Some(known) = known else { return Ok(Vec::new()) };
        if known.shared || known.sparse {
            // Another version is the one thing that git always writes anew, and it writes all of it.
            let version = if known.version == 4 { "2" } else { "4" };
            let args = ["update-index", "--index-version", version];
            self.run(&self.reading(&self.own.index), &args, Vec::new())?;
        }
        let absent = if known.flagged || known.shared || known.sparse { self.unhide()? } else { Vec::new() };
        if self.is_stale(known) {
            // Says what needs an update with exit code 1, which is no failure.
            let mut nowhere = std::io::sink();
            let input = Input { also_fine: &[1], ..Input::default() };
            let args = ["update-index", "-q", "--refresh"];
            self.git.work(
                &self.reading(&self.own.index),
                &args,
                input,
                MAX_STATUS,
                &mut nowhere,
                self.watch,
            )?;
        }
        Ok(absent)
    }

    /// Entries that git was told not to look at are looked at again, if the file is there.
    fn unhide(&self) -> Result<Vec<Name>, Fault> {
        let listed = self.run(&self.reading(&self.own.index), &["ls-files", "-v", "-z"], Vec::new())?;
        let (mut assumed, mut skipped, mut absent) = (Vec::new(), Vec::new(), Vec::new());
        for record in listed.split(|byte| *byte == 0) {
            let Some((&[tag, b' '], name)) = record.split_first_chunk::<2>() else { continue };
            if tag.is_ascii_lowercase() {
                push(&mut assumed, name);
            }
            if tag.eq_ignore_ascii_case(&b'S') {
                self.watch.check("looking for hidden files")?;
                if path_below(&self.real.top, name).is_some_and(|path| FileMark::of(&path).is_ok()) {
                    push(&mut skipped, name);
                } else {
                    absent.push(name.to_vec());
                }
            }
        }
        self.unmark("--no-assume-unchanged", assumed, &self.own.index)?;
        self.unmark("--no-skip-worktree", skipped, &self.own.index)?;
        Ok(absent)
    }

    fn unmark(&self, option: &str, names: Vec<u8>, index: &Path) -> Result<(), Fault> {
        if names.is_empty() {
            return Ok(());
        }
        self.run(&self.reading(index), &["update-index", option, "-z", "--stdin"], names).map(drop)
    }

    /// Files that were exempt because they were not there, and are there now, are looked at.
    pub(super) fn unhide_present(&self, absent: &[Name], index: &Path) -> Result<bool, Fault> {
        let mut present = Vec::new();
        for name in absent {
            self.watch.check("looking for hidden files")?;
            if path_below(&self.real.top, name).is_some_and(|path| FileMark::of(&path).is_ok()) {
                push(&mut present, name);
            }
        }
        let any = !present.is_empty();
        self.unmark("--no-skip-worktree", present, index)?;
        Ok(any)
    }

    /// Whether the index remembers other times than the files have, so that their content would be read at each look.
    fn is_stale(&self, known: &IndexFile) -> bool {
        let differs = |sample: &&super::index::Sample| {
            let mark = path_below(&self.real.top, &sample.path).and_then(|path| FileMark::of(&path).ok());
            mark.is_some_and(|mark| {
                let seconds = mark.modified_ns.div_euclid(1_000_000_000);
                i128::from(sample.modified) != seconds & 0xffff_ffff
                    && u64::from(sample.size) == mark.size & 0xffff_ffff
            })
        };
        let stale = known.samples.iter().filter(differs).count();
        stale * STALE_SHARE > known.samples.len()
    }

    /// Says of each file that differs from the index, and of each that is not in it, how it is to be taken.
    pub(super) fn sort_out(
        &self,
        differing: &[Differing],
        untracked: &[Name],
        room: &mut Room,
    ) -> Result<Sorted, Fault> {
        let mut sorted = Sorted::default();
        for Differing { name, gone, repository } in differing {
            self.watch.check("looking at the changed files")?;
            let Some(path) = path_below(&self.real.top, name) else { continue };
            match (gone, FileMark::of(&path)) {
                (true, _) | (_, Err(_)) => sorted.remove.push(name.clone()),
                (_, Ok(mark)) if mark.kind == MarkKind::Folder => {
                    if *repository { &mut sorted.add } else { &mut sorted.remove }.push(name.clone());
                }
                (_, Ok(mark)) if mark.kind == MarkKind::Other => sorted.remove.push(name.clone()),
                (_, Ok(mark)) => self.place_file(name, &path, mark, room, &mut sorted),
            }
        }
        for name in untracked {
            self.watch.check("looking at the new files")?;
            if let Some(folder) = name.strip_suffix(b"/") {
                sorted.repositories.push(folder.to_vec());
                continue;
            }
            let Some(path) = path_below(&self.real.top, name) else { continue };
            if let Ok(mark) = FileMark::of(&path)
                && matches!(mark.kind, MarkKind::File | MarkKind::Link)
            {
                self.place_file(name, &path, mark, room, &mut sorted);
            }
        }
        Ok(sorted)
    }

    fn place_file(&self, name: &Name, path: &Path, mark: FileMark, room: &mut Room, sorted: &mut Sorted) {
        let size = if mark.kind == MarkKind::File { mark.size } else { 0 };
        let readable = || mark.kind == MarkKind::Link || File::open(path).is_ok();
        if size <= self.limits.file_bytes && readable() && room.take(size) {
            sorted.add.push(name.clone());
        } else {
            sorted.marked.insert(name.clone(), mark);
        }
    }

    /// Brings an index to what was sorted out. What cannot be read after all moves over to what is known by marks.
    pub(super) fn update(&self, index: &Path, sorted: &mut Sorted) -> Result<(), Fault> {
        if !sorted.remove.is_empty() {
            let zero = "0".repeat(self.real.id_length * 2);
            let mut stdin = Vec::new();
            for name in &sorted.remove {
                stdin.extend(format!("0 {zero}\t").bytes());
                push(&mut stdin, name);
            }
            self.run(&self.writing(index), &["update-index", "-z", "--index-info"], stdin)?;
        }
        self.take_old_content(index, sorted)?;
        for attempt in 0.. {
            if sorted.add.is_empty() {
                break;
            }
            let mut stdin = Vec::new();
            sorted.add.iter().for_each(|name| push(&mut stdin, name));
            let args = ["update-index", "--add", "--remove", "--replace", "-z", "--stdin"];
            match self.run(&self.writing(index), &args, stdin) {
                Ok(_) => break,
                Err(Fault::Git { words, .. }) if attempt < TRIES && self.leave_out(&words, sorted) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Git names the file that it could not take.
    fn leave_out(&self, words: &str, sorted: &mut Sorted) -> bool {
        let Some((_, named)) = words.rsplit_once("Unable to process path ") else { return false };
        let is_named =
            |name: &Name| String::from_utf8_lossy(name).split_whitespace().eq(named.split_whitespace());
        let Some(at) = sorted.add.iter().position(is_named) else { return false };
        let name = sorted.add.remove(at);
        let mark = path_below(&self.real.top, &name).and_then(|path| FileMark::of(&path).ok());
        if let Some(mark) = mark {
            sorted.marked.insert(name, mark);
        }
        true
    }

    /// Git looks at the content that the index knows before it converts the line ends of a file. It is taken over, since
    /// the command that writes does not see the real objects.
    fn take_old_content(&self, index: &Path, sorted: &Sorted) -> Result<(), Fault> {
        let rules = sorted.add.iter().any(|name| file_name(name) == b".gitattributes");
        if !self.own.converts && !rules {
            return Ok(());
        }
        let mut stdin = Vec::new();
        for (_, id, _) in self.entries(index, &sorted.add)? {
            stdin.extend(id.bytes());
            stdin.push(b'\n');
        }
        if stdin.is_empty() {
            return Ok(());
        }
        let pack = self.own.git_dir.join("objects").join("pack").join("pack");
        let args = ["pack-objects", "--quiet", "--window=0", &pack.to_string_lossy()];
        match self.run(&self.reading(index), &args, stdin) {
            // A partial clone may lack some; then line ends are converted as those of a new file.
            Ok(_) | Err(Fault::Git { .. }) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Mode, object id and name of those files that an index knows.
    pub(super) fn entries(&self, index: &Path, names: &[Name]) -> Result<Vec<(u32, String, Name)>, Fault> {
        let wanted: HashSet<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let mut found = Vec::new();
        let bytes = match std::fs::read(index) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(Fault::files("cannot read", index, &error)),
        };
        index::each(&bytes, self.real.id_length, |entry| {
            if entry.stage == 0 && wanted.contains(entry.path) {
                let id: String = entry.id.iter().map(|byte| format!("{byte:02x}")).collect();
                found.push((entry.mode, id, entry.path.to_vec()));
            }
        })
        .ok_or_else(|| Fault::Refused("git wrote an index of a form that is not known here".into()))?;
        Ok(found)
    }

    /// Two trees that hold nothing but the files that were sorted out: as `known` has them, and as they are now. Whole trees
    /// would say the same and take as long as the repository is large.
    pub(super) fn two_trees(&self, known: &Path, sorted: &mut Sorted) -> Result<(String, String), Fault> {
        let names: Vec<Name> = sorted.add.iter().chain(&sorted.remove).cloned().collect();
        let mut stdin = Vec::new();
        for (mode, id, name) in self.entries(known, &names)? {
            stdin.extend(format!("{mode:o} {id}\t").bytes());
            push(&mut stdin, &name);
        }
        let before = self.own.empty_index("index.before")?;
        self.run(&self.writing(&before), &["update-index", "-z", "--index-info"], stdin)?;
        let after = self.own.copy_index(&before, "index.after")?;
        self.update(&after, sorted)?;
        Ok((self.write_tree(&before)?, self.write_tree(&after)?))
    }

    /// Writes an index as a tree and gives its id.
    fn write_tree(&self, index: &Path) -> Result<String, Fault> {
        // Of the files that did not change the content is not at hand.
        let answer = self.run(&self.writing(index), &["write-tree", "--missing-ok"], Vec::new())?;
        let id = String::from_utf8_lossy(answer.trim_ascii()).into_owned();
        let is_id = id.len() == self.real.id_length * 2 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_id { Ok(id) } else { Err(Fault::Refused("`git write-tree` gave no tree".into())) }
    }

    /// A digest of what is staged in the real repository, where the index alone does not tell.
    pub(super) fn staged(&self, known: Option<&IndexFile>, copy: &Path) -> Result<String, Fault> {
        match known {
            None => Ok("none".into()),
            Some(IndexFile { staged: Some(staged), .. }) => Ok(staged.clone()),
            Some(_) => {
                let listed = self.run(&self.reading(copy), &["ls-files", "-s", "-z"], Vec::new())?;
                Ok(crate::digest::of_bytes(&listed))
            }
        }
    }
}

/// Where the second look's copy of the real index lies.
pub(super) fn staged_copy(own: &OwnRepository) -> PathBuf {
    own.git_dir.join("index.staged")
}

fn push(list: &mut Vec<u8>, name: &[u8]) {
    list.extend_from_slice(name);
    list.push(0);
}
