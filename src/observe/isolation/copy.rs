//! Making a copy: the files that git knows or would take, as they are now, and a repository around them that shares
//! nothing with the real one but its objects, which are only read.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::super::git::{Git, Input, quoted};
use super::super::names::{Name, path_below, shown};
use super::super::repository::{Found, Repository};
use super::super::scratch::{self, OwnRepository};
use super::super::tree::Room;
use super::super::watch::{Fault, Watch};
use super::super::{apart, may_be_in_one};
use super::{DEADLINE, Failure, Isolated, MADE, Made, Setting, VERSION, bench, files_at, limits, place};
use crate::platform::{self, FileMark, MarkKind, private};

/// Files that are copied at most.
const MAX_FILES: usize = 1_000_000;
/// Their bytes at most.
const MAX_BYTES: u64 = 64 << 30;
/// Room that a disk keeps.
const SPARE: u64 = 256 << 20;
/// Most output of a list of names.
const MAX_NAMES: u64 = 512 << 20;
/// Repositories inside that are named.
const NAMED: usize = 20;

impl Isolated {
    /// Copies the repository of `workspace` (canonical) into `folder`. What a copy that was never finished left there is
    /// removed first. `cancelled` is asked every few milliseconds for a reason to end it.
    ///
    /// # Errors
    /// [`Failure`]; nothing is left then.
    pub fn make(
        setting: &Setting,
        workspace: &Path,
        folder: &Path,
        cancelled: &mut dyn FnMut() -> Option<String>,
    ) -> Result<Self, Failure> {
        let watch = Watch::new(DEADLINE);
        let (setting, workspace, own) = (setting.clone(), workspace.to_path_buf(), folder.to_path_buf());
        let made = apart(&watch, cancelled, move |watch| make(&setting, &workspace, &own, watch));
        match made {
            Ok(made) => Ok(Self { folder: folder.to_path_buf(), made }),
            Err(fault) => {
                let _ = fs::remove_dir_all(folder);
                Err(fault.into())
            }
        }
    }
}

fn make(setting: &Setting, workspace: &Path, folder: &Path, watch: &Watch) -> Result<Made, Fault> {
    let no_repository = || {
        Fault::Refused(format!(
            "{} is in no git repository, and only such can be copied for a run",
            workspace.display()
        ))
    };
    if !may_be_in_one(workspace) {
        return Err(no_repository());
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Fault::files("cannot remove", folder, &error));
        }
        _ => {}
    }
    let (tree, nothing) = (folder.join("tree"), folder.join("nothing"));
    for path in [&tree, &nothing] {
        private::create_dir(path).map_err(|error| Fault::files("cannot make", path, &error))?;
    }
    let git = Git::find(&setting.context, setting.mark.as_deref(), &nothing)?;
    let Found::Repository(real) = Repository::find(&git, workspace, watch)? else {
        return Err(no_repository());
    };
    if folder.starts_with(&real.top) {
        return Err(Fault::Refused("the state folder lies inside of the repository".into()));
    }
    let prefix = String::from_utf8(real.prefix.clone())
        .map_err(|_| Fault::Refused("the workspace's name is not Unicode".into()))?;
    let limits = limits();
    let (own, known) = OwnRepository::create(&folder.join("base"), &real, &setting.context, &nothing)?;
    let there = files_at(&tree, &own.git_dir, real.id_length);
    if !real.prefix.is_empty() {
        let stdin = [b"./", real.prefix.as_slice(), b"\0"].concat();
        let mut answer = Vec::new();
        let input = Input { stdin, also_fine: &[1] };
        let args = ["check-ignore", "-z", "--stdin"];
        git.work(&place(&own, &real.top), &args, input, MAX_NAMES, &mut answer, watch)?;
        if !answer.is_empty() {
            return Err(Fault::Refused(
                "its repository ignores the workspace, so the copy would lack it".into(),
            ));
        }
    }
    bench(&git, &real, &own, &limits, watch).prepare(known.as_ref())?;
    let copied = copy_files(&git, &real, &own, &tree, watch)?;
    private::create_dir(&tree.join(&prefix))
        .map_err(|error| Fault::files("cannot make", &tree.join(&prefix), &error))?;

    // What the index remembers of the files are now the times of the copies.
    let refresh = ["update-index", "-q", "--refresh"];
    let input = Input { also_fine: &[1], ..Input::default() };
    let mut unheard = io::sink();
    git.work(&place(&own, &tree), &refresh, input, MAX_NAMES, &mut unheard, watch)?;
    let start = Start::of(&git, &real, watch)?;
    start.write(&tree, &real, &own, setting)?;

    if let Some(commit) = &start.commit {
        own.set_head(commit)?;
    }
    let bench = bench(&git, &there, &own, &limits, watch);
    let status = bench.status(&own.index)?;
    if status.cut || status.unreadable || status.more_untracked + status.more_differing > 0 {
        return Err(Fault::Refused("more files differ from the commit than can be kept apart".into()));
    }
    let mut sorted = bench.sort_out(&status.differing, &status.untracked, &mut Room::new(&limits))?;
    bench.update(&own.index, &mut sorted)?;
    if let Some(name) = sorted.marked.keys().next() {
        return Err(Fault::Refused(format!("{} cannot be kept: it is too large", shown(name).0)));
    }
    let made = Made {
        schema_version: VERSION,
        top: real.top.clone(),
        prefix,
        objects: own.objects.clone(),
        id_length: real.id_length,
        refs: super::cleanup::refs(&git, &there, &tree, watch)?,
        head: start.commit,
        files: copied.files,
        bytes: copied.bytes,
        left_out: copied.left_out,
    };
    let text = serde_json::to_vec(&made)
        .map_err(|error| Fault::Refused(format!("the repository's paths cannot be written down: {error}")))?;
    platform::write_durable(&folder.join(MADE), &text, 0o600)
        .map_err(|error| Fault::Files(error.to_string()))?;
    Ok(made)
}

