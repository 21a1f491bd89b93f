//! What a run really changed: a look before, a look after, and the difference.
//!
//! In a git repository the two looks are trees, made in a repository of our own that borrows the real one's objects: the
//! user's index, objects, refs, config and locks are only read, and nothing that the repository names is executed. In any
//! other folder they are marks and digests of files. Both have a deadline and limits; what was not looked at is said, and
//! never called unchanged.
//!
//! [`isolation`] goes further: a copy of a repository for one run, and the patch that came of it.
//!
//! Known holes: ignored files are counted, not compared. Changes of others in the same folder meanwhile are seen as well
//! and can't be told apart. A filter of `.gitattributes` (Git LFS) is not run, so a file behind one that is written anew
//! with the same content counts as changed.

mod assess;
mod compose;
pub mod diff;
mod folder;
mod git;
pub mod index;
pub mod isolation;
pub mod lines;
pub mod names;
mod part;
mod patch;
pub mod paths;
mod record;
pub mod refs;
mod repository;
mod scratch;
pub mod secrets;
pub mod signals;
pub mod status;
mod tree;
mod watch;

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use record::*;

use crate::context::Context;
use folder::{FolderChange, PlainFolder};
use git::{Git, Input, PLAIN_DIFF, Place};
use names::{Name, path_below};
use part::{Part, PartChange, Tools};
use patch::PatchWriter;
use repository::{Found, Repository, may_be_in_one};
use scratch::Scratch;
use tree::Room;
use watch::{Fault, Watch};

/// Repositories inside of one another that are looked at.
const MAX_PARTS: usize = 32;
/// How often the wish to end is asked for.
const TICK: Duration = Duration::from_millis(40);
/// Beyond the deadline, for programs that take their time to end. A file system that does not answer takes longer, and is
/// not waited for.
const PATIENCE: Duration = Duration::from_secs(8);

/// Bounds of an observation.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Time of each look.
    pub deadline: Duration,
    /// New and changed files that are looked at; in a folder without git, files at all.
    pub entries: usize,
    /// Files up to that size are compared line by line; larger ones by size and times.
    pub file_bytes: u64,
    /// New and changed files whose content is taken at a look.
    pub content_files: usize,
    /// Bytes of their content.
    pub content_bytes: u64,
    /// Most bytes of a patch.
    pub patch_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            entries: 50_000,
            file_bytes: 8 << 20,
            content_files: 5_000,
            content_bytes: 128 << 20,
            patch_bytes: 64 << 20,
        }
    }
}

/// What is to be observed.
#[derive(Clone, Debug)]
pub struct Request {
    /// Environment, home, and where git is found.
    pub context: Context,
    /// The working folder, canonical.
    pub folder: PathBuf,
    /// A folder for what has to lie somewhere between the looks. It is made, may hold nothing else, and is gone with the
    /// last of [`Snapshot`] and [`Change`].
    pub scratch: PathBuf,
    /// What processes carry that are started for it, see [`crate::process::mark_below`].
    pub mark: Option<String>,
    /// Bounds.
    pub limits: Limits,
}

/// The first look.
#[derive(Debug)]
pub struct Snapshot {
    shared: Arc<Shared>,
    took: Duration,
}

/// The second look, compared with the first.
#[derive(Debug)]
pub struct Change {
    /// What changed.
    pub observation: Observation,
    /// Names of repositories, and their trees before and after.
    trees: Vec<(usize, String, String)>,
    unread: u64,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    request: Request,
    state: State,
    /// Known as soon as the repository is, so that a look which fails later can still say what locks lie there.
    early: Option<Early>,
}

#[derive(Clone, Debug)]
struct Early {
    real: Repository,
    locks: Vec<PathBuf>,
}

impl Early {
    fn locks(&self) -> Vec<LockSeen> {
        let seen = |path: PathBuf| compose::lock(&self.real.top, &path, self.locks.contains(&path));
        self.real.locks().into_iter().map(seen).collect()
    }
}

