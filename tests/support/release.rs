//! Releases, bundles and installations for tests.
//!
//! ```ignore
//! let at = ReleaseWorld::new();
//! let old = at.place(&Release::of_bridge("1.0.0"));        // as if installed, without the command
//! let new = at.install(&Release::script("1.1.0", "#!/bin/sh\nexit 3\n")); // through the command
//! at.make_current(&old);                                    // pointer, generation and launcher
//! let before = at.tree();
//! at.bridge(["cutover", &new, "--yes"]).expect_code(0);
//! ```
//!
//! The root of the installation has a space in its name, is in `AGENT_BRIDGE_ROOT`, and carries the mark that fault
//! points ask for.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use agent_bridge::digest;
use agent_bridge::platform;
use agent_bridge::release::generations::{Generation, Verdict};
use agent_bridge::release::layout::{self, Layout, ReleaseId};
use agent_bridge::release::metadata::{
    CAPABILITY, FileRecord, LAUNCHER_PROTOCOL, MANIFEST_FILE, METADATA_FILE, Metadata, Range, SCHEMA_VERSION,
    StateSchema, Target, ToolCatalogue,
};
use agent_bridge::release::pointer::{self, LauncherFacts, Pointer, Previous};
use agent_bridge::release::verify;
use serde_json::{Value, json};

use super::process::Finished;
use super::world::{BRIDGE, World, write};

/// Changes a JSON document before it is written.
type Change = Box<dyn Fn(&mut Value)>;

/// A release that is being described; valid unless told otherwise.
pub struct Release {
    version: String,
    git_sha: String,
    runtime: Vec<u8>,
    files: BTreeMap<String, (Vec<u8>, u32)>,
    deflated: bool,
    metadata_change: Option<Change>,
    manifest_change: Option<Change>,
}

/// One file of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Path with slashes.
    pub name: String,
    /// Content.
    pub bytes: Vec<u8>,
    /// `0o644` or `0o755`.
    pub mode: u32,
}

impl Release {
    /// A release whose program is these bytes.
    pub fn of_bytes(version: &str, runtime: impl Into<Vec<u8>>) -> Self {
        Self {
            version: version.to_owned(),
            // Differs with the version, so that ids do.
            git_sha: digest::of_bytes(version.as_bytes())[..40].to_owned(),
            runtime: runtime.into(),
            files: BTreeMap::new(),
            deflated: false,
            metadata_change: None,
            manifest_change: None,
        }
        .file("README.md", b"A release of a test.\n", 0o644)
    }

    /// A release whose program is this script.
    pub fn script(version: &str, text: &str) -> Self {
        Self::of_bytes(version, text)
    }

    /// A small release whose program prints its version and ends.
    pub fn new(version: &str) -> Self {
        Self::script(version, &format!("#!/bin/sh\necho agent-bridge {version}\n"))
    }

    /// A release whose program is the program under test.
    pub fn of_bridge(version: &str) -> Self {
        Self::of_bytes(version, std::fs::read(BRIDGE).expect("the program under test"))
    }

    /// Another revision, 40 hexadecimal digits.
    pub fn git_sha(mut self, git_sha: &str) -> Self {
        git_sha.clone_into(&mut self.git_sha);
        self
    }

    /// One more file.
    pub fn file(mut self, path: &str, bytes: impl AsRef<[u8]>, mode: u32) -> Self {
        self.files.insert(path.to_owned(), (bytes.as_ref().to_vec(), mode));
        self
    }

    /// Compresses the files in the bundle; otherwise they are stored.
    pub fn deflated(mut self) -> Self {
        self.deflated = true;
        self
    }

    /// Changes the metadata at last, whatever they pin.
    pub fn metadata(mut self, change: impl Fn(&mut Value) + 'static) -> Self {
        self.metadata_change = Some(Box::new(change));
        self
    }

    /// Changes the manifest before it is pinned.
    pub fn manifest(mut self, change: impl Fn(&mut Value) + 'static) -> Self {
        self.manifest_change = Some(Box::new(change));
        self
    }

    /// Its id.
    pub fn id(&self) -> String {
        format!("{}+{}", self.version, &self.git_sha[..7])
    }

    /// The path of the program in it.
    pub fn runtime_path() -> String {
        format!("server/{}", layout::program_name())
    }

