//! A file system in an image file whose every write is logged in order, and the disks that a power cut can leave:
//! everything up to some flush, and after that any choice of the writes until the next one.
//!
//! Image file → `qemu-storage-daemon` with a write log, exported through FUSE → loop device → file system. Needs
//! root.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::block_log::{self, Entry, Write};

/// How finely an image is looked through for zeros.
const PIECE: usize = 64 * 1024;

/// A kind of file system.
#[derive(Debug)]
pub struct FileSystem {
    pub name: &'static str,
    /// The command that makes one; the image comes last.
    pub make: &'static [&'static str],
    pub options: &'static str,
    pub bytes: u64,
}

pub const EXT4: FileSystem = FileSystem {
    name: "ext4",
    make: &["mkfs.ext4", "-q", "-F", "-E", "nodiscard"],
    options: "noatime",
    bytes: 48 << 20,
};

/// Without the heuristic that flushes a file when it is renamed over another.
pub const EXT4_PLAIN: FileSystem =
    FileSystem { name: "ext4 noauto_da_alloc", options: "noatime,noauto_da_alloc", ..EXT4 };

pub const EXT4_WRITEBACK: FileSystem =
    FileSystem { name: "ext4 data=writeback", options: "noatime,noauto_da_alloc,data=writeback", ..EXT4 };

pub const XFS: FileSystem = FileSystem {
    name: "xfs",
    make: &["mkfs.xfs", "-q", "-f", "-K"],
    options: "noatime,nouuid",
    bytes: 300 << 20,
};

pub const BTRFS: FileSystem = FileSystem {
    name: "btrfs",
    make: &["mkfs.btrfs", "-q", "-f", "-K"],
    options: "noatime",
    bytes: 128 << 20,
};

/// What is missing to make disks here, if anything is.
pub fn missing(kinds: &[&FileSystem]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root, to mount".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            return Some(format!("there is no {device}"));
        }
    }
    let programs = ["qemu-storage-daemon", "strace", "mount", "umount"];
    let makers = kinds.iter().map(|kind| kind.make[0]);
    programs
        .into_iter()
        .chain(makers)
        .find(|program| !super::has(program))
        .map(|program| format!("{program} is not installed"))
}

/// A place for images, with one mount point.
pub struct Bench {
    folder: PathBuf,
    kind: &'static FileSystem,
}

/// A mounted image.
pub struct Mounted<'a> {
    bench: &'a Bench,
    is_mounted: bool,
}

/// A device whose writes are logged.
pub struct Logged<'a> {
    bench: &'a Bench,
    daemon: Child,
}

impl Bench {
    pub fn new(kind: &'static FileSystem) -> Self {
        let name =
            format!("agent-bridge-power-{}-{}", std::process::id(), kind.name.replace([' ', '='], "-"));
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let folder = base.join(name);
        fs::create_dir(&folder).unwrap();
        let this = Self { folder, kind };
        fs::create_dir(this.mount_point()).unwrap();
        fs::create_dir(this.aside()).unwrap();
        this
    }

    pub fn mount_point(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// For what is no part of the disk.
    pub fn aside(&self) -> PathBuf {
        self.folder.join("aside")
    }

    pub fn image(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.img"))
    }

    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Makes an empty file system.
    pub fn format(&self, name: &str) {
        let image = self.image(name);
        File::create(&image).unwrap().set_len(self.kind.bytes).unwrap();
        succeed(Command::new(self.kind.make[0]).args(&self.kind.make[1..]).arg(&image));
    }

    pub fn mount(&self, name: &str) -> Mounted<'_> {
        self.try_mount(&self.image(name)).unwrap_or_else(|why| panic!("{name} cannot be mounted: {why}"))
    }