#[derive(Debug)]
enum State {
    Git(Box<Repositories>),
    Folder(PlainFolder),
    /// Why there is no first look.
    Unknown(String),
}

/// All that was found in one place: the first repository and those inside.
#[derive(Debug)]
struct Repositories {
    git: Git,
    scratch: Scratch,
    parts: Vec<Part>,
    lacking: Vec<String>,
    /// The working folder itself, where its repository ignores it.
    plain: Option<PlainFolder>,
}

/// Looks at a folder before a run. `cancelled` is asked every few milliseconds for a reason to end it.
pub fn before(request: Request, cancelled: &mut dyn FnMut() -> Option<String>) -> Snapshot {
    let began = Instant::now();
    let watch = Watch::new(request.limits.deadline);
    let early: Arc<Mutex<Option<Early>>> = Arc::default();
    let (inner, found) = (request.clone(), Arc::clone(&early));
    let looked = apart(&watch, cancelled, move |watch| look(&inner, &found, watch));
    let state = looked.unwrap_or_else(|fault| State::Unknown(format!("before the run: {fault}")));
    let early = early.lock().unwrap_or_else(PoisonError::into_inner).take();
    Snapshot { shared: Arc::new(Shared { request, state, early }), took: began.elapsed() }
}

impl Snapshot {
    /// Looks again, after the run, for at most so long. Can be called more than once.
    pub fn after(&self, deadline: Duration, cancelled: &mut dyn FnMut() -> Option<String>) -> Change {
        let began = Instant::now();
        let watch = Watch::new(deadline);
        let shared = Arc::clone(&self.shared);
        let looked = apart(&watch, cancelled, move |watch| compare(&shared, watch));
        let (mut observation, trees, unread) = looked
            .unwrap_or_else(|fault| (Observation::unknown(format!("after the run: {fault}")), Vec::new(), 0));
        if observation.status == Status::NotObserved
            && let Some(early) = &self.shared.early
        {
            observation.locks = early.locks();
        }
        observation.took_ms = u64::try_from((self.took + began.elapsed()).as_millis()).unwrap_or(u64::MAX);
        Change { observation, trees, unread, shared: Arc::clone(&self.shared) }
    }
}

impl Change {
    /// Writes all changes as a patch that `git apply` takes at the top of the repository. `None` where there is nothing to
    /// write: nothing changed, or the folder is in no repository.
    ///
    /// # Errors
    /// A sentence: git failed, the time ran out, or the file cannot be written. What was written is no patch then.
    pub fn write_patch(
        &self,
        out: &mut File,
        deadline: Duration,
        cancelled: &mut dyn FnMut() -> Option<String>,
    ) -> Result<Option<PatchEnd>, String> {
        if self.trees.is_empty() {
            return Ok(None);
        }
        let watch = Watch::new(deadline);
        let mut own = out.try_clone().map_err(|error| error.to_string())?;
        let (shared, trees) = (Arc::clone(&self.shared), self.trees.clone());
        let written = apart(&watch, cancelled, move |watch| write_patch(&shared, &trees, &mut own, watch));
        let written = written.map_err(|fault| fault.to_string())?;
        Ok(Some(PatchEnd {
            bytes: written.bytes,
            sha256: written.sha256,
            truncated: written.truncated,
            unread: self.unread,
        }))
    }
}