    /// Every file in the order in which a bundle holds them, the metadata last.
    pub fn payload(&self) -> Vec<Payload> {
        let manifest = Payload {
            name: MANIFEST_FILE.into(),
            bytes: format!("{:#}\n", self.manifest_json()).into_bytes(),
            mode: 0o644,
        };
        let runtime = Payload { name: Self::runtime_path(), bytes: self.runtime.clone(), mode: 0o755 };
        let mut files = vec![manifest, runtime];
        files.extend(self.files.iter().map(|(name, (bytes, mode))| Payload {
            name: name.clone(),
            bytes: bytes.clone(),
            mode: *mode,
        }));
        let metadata = self.metadata_bytes(&files);
        files.push(Payload { name: METADATA_FILE.into(), bytes: metadata, mode: 0o644 });
        files
    }

    /// The manifest.
    fn manifest_json(&self) -> Value {
        let template = include_str!("../../manifest.template.json");
        let platform = match std::env::consts::OS {
            "macos" => "darwin",
            "windows" => "win32",
            other => other,
        };
        let text = template
            .replace("{{version}}", &self.version)
            .replace("{{executable}}", &layout::program_name())
            .replace("{{platform}}", platform);
        let mut manifest: Value = serde_json::from_str(&text).expect("the template is JSON");
        manifest["_meta"]["io.github.agent-bridge.release"] = json!({
            "git_sha": self.git_sha,
            "runtime_sha256": digest::of_bytes(&self.runtime),
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "metadata": METADATA_FILE,
        });
        if let Some(change) = &self.manifest_change {
            change(&mut manifest);
        }
        manifest
    }

    fn metadata_bytes(&self, files: &[Payload]) -> Vec<u8> {
        let record = |file: &Payload| FileRecord {
            sha256: digest::of_bytes(&file.bytes),
            bytes: file.bytes.len() as u64,
            mode: format!("{:04o}", file.mode),
        };
        let files: BTreeMap<String, FileRecord> =
            files.iter().map(|file| (file.name.clone(), record(file))).collect();
        let metadata = Metadata {
            schema_version: SCHEMA_VERSION,
            capability: CAPABILITY.into(),
            package: "agent-bridge".into(),
            version: self.version.clone(),
            git_sha: self.git_sha.clone(),
            built_at: "2026-01-01T00:00:00Z".into(),
            target: Target {
                os: std::env::consts::OS.into(),
                arch: std::env::consts::ARCH.into(),
                triple: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            },
            runtime: Self::runtime_path(),
            min_launcher_protocol: LAUNCHER_PROTOCOL,
            config_schema_version: Range { min: 1, max: 1 },
            state_schema_version: StateSchema::of_this_program(),
            tool_catalogue: tool_catalogue(),
            manifest_sha256: files[MANIFEST_FILE].sha256.clone(),
            files,
        };
        match &self.metadata_change {
            None => metadata.to_bytes(),
            Some(change) => {
                let mut value = serde_json::to_value(&metadata).expect("metadata are JSON");
                change(&mut value);
                format!("{value:#}\n").into_bytes()
            }
        }
    }

