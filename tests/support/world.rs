//! A machine of its own for one test: home, repository, state folder, config and environment.
//!
//! ```ignore
//! let world = World::new().agent("codex", json!({ "bin": "codex" })).ceiling("workspace-write").build();
//! world.fake("codex", &json!({ … }));
//! let doctor = world.bridge(["doctor", "--json"]).expect_code(0);
//! let mut host = world.host();
//! ```
//!
//! Nothing of the user's is seen: the environment is cleared, git reads no config, and programs are
//! looked for in the world's `bin` first. The world vanishes with the value; set
//! `AGENT_BRIDGE_KEEP_WORLDS=1` to keep it for a look.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::host::Host;
use super::process::{self, DEADLINE, Finished, Seen, processes_with};

/// The program under test.
pub const BRIDGE: &str = env!("CARGO_BIN_EXE_agent-bridge");

/// Keeps worlds, and what runs in them, for a look.
const KEEP: &str = "AGENT_BRIDGE_KEEP_WORLDS";

/// A world that is being described.
pub struct WorldBuilder {
    config: Value,
    env: BTreeMap<OsString, OsString>,
    files: Vec<(String, String)>,
    below: String,
}

/// A world. See the module for an example.
pub struct World {
    folder: TempDir,
    path: PathBuf,
    env: BTreeMap<OsString, OsString>,
}

impl World {
    /// Begins a world whose config allows its repository and, as the agents' defaults go, says nothing else.
    #[allow(clippy::new_ret_no_self, reason = "a world is described first: World::new().….build()")]
    pub fn new() -> WorldBuilder {
        WorldBuilder { config: json!({}), env: BTreeMap::new(), files: Vec::new(), below: String::new() }
    }

    /// The folder that holds everything below, canonical.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The user's home folder.
    pub fn home(&self) -> PathBuf {
        self.path.join("home")
    }

    /// The one allowed root: a git repository with a commit that holds `README.md`.
    pub fn repo(&self) -> PathBuf {
        self.path.join("repo")
    }

    /// A folder outside the allowed root.
    pub fn outside(&self) -> PathBuf {
        self.path.join("outside")
    }

    /// The bridge's state folder; it does not exist until the bridge makes it.
    pub fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// Where programs are looked for first.
    pub fn bin(&self) -> PathBuf {
        self.path.join("bin")
    }

    /// The config file, at the default place in the home folder.
    pub fn config_path(&self) -> PathBuf {
        self.home().join(".agent-bridge").join("config.json")
    }

    /// The config as it is in the file.
    pub fn config(&self) -> Value {
        let bytes = std::fs::read(self.config_path()).expect("the config can be read");
        serde_json::from_slice(&bytes).expect("the config is JSON")
    }

    /// Replaces the config file.
    pub fn write_config(&self, config: &Value) {
        write(&self.config_path(), format!("{config:#}\n"));
    }

    /// Sets an agent's section in the config file.
    pub fn set_agent(&self, id: &str, section: Value) {
        let mut config = self.config();
        config["agents"][id] = section;
        self.write_config(&config);
    }

    /// A file of the repository.
    pub fn file(&self, relative: &str) -> PathBuf {
        self.repo().join(relative)
    }

    /// Writes a file of the repository, with the folders above it.
    pub fn write(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(relative);
        write(&path, content);
        path
    }

    /// Reads a file of the repository.
    #[track_caller]
    pub fn read(&self, relative: &str) -> String {
        let path = self.file(relative);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Runs git in the repository and gives what it printed, without the last newline.
    #[track_caller]
    pub fn git<const N: usize>(&self, arguments: [&str; N]) -> String {
        let mut command = self.command("git");
        command.args(arguments);
        let finished = process::run(command, DEADLINE).expect_code(0);
        finished.stdout().trim_end_matches('\n').to_owned()
    }

    /// The world's environment. Every program gets exactly this.
    pub fn env(&self) -> &BTreeMap<OsString, OsString> {
        &self.env
    }

    /// Sets a variable of the world's environment for what is started from now on.
    pub fn set_env(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.env.insert(name.into(), value.into());
    }

    /// Takes a variable out of it.
    pub fn remove_env(&mut self, name: impl AsRef<OsStr>) {
        self.env.remove(name.as_ref());
    }

    /// Any program in this world, in the repository.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(&self.env).current_dir(self.repo());
        command
    }

    /// The bridge with these arguments, not started.
    pub fn bridge_command(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = self.command(BRIDGE);
        command.args(arguments);
        command
    }