/// Runs `work` on a thread of its own: a file system that does not answer holds up that thread, not the caller.
fn apart<T: Send + 'static>(
    watch: &Watch,
    cancelled: &mut dyn FnMut() -> Option<String>,
    work: impl FnOnce(&Watch) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let (sender, done) = channel();
    let theirs = watch.clone();
    let started = thread::Builder::new().name("observe".into()).spawn(move || {
        let _ = sender.send(work(&theirs));
    });
    if let Err(error) = started {
        return Err(Fault::Refused(format!("no thread for it: {error}")));
    }
    let mut given_up = None;
    loop {
        match done.recv_timeout(TICK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Fault::Refused("it failed in a way that nobody foresaw".into()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if watch.asked().is_none()
            && let Some(reason) = cancelled()
        {
            watch.end(reason);
        }
        if watch.asked().is_some() || watch.left().is_zero() {
            let since = *given_up.get_or_insert_with(Instant::now);
            if since.elapsed() >= PATIENCE {
                return Err(watch
                    .asked()
                    .map_or_else(|| watch.out_of_time("a look at the files"), Fault::Cut));
            }
        }
    }
}

fn look(request: &Request, early: &Mutex<Option<Early>>, watch: &Watch) -> Result<State, Fault> {
    let folder = &request.folder;
    if request.scratch.starts_with(folder) {
        return Err(Fault::Refused("the state folder lies inside of the working folder".into()));
    }
    let plain = || Ok(State::Folder(PlainFolder::look(folder, &request.limits, watch)?));
    if !may_be_in_one(folder) {
        return plain();
    }
    let scratch = Scratch::create(&request.scratch)?;
    let nothing = scratch.nothing();
    let git = Git::find(&request.context, request.mark.as_deref(), &nothing)?;
    let Found::Repository(real) = Repository::find(&git, folder, watch)? else { return plain() };
    *early.lock().unwrap_or_else(PoisonError::into_inner) =
        Some(Early { real: (*real).clone(), locks: real.locks() });
    if request.scratch.starts_with(&real.top) {
        return Err(Fault::Refused("the state folder lies inside of the repository".into()));
    }
    let tools =
        Tools { git: &git, context: &request.context, nothing: &nothing, limits: &request.limits, watch };
    let mut found =
        Repositories { scratch, parts: Vec::new(), lacking: Vec::new(), plain: None, git: git.clone() };
    let top = real.top.clone();
    let mut room = Room::new(&request.limits);
    let mut waiting: VecDeque<(Name, Option<Repository>)> = VecDeque::from([(Name::new(), Some(*real))]);
    while let Some((name, real)) = waiting.pop_front() {
        if found.parts.len() >= MAX_PARTS {
            found.lacking.push(format!("{} repositories inside were not looked at", waiting.len() + 1));
            break;
        }
        let real = match real {
            Some(real) => real,
            None => match inner_repository(&git, &top, &name, watch) {
                Ok(real) => real,
                Err(fault @ (Fault::Cut(_) | Fault::Deadline { .. })) => return Err(fault),
                Err(fault) => {
                    found.lacking.push(format!(
                        "the repository in {} was not looked at: {fault}",
                        names::shown(&name).0
                    ));
                    continue;
                }
            },
        };
        let place = found.scratch.part(found.parts.len());
        let part = Part::look(&tools, real, name.clone(), &place, &mut room)?;
        for inner in &part.inner {
            waiting.push_back((joined(&name, inner), None));
        }
        found.parts.push(part);
    }
    // A folder that its repository ignores would seem unchanged whatever happens in it.
    if let Some(first) = found.parts.first()
        && !first.real.prefix.is_empty()
        && is_ignored(&tools, first)?
    {
        found.plain = Some(PlainFolder::look(folder, &request.limits, watch)?);
    }
    Ok(State::Git(Box::new(found)))
}

fn inner_repository(git: &Git, top: &Path, name: &[u8], watch: &Watch) -> Result<Repository, Fault> {
    let unusable = || Fault::Refused("it is none that git knows".into());
    let folder = path_below(top, name).ok_or_else(unusable)?;
    match Repository::find(git, &folder, watch)? {
        Found::Repository(real) if real.prefix.is_empty() => Ok(*real),
        _ => Err(unusable()),
    }
}

fn is_ignored(tools: &Tools<'_>, part: &Part) -> Result<bool, Fault> {
    let (git_dir, index) = (&*part.own.git_dir, &*part.own.index);
    let place = Place { git_dir, work_tree: &part.real.top, index, objects: Some(&part.own.objects) };
    // With `./` no name is taken for a pattern.
    let stdin = [b"./", part.real.prefix.as_slice(), b"\0"].concat();
    let input = Input { stdin, also_fine: &[1] };
    let mut answer = Vec::new();
    let args = ["check-ignore", "-z", "--stdin"];
    tools.git.work(&place, &args, input, 1 << 20, &mut answer, tools.watch)?;
    Ok(!answer.is_empty())
}

/// A name inside of a repository that lies at another name.
fn joined(outer: &[u8], inner: &[u8]) -> Name {
    if outer.is_empty() { inner.to_vec() } else { [outer, b"/", inner].concat() }
}

type Compared = (Observation, Vec<(usize, String, String)>, u64);

fn compare(shared: &Shared, watch: &Watch) -> Result<Compared, Fault> {
    let limits = &shared.request.limits;
    match &shared.state {
        State::Unknown(reason) => Ok((Observation::unknown(reason.clone()), Vec::new(), 0)),
        State::Folder(before) => {
            let change: FolderChange = before.look_again(limits, watch)?;
            Ok((compose::of_folder(change), Vec::new(), 0))
        }
        State::Git(found) => {
            let nothing = found.scratch.nothing();
            let context = &shared.request.context;
            let tools = Tools { git: &found.git, context, nothing: &nothing, limits, watch };
            let mut room = Room::new(limits);
            let mut changes: Vec<(&Part, PartChange)> = Vec::new();
            for part in &found.parts {
                let gone = !part.name.is_empty() && !part.real.top.is_dir();
                let change = if gone { PartChange::gone() } else { part.look_again(&tools, &mut room)? };
                changes.push((part, change));
            }
            let trees = changes.iter().enumerate().filter_map(|(at, (_, change))| {
                change.trees.as_ref().map(|(before, after)| (at, before.clone(), after.clone()))
            });
            let trees = trees.collect();
            let unread = changes.iter().map(|(_, change)| change.unread.len()).sum::<usize>();
            let plain = found.plain.as_ref().map(|plain| plain.look_again(limits, watch)).transpose()?;
            let observation = compose::of_repositories(changes, &found.lacking, plain);
            Ok((observation, trees, u64::try_from(unread).unwrap_or(u64::MAX)))
        }
    }
}

fn write_patch(
    shared: &Shared,
    trees: &[(usize, String, String)],
    out: &mut File,
    watch: &Watch,
) -> Result<patch::Written, Fault> {
    let State::Git(found) = &shared.state else {
        return Err(Fault::Refused("there is no repository".into()));
    };
    let mut writer = PatchWriter::new(out, shared.request.limits.patch_bytes);
    let nothing = found.scratch.nothing();
    for (at, before, after) in trees {
        let Some(part) = found.parts.get(*at) else { continue };
        // Paths are those from the top of the first repository.
        let inside =
            if part.name.is_empty() { String::new() } else { format!("{}/", names::shown(&part.name).0) };
        let (old, new) = (format!("--src-prefix=a/{inside}"), format!("--dst-prefix=b/{inside}"));
        let own = ["diff-tree", "-r", "-M", "-p", "--binary", &old, &new];
        let args = [&own[..], &PLAIN_DIFF, &[before, after]].concat();
        let (git_dir, index) = (&*part.own.git_dir, &*part.own.index);
        let place = Place { git_dir, work_tree: &nothing, index, objects: Some(&part.own.objects) };
        let most = writer.room().saturating_add(1);
        let done = found.git.work(&place, &args, Input::default(), most, &mut writer, watch)?;
        writer.end_of_part(done.cut);
        if !writer.has_room() {
            break;
        }
    }
    writer.finish().map_err(|error| Fault::Files(format!("the patch cannot be written: {error}")))
}