    /// The bytes of its bundle, made by a writer that is not ours.
    pub fn bundle(&self) -> Vec<u8> {
        let method =
            if self.deflated { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
        let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for file in self.payload() {
            let options = zip::write::SimpleFileOptions::default()
                .compression_method(method)
                .last_modified_time(zip::DateTime::default())
                .unix_permissions(file.mode);
            writer.start_file(&file.name, options).expect("an entry");
            writer.write_all(&file.bytes).expect("its content");
        }
        writer.finish().expect("an archive").into_inner()
    }

    /// Writes its files into a folder, with their modes or as an extractor that knows none leaves them.
    pub fn unpack(&self, folder: &Path, with_modes: bool) {
        for file in self.payload() {
            let path = folder.join(&file.name);
            write(&path, &file.bytes);
            set_mode(&path, if with_modes { file.mode } else { 0o644 });
        }
    }
}

/// The digests of the tools that the program under test offers.
pub fn tool_catalogue() -> ToolCatalogue {
    let mut tools: Vec<Value> =
        serde_json::from_str(agent_bridge::mcp::catalogue::CATALOGUE).expect("the tool list is JSON");
    let name = |tool: &Value| tool["name"].as_str().expect("a tool has a name").to_owned();
    tools.sort_by_key(name);
    let digests = tools.iter().map(|tool| (name(tool), digest::of_json(tool))).collect();
    ToolCatalogue { sha256: digest::of_json(&Value::Array(tools)), tools: digests }
}

/// A world with an installation in it; a [`World`] in everything else.
pub struct ReleaseWorld {
    world: World,
    root: PathBuf,
}

impl Deref for ReleaseWorld {
    type Target = World;
    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for ReleaseWorld {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

impl Drop for ReleaseWorld {
    /// What is read-only would outlive the folder of the world.
    fn drop(&mut self) {
        if std::env::var_os("AGENT_BRIDGE_KEEP_WORLDS").is_none() {
            for process in self.world.processes() {
                super::process::signal(process.id, super::process::Signal::Kill);
            }
            let _ = platform::remove_durable(&self.root);
        }
    }
}

impl ReleaseWorld {
    /// A world whose root is there, and empty but for the mark of a fixture.
    #[allow(clippy::new_without_default, reason = "a test says what it makes")]
    pub fn new() -> Self {
        Self::of(World::new().build())
    }

    /// The same in a world of one's own.
    pub fn of(mut world: World) -> Self {
        let root = world.path().join("install root");
        std::fs::create_dir(&root).expect("the root of the installation");
        std::fs::write(root.join(".agent-bridge-fixture"), "").expect("the mark of a fixture");
        world.set_env(layout::ROOT_VARIABLE, &root);
        Self { world, root }
    }

    /// ROOT.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The paths in it.
    pub fn layout(&self) -> Layout {
        Layout::at(&self.root)
    }

    /// Writes the bundle of a release; gives its path.
    pub fn bundle(&self, release: &Release) -> PathBuf {
        self.bundle_file(&format!("agent-bridge-v{}.mcpb", release.id()), &release.bundle())
    }

    /// Writes a bundle of these bytes; gives its path.
    pub fn bundle_file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join("bundles").join(name);
        write(&path, bytes);
        path
    }

    /// Installs a release through the command; gives its id.
    #[track_caller]
    pub fn install(&self, release: &Release) -> String {
        self.try_install(release, &[]).expect_code(0);
        release.id()
    }

    /// The same with more arguments, and with any end.
    #[track_caller]
    pub fn try_install(&self, release: &Release, arguments: &[&str]) -> Finished {
        let bundle = self.bundle(release);
        let mut command = self.bridge_command(["install-release"]);
        command.arg(bundle).args(arguments);
        super::process::run(command, super::process::DEADLINE)
    }

    /// Puts a release in place as the command would, without it; gives its id.
    pub fn place(&self, release: &Release) -> String {
        place_in(&self.layout(), release)
    }

    /// Puts the program under test in place as the launcher, a file of its own; gives its path.
    pub fn place_launcher(&self) -> PathBuf {
        let launcher = self.layout().launcher();
        write(&launcher, std::fs::read(BRIDGE).expect("the program under test"));
        set_mode(&launcher, 0o755);
        launcher
    }

    /// Makes a placed release current as a cutover would, without one: launcher, pointer and a generation that is
    /// good. Gives the number of the generation.
    pub fn make_current(&self, id: &str) -> u64 {
        if !self.layout().launcher().exists() {
            self.place_launcher();
        }
        make_current_in(&self.layout(), id)
    }

    /// The current pointer.
    #[track_caller]
    pub fn current(&self) -> Pointer {
        pointer::current(&self.layout()).expect("a release is current")
    }

    /// Everything in ROOT; see [`tree`].
    pub fn tree(&self) -> BTreeMap<String, String> {
        tree(&self.root)
    }

    /// The same without what every command may add to: journal, locks and leases.
    pub fn lasting_tree(&self) -> BTreeMap<String, String> {
        let passing = |path: &str| {
            ["journal", "locks", "leases", "holders", "backups"]
                .iter()
                .any(|name| path == *name || path.starts_with(&format!("{name}/")))
        };
        self.tree().into_iter().filter(|(path, _)| !passing(path)).collect()
    }

    /// Makes a file of a sealed release writable and gives it other content.
    pub fn damage(&self, id: &str, file: &str, bytes: impl AsRef<[u8]>) {
        let path = self.layout().releases().join(id).join(file);
        let mode = platform::mode_of(&path);
        set_mode(&path, 0o755);
        std::fs::write(&path, bytes).expect("a file of a release");
        if let Some(mode) = mode {
            set_mode(&path, mode);
        }
    }
}

/// Puts a release in place as the command would, without it, in an installation anywhere; gives its id.
pub fn place_in(layout: &Layout, release: &Release) -> String {
    layout.create().expect("the folders of the installation");
    let id = ReleaseId::parse(&release.id()).expect("a release id");
    let folder = layout.release(&id);
    assert!(!folder.exists(), "{id} is there already");
    release.unpack(&folder, true);
    platform::seal_tree(&folder).expect("a read-only release");
    let bundle_sha256 = digest::of_bytes(&release.bundle());
    let found = verify::release(layout, &id).expect("a release that is whole");
    let receipt = json!({
        "schemaVersion": 1,
        "releaseId": id,
        "bundleSha256": bundle_sha256,
        "metadataSha256": found.metadata_sha256,
        "manifestSha256": found.metadata.manifest_sha256,
        "source": "bundle",
        "installedAt": "2026-01-01T00:00:00.000Z",
        "installedBy": { "version": "0.0.0", "sha256": "0".repeat(64) },
    });
    write(&layout.receipt(&id), format!("{receipt:#}\n"));
    id.to_string()
}

/// Makes a placed release current as a cutover would, without one, in an installation that has a launcher: pointer
/// and a generation that is good. Gives the number of the generation.
pub fn make_current_in(layout: &Layout, id: &str) -> u64 {
    let id = ReleaseId::parse(id).expect("a release id");
    let found = verify::metadata(layout, &id).expect("a release that is there");
    let before = pointer::read(layout).expect("a pointer that can be read");
    let config_sha256 = digest::of_file(&layout.config()).ok().map(|(sha256, _)| sha256);
    let (sha256, bytes) = digest::of_file(&layout.launcher()).expect("the launcher");
    let runtime = found.metadata.runtime_record().expect("the record of the program").clone();
    let generation = before.as_ref().map_or(1, |(_, pointer)| pointer.generation + 1);
    let pointer = Pointer {
        schema_version: 2,
        generation,
        release_id: id.clone(),
        target: found.metadata.target.triple.clone(),
        runtime_path: format!("releases/{id}/{}", found.metadata.runtime),
        runtime_sha256: runtime.sha256,
        runtime_bytes: runtime.bytes,
        metadata_sha256: found.metadata_sha256,
        manifest_sha256: found.metadata.manifest_sha256.clone(),
        config_sha256: config_sha256.clone(),
        launcher: LauncherFacts { sha256, bytes, protocol: LAUNCHER_PROTOCOL },
        previous: before.as_ref().map(|(_, pointer)| Previous {
            generation: pointer.generation,
            release_id: pointer.release_id.clone(),
            config_sha256: pointer.config_sha256.clone(),
        }),
        trial: None,
        txid: format!("{generation:06}-test"),
        promoted_at: "2026-01-01T00:00:00.000Z".into(),
    };
    let slot = before.as_ref().map_or(0, |(slot, _)| 1 - slot);
    write(&layout.slot(slot), pointer::encode(&pointer));
    write(&layout.pointer_copy(), format!("{:#}\n", serde_json::to_value(&pointer).expect("JSON")));
    let record = Generation {
        number: generation,
        parent: before.map(|(_, pointer)| pointer.generation),
        restores: None,
        release_id: id,
        config_sha256,
        txid: pointer.txid,
        promoted_at: pointer.promoted_at,
        reason: None,
        verdict: Verdict::Good,
        because: None,
    };
    write(&layout.generation(generation), record.to_text());
    generation
}

/// Everything below a folder: by its path with slashes its kind, mode and content. Two trees that are equal
/// are the same to the last bit.
pub fn tree(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in walkdir::WalkDir::new(folder).min_depth(1) {
        let entry = entry.expect("a folder that can be walked");
        let inside = entry.path().strip_prefix(folder).expect("a path in the folder");
        let name = inside.to_string_lossy().replace('\\', "/");
        let mode = platform::mode_of(entry.path()).unwrap_or_default();
        let kind = entry.file_type();
        let what = if kind.is_dir() {
            format!("folder {mode:04o}")
        } else if kind.is_symlink() {
            format!("link {}", std::fs::read_link(entry.path()).expect("a link").display())
        } else {
            let (sha256, bytes) = digest::of_file(entry.path()).expect("a file that can be read");
            format!("file {mode:04o} {bytes} {sha256}")
        };
        found.insert(name, what);
    }
    found
}

/// Sets the permission bits of a file, where there are such.
#[cfg(unix)]
pub fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("the mode of a file");
}

/// Sets the read-only attribute by the owner's right to write.
#[cfg(windows)]
pub fn set_mode(path: &Path, mode: u32) {
    let mut permissions = std::fs::metadata(path).expect("a file").permissions();
    #[allow(clippy::permissions_set_readonly_false, reason = "an attribute on Windows")]
    permissions.set_readonly(mode & 0o200 == 0);
    std::fs::set_permissions(path, permissions).expect("the attribute of a file");
}