    pub fn try_mount(&self, image: &Path) -> Result<Mounted<'_>, String> {
        let options = format!("loop,{}", self.kind.options);
        let done = Command::new("mount")
            .args(["-t", self.kind.make[0].trim_start_matches("mkfs."), "-o", &options])
            .args([image, &self.mount_point()])
            .output()
            .unwrap();
        match done.status.success() {
            true => Ok(Mounted { bench: self, is_mounted: true }),
            false => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
        }
    }

    /// Waits until no loop device has an image of this bench. A process that took a copy of all mounts for a namespace
    /// of its own keeps the file system alive as long as it runs, and until then not everything is written.
    fn wait_until_released(&self) {
        let folder = self.folder.to_str().unwrap();
        let is_held = || {
            let devices = fs::read_dir("/sys/block").unwrap().flatten();
            devices
                .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok())
                .any(|file| file.starts_with(folder))
        };
        let end = Instant::now() + Duration::from_secs(60);
        while is_held() {
            assert!(Instant::now() < end, "somebody keeps a copy of {folder}'s mount");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts to log the writes to an image.
    pub fn log_writes(&self, name: &str) -> Logged<'_> {
        for file in [self.log(), self.image("export")] {
            let _ = fs::remove_file(&file);
            File::create(&file).unwrap();
        }
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let daemon = Command::new("qemu-storage-daemon")
            .arg("--blockdev")
            .arg(format!("driver=file,node-name=image,filename={}", text(self.image(name))))
            .arg("--blockdev")
            .arg(format!("driver=file,node-name=log,filename={}", text(self.log())))
            .args([
                "--blockdev",
                "driver=blklogwrites,node-name=device,file=image,log=log,log-sector-size=512",
            ])
            .arg("--export")
            .arg(format!(
                "type=fuse,id=e,node-name=device,mountpoint={},writable=on",
                text(self.image("export"))
            ))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let logged = Logged { bench: self, daemon };
        let end = Instant::now() + Duration::from_secs(20);
        while fs::metadata(self.image("export")).map_or(0, |found| found.len()) != self.kind.bytes {
            assert!(Instant::now() < end, "qemu-storage-daemon exported nothing in time");
            std::thread::sleep(Duration::from_millis(5));
        }
        logged
    }

    /// Copies an image, without the holes in it and without what is all zeros.
    pub fn copy(&self, from: &str, to: &str) {
        use rustix::fs::SeekFrom;
        // A file of its own: `mount` uses a loop device that is still there for the same file once more.
        let _ = fs::remove_file(self.image(to));
        let (from, to) = (File::open(self.image(from)).unwrap(), File::create(self.image(to)).unwrap());
        let length = from.metadata().unwrap().len();
        to.set_len(length).unwrap();
        let mut at = 0;
        let mut buffer = Vec::new();
        while let Ok(start) = rustix::fs::seek(&from, SeekFrom::Data(at)) {
            let end = rustix::fs::seek(&from, SeekFrom::Hole(start)).unwrap_or(length);
            buffer.resize(usize::try_from(end - start).unwrap(), 0);
            from.read_exact_at(&mut buffer, start).unwrap();
            for (index, piece) in buffer.chunks(PIECE).enumerate() {
                if piece.iter().any(|byte| *byte != 0) {
                    to.write_all_at(piece, start + (index * PIECE) as u64).unwrap();
                }
            }
            at = end;
        }
    }

    /// Writes into an image.
    pub fn apply<'w>(&self, name: &str, writes: impl IntoIterator<Item = &'w Write>) {
        let file = OpenOptions::new().write(true).open(self.image(name)).unwrap();
        for write in writes {
            file.write_all_at(&write.bytes, write.at).unwrap();
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Mounted<'_> {
    pub fn unmount(mut self) {
        self.is_mounted = false;
        succeed(Command::new("umount").arg(self.bench.mount_point()));
        self.bench.wait_until_released();
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(self.bench.mount_point()).status();
        }
    }
}

impl Logged<'_> {
    pub fn mount(&self) -> Mounted<'_> {
        self.bench.mount("export")
    }

    /// How many writes are on the disk for certain.
    pub fn flushed(&self) -> usize {
        block_log::flushed(&self.bench.log())
    }

    /// Ends; gives what was written.
    pub fn finish(mut self) -> Vec<Entry> {
        self.end();
        block_log::read(&self.bench.log())
    }

    fn end(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.daemon),
            rustix::process::Signal::TERM,
        );
        let _ = self.daemon.wait();
    }
}

impl Drop for Logged<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn succeed(command: &mut Command) {
    let done = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