#[derive(Default)]
struct Copied {
    files: u64,
    bytes: u64,
    left_out: Vec<String>,
}

fn copy_files(
    git: &Git,
    real: &Repository,
    own: &OwnRepository,
    tree: &Path,
    watch: &Watch,
) -> Result<Copied, Fault> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let mut listed = Vec::new();
    let done = git.work(&place(own, &real.top), &args, Input::default(), MAX_NAMES, &mut listed, watch)?;
    // A name for each stage of a conflict.
    let names: BTreeSet<&[u8]> = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    if done.cut || names.len() > MAX_FILES {
        return Err(Fault::Refused(format!("the repository has more than {MAX_FILES} files")));
    }
    let mut copied = Copied::default();
    let mut folders = Folders { real: &real.top, tree, known: HashSet::new() };
    let mut files = Vec::new();
    for name in names {
        watch.check("looking at the files to copy")?;
        let bare = name.strip_suffix(b"/").unwrap_or(name);
        let Some(path) = path_below(&real.top, bare) else { continue };
        match FileMark::of(&path) {
            // A repository of its own.
            Ok(mark) if mark.kind == MarkKind::Folder => {
                if copied.left_out.len() < NAMED && has_something(&path) {
                    copied.left_out.push(shown(bare).0);
                }
                if folders.ready(bare)? {
                    let made = private::create_dir(&tree.join(path_of(bare)?));
                    made.map_err(|error| Fault::files("cannot copy", &path, &error))?;
                }
            }
            Ok(mark) if matches!(mark.kind, MarkKind::File | MarkKind::Link) => {
                copied.bytes += if mark.kind == MarkKind::File { mark.size } else { 0 };
                files.push((bare, path, mark.kind));
            }
            // Gone, or none that has content.
            _ => {}
        }
    }
    let room = platform::free_space(tree).map_or(MAX_BYTES, |free| free.saturating_sub(SPARE));
    if copied.bytes > room.min(MAX_BYTES) {
        return Err(Fault::Files(format!(
            "the files have {} MiB, and there is room for {} MiB where copies lie",
            copied.bytes >> 20,
            room.min(MAX_BYTES) >> 20
        )));
    }
    for (name, path, kind) in files {
        watch.check("copying the files")?;
        if !folders.ready(name)? {
            continue;
        }
        let to = tree.join(path_of(name)?);
        let done = match kind {
            MarkKind::Link => fs::read_link(&path).and_then(|target| platform::make_link(&target, &to)),
            _ => copy_one(&path, &to),
        };
        match done {
            Ok(()) => copied.files += 1,
            // It has gone meanwhile, or is there under a name that this file system does not tell from this one.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {}
            Err(error) => return Err(Fault::files("cannot copy", &path, &error)),
        }
    }
    Ok(copied)
}

fn path_of(name: &[u8]) -> Result<PathBuf, Fault> {
    platform::path_from_bytes(name)
        .ok_or_else(|| Fault::Refused(format!("{} is no name here", shown(name).0)))
}