    /// Runs the bridge to its end with standard input closed.
    #[track_caller]
    pub fn bridge(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Finished {
        process::run(self.bridge_command(arguments), DEADLINE)
    }

    /// Runs the bridge to its end with this standard input.
    #[track_caller]
    pub fn bridge_with_input(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        input: impl AsRef<[u8]>,
    ) -> Finished {
        process::run_with_input(self.bridge_command(arguments), input.as_ref(), DEADLINE)
    }

    /// Starts `serve` and holds the host's end of it.
    #[track_caller]
    pub fn host(&self) -> Host {
        self.host_with(["serve"])
    }

    /// The same with these arguments (`["serve", "--toolsets", "sessions"]`).
    #[track_caller]
    pub fn host_with(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Host {
        Host::start(self.bridge_command(arguments))
    }

    /// Puts an agent `name` into [`Self::bin`] that plays `script`, in the format of the hidden
    /// subcommand `mock-agent`. Gives its path.
    pub fn fake(&self, name: &str, script: &Value) -> PathBuf {
        let script_path = self.path.join("fakes").join(format!("{name}.json"));
        write(&script_path, format!("{script:#}\n"));
        if cfg!(windows) {
            let text = format!("@\"{BRIDGE}\" mock-agent --script \"{}\" -- %*\r\n", script_path.display());
            let program = self.bin().join(format!("{name}.cmd"));
            write(&program, text);
            program
        } else {
            let text = format!(
                "#!/bin/sh\nexec {} mock-agent --script {} -- \"$@\"\n",
                shell_quoted(BRIDGE),
                shell_quoted(&script_path.to_string_lossy()),
            );
            self.program(name, &text)
        }
    }

    /// Puts an executable file with this text (say, a shell script) into [`Self::bin`]. Gives its path.
    pub fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.bin().join(name);
        // Written under another name and renamed: a file that is open for writing cannot be
        // executed, and a child forked by a parallel test may hold this one open for a moment.
        let draft = self.bin().join(format!("{name}.new"));
        write(&draft, text);
        make_executable(&draft);
        std::fs::rename(&draft, &path).expect("the program can be put in place");
        path
    }

    /// The processes that belong to this world: its path is in their arguments, environment or
    /// working folder.
    pub fn processes(&self) -> Vec<Seen> {
        processes_with(&self.path.to_string_lossy())
    }

    /// Waits until no process of this world is left; what is left at the deadline fails the test.
    #[track_caller]
    pub fn assert_no_process_left(&self, deadline: Duration) {
        let end = std::time::Instant::now() + deadline;
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(
                std::time::Instant::now() < end,
                "processes of {} are left after {deadline:?}: {left:#?}",
                self.path.display()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for World {
    /// A test that failed half-way leaves nothing running.
    fn drop(&mut self) {
        if std::env::var_os(KEEP).is_none() {
            for process in self.processes() {
                process::signal(process.id, process::Signal::Kill);
            }
        }
    }
}

impl WorldBuilder {
    /// An agent's section in the config. `json!({})` takes the defaults.
    pub fn agent(mut self, id: &str, section: Value) -> Self {
        self.config["agents"][id] = section;
        self
    }

    /// The global sandbox ceiling.
    pub fn ceiling(mut self, sandbox: &str) -> Self {
        self.config["policy"]["sandboxCeiling"] = json!(sandbox);
        self
    }

    /// A key of the config's `defaults`.
    pub fn default(mut self, key: &str, value: Value) -> Self {
        self.config["defaults"][key] = value;
        self
    }

    /// A top-level key of the config.
    pub fn config(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    /// A variable of the world's environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// A file of the repository's first commit.
    pub fn file(mut self, relative: &str, content: &str) -> Self {
        self.files.push((relative.to_owned(), content.to_owned()));
        self
    }

    /// Makes it below folders of these names.
    pub fn below(mut self, names: &str) -> Self {
        names.clone_into(&mut self.below);
        self
    }

    /// Makes it.
    pub fn build(self) -> World {
        let mut folder = tempfile::Builder::new()
            .prefix("agent-bridge-world-")
            .tempdir_in(parent_of_worlds())
            .expect("a folder for the world");
        if std::env::var_os(KEEP).is_some() {
            folder.disable_cleanup(true);
            eprintln!("world kept: {}", folder.path().display());
        }
        let path = canonical(folder.path()).join(&self.below);
        std::fs::create_dir_all(&path).expect("the folder of the world");
        for name in ["home", "repo", "outside", "bin", "tools", "tmp"] {
            std::fs::create_dir(path.join(name)).expect("a folder of the world");
        }
        let mut env = base_environment(&path);
        env.extend(self.env);
        let world = World { folder, path, env };

        let mut config = self.config;
        let mut defaults = json!({ "allowedRoots": [world.repo()], "stateDir": world.state() });
        if let (Some(all), Some(own)) = (defaults.as_object_mut(), config.as_object_mut()) {
            all.append(own);
        }
        world.write_config(&defaults);

        world.write("README.md", "A repository of a test.\n");
        for (relative, content) in &self.files {
            world.write(relative, content);
        }
        // Under Wine no program of the machine can be started: tests that need no repository still run.
        if std::env::var_os("AGENT_BRIDGE_TEST_WINE").is_some() {
            return world;
        }
        world.git(["init", "--quiet", "--initial-branch=main"]);
        // Else a commit may leave a process behind that tidies up the repository.
        world.git(["config", "maintenance.auto", "false"]);
        world.git(["config", "gc.auto", "0"]);
        world.git(["add", "--all"]);
        world.git(["commit", "--quiet", "--message=Start"]);
        world
    }
}

/// Where worlds are made. Not the temporary folder itself, if it can be helped: Codex lets a confined
/// worker write there, so nothing in it would be outside.
fn parent_of_worlds() -> PathBuf {
    match std::env::var_os("AGENT_BRIDGE_TEST_FOLDER") {
        Some(folder) => PathBuf::from(folder),
        None if Path::new("/var/tmp").is_dir() => PathBuf::from("/var/tmp"),
        None => std::env::temp_dir(),
    }
}

/// Canonical, without the `\\?\` that Windows puts before it and other programs stumble over.
fn canonical(path: &Path) -> PathBuf {
    let path = std::fs::canonicalize(path).expect("a folder that was just made");
    match path.to_str().and_then(|text| text.strip_prefix(r"\\?\")) {
        Some(plain) => PathBuf::from(plain),
        None => path,
    }
}

/// A cleared environment and what programs cannot do without.
fn base_environment(path: &Path) -> BTreeMap<OsString, OsString> {
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: OsString| {
        env.insert(OsString::from(name), value);
    };
    let home = path.join("home").into_os_string();
    let tmp = path.join("tmp").into_os_string();
    let mut search = vec![path.join("bin"), path.join("tools")];
    if cfg!(windows) {
        for name in
            ["SystemRoot", "WINDIR", "ComSpec", "PATHEXT", "SystemDrive", "ProgramData", "ProgramFiles"]
        {
            if let Some(value) = std::env::var_os(name) {
                set(name, value);
            }
        }
        search.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        set("USERPROFILE", home.clone());
        set("TEMP", tmp.clone());
        set("TMP", tmp.clone());
        set("APPDATA", path.join("home").join("AppData").join("Roaming").into_os_string());
        set("LOCALAPPDATA", path.join("home").join("AppData").join("Local").into_os_string());
    } else {
        // Two programs that may live anywhere; the user's other folders, where real agents may be
        // installed, stay out of sight.
        for name in ["node", "git"] {
            if let Some(program) = find_program(name) {
                link(&program, &path.join("tools").join(name));
            }
        }
        search.extend(["/usr/bin", "/bin"].map(PathBuf::from));
    }
    set("HOME", home);
    set("TMPDIR", tmp);
    set("PATH", std::env::join_paths(search).expect("a search path"));
    set("LANG", "C.UTF-8".into());
    set("TERM", "dumb".into());
    set("TZ", "UTC".into());
    // Git of this world alone: no config of the user or the machine, no repository above.
    set("GIT_CONFIG_NOSYSTEM", "1".into());
    set("GIT_CONFIG_GLOBAL", if cfg!(windows) { "NUL" } else { "/dev/null" }.into());
    set("GIT_CEILING_DIRECTORIES", path.as_os_str().to_owned());
    set("GIT_TERMINAL_PROMPT", "0".into());
    for role in ["AUTHOR", "COMMITTER"] {
        set(&format!("GIT_{role}_NAME"), "Test".into());
        set(&format!("GIT_{role}_EMAIL"), "test@example.invalid".into());
        set(&format!("GIT_{role}_DATE"), "2026-01-01T00:00:00Z".into());
    }
    env
}

/// A library that makes every lock call of a program that is started with it answer like this.
#[cfg(target_os = "linux")]
pub fn lock_wrapper(world: &World, body: &str) -> Option<PathBuf> {
    let source = world.path().join("locks.c");
    let library = world.path().join("locks.so");
    std::fs::write(&source, format!("#include <errno.h>\nint flock(int file, int how) {{ {body} }}\n"))
        .expect("a source file");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    if compiler.output().is_ok_and(|output| output.status.success()) {
        return Some(library);
    }
    assert!(std::env::var_os("CI").is_none(), "this test must run in CI, where there is a C compiler");
    eprintln!("SKIPPED: no C compiler");
    None
}

/// A program on the test's own search path.
pub fn find_program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .map(|path| std::fs::canonicalize(&path).unwrap_or(path))
}

fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Writes a file, with the folders above it.
pub fn write(path: &Path, content: impl AsRef<[u8]>) {
    let folder = path.parent().expect("a file has a folder");
    std::fs::create_dir_all(folder).expect("the file's folder");
    std::fs::write(path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

#[cfg(unix)]
fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .expect("it can be made executable");
}

#[cfg(windows)]
fn make_executable(_path: &Path) {}

/// A symbolic link.
#[cfg(unix)]
pub fn link(target: &Path, at: &Path) {
    std::os::unix::fs::symlink(target, at).expect("a link in the world");
}

/// A symbolic link; needs developer mode or an administrator.
#[cfg(windows)]
pub fn link(target: &Path, at: &Path) {
    let linked = if target.is_dir() {
        std::os::windows::fs::symlink_dir(target, at)
    } else {
        std::os::windows::fs::symlink_file(target, at)
    };
    linked.expect("a link in the world");
}