fn has_something(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Content, permissions and time of a plain file; never through a link.
pub(super) fn copy_one(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = platform::open_no_link(from)?;
    let found = source.metadata()?;
    if !found.is_file() {
        return Err(ErrorKind::NotFound.into());
    }
    let mut target = OpenOptions::new().write(true).create_new(true).open(to)?;
    io::copy(&mut source, &mut target)?;
    target.set_modified(found.modified()?)?;
    target.set_permissions(found.permissions())
}

/// Folders on the way to a file: real ones in the user's tree, made in the copy.
struct Folders<'a> {
    real: &'a Path,
    tree: &'a Path,
    known: HashSet<Name>,
}

impl Folders<'_> {
    /// Whether the folders above a name are none that a link stands for. They exist in the copy then.
    fn ready(&mut self, name: &[u8]) -> Result<bool, Fault> {
        let Some(end) = name.iter().rposition(|byte| *byte == b'/') else { return Ok(true) };
        let parent = &name[..end];
        if self.known.contains(parent) {
            return Ok(true);
        }
        if !self.ready(parent)? {
            return Ok(false);
        }
        let path = path_of(parent)?;
        if !FileMark::of(&self.real.join(&path)).is_ok_and(|mark| mark.kind == MarkKind::Folder) {
            return Ok(false);
        }
        let to = self.tree.join(&path);
        private::create_dir(&to).map_err(|error| Fault::files("cannot make", &to, &error))?;
        self.known.insert(parent.to_vec());
        Ok(true)
    }
}

/// Where the real repository stands.
struct Start {
    /// Its name, if a branch is checked out.
    branch: Option<Vec<u8>>,
    commit: Option<String>,
    /// All refs, as a `packed-refs` file.
    refs: Vec<u8>,
}

impl Start {
    fn of(git: &Git, real: &Repository, watch: &Watch) -> Result<Self, Fault> {
        let ask = |args: &[&str]| {
            let input = Input { also_fine: &[1, 128], ..Input::default() };
            git.ask(&real.top, args, input, watch).map(|answer| answer.trim_ascii().to_vec())
        };
        let branch = ask(&["symbolic-ref", "-q", "HEAD"])?;
        let commit = String::from_utf8_lossy(&ask(&["rev-parse", "-q", "--verify", "HEAD"])?).into_owned();
        let mut refs = b"# pack-refs with: \n".to_vec();
        refs.extend(git.ask(
            &real.top,
            &["for-each-ref", "--format=%(objectname) %(refname)"],
            Input::default(),
            watch,
        )?);
        Ok(Self {
            branch: Some(branch).filter(|branch| !branch.is_empty()),
            commit: Some(commit).filter(|commit| !commit.is_empty()),
            refs,
        })
    }

    /// Makes the copy a repository.
    fn write(
        &self,
        tree: &Path,
        real: &Repository,
        own: &OwnRepository,
        setting: &Setting,
    ) -> Result<(), Fault> {
        let git_dir = tree.join(".git");
        let failed = |error: io::Error| Fault::files("cannot write in", &git_dir, &error);
        for name in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
            private::create_dir(&git_dir.join(name)).map_err(failed)?;
        }
        let write = |name: &str, content: &[u8]| {
            private::create(&git_dir.join(name)).and_then(|mut file| file.write_all(content)).map_err(failed)
        };
        let head = match (&self.branch, &self.commit) {
            (Some(branch), _) => [b"ref: ", branch.as_slice(), b"\n"].concat(),
            (None, Some(commit)) => format!("{commit}\n").into_bytes(),
            (None, None) => return Err(Fault::Refused("git does not say what is checked out".into())),
        };
        write("HEAD", &head)?;
        write("packed-refs", &self.refs)?;
        let sha256 = real.id_length == 32;
        let mut config = format!(
            "[core]\n\trepositoryformatversion = {}\n\tbare = false\n\tlogallrefupdates = true\n",
            u8::from(sha256)
        );
        config.push_str(&scratch::file_settings(real, &setting.context));
        if sha256 {
            config.push_str("[extensions]\n\tobjectFormat = sha256\n");
        }
        write("config", config.as_bytes())?;
        let mut objects = quoted(&own.objects)?.into_encoded_bytes();
        objects.push(b'\n');
        write("objects/info/alternates", &objects)?;
        for name in ["info/exclude", "info/attributes"] {
            if let Ok(content) = fs::read(own.git_dir.join(name)) {
                write(name, &content)?;
            }
        }
        own.take_shallow(real)?;
        if let Ok(content) = fs::read(own.git_dir.join("shallow")) {
            write("shallow", &content)?;
        }
        match fs::read(&own.index) {
            Ok(bytes) => {
                let modified = fs::metadata(&own.index).and_then(|found| found.modified()).ok();
                scratch::write_index(&git_dir.join("index"), &bytes, modified)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}
