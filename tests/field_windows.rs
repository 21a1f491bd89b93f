//! Reports from the field about what Windows does to an installation: files that are held open, links that need
//! rights, programs that cannot be replaced while they run. What can be asked of any system is asked of each.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it cannot go on")]

mod support;

use std::path::Path;

use agent_bridge::digest;
use agent_bridge::release::journal::{FileFacts, Journal, Record};
use support::prelude::*;

/// The program under test as another file: a program may carry what it likes behind its end.
fn variant(mark: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(support::world::BRIDGE).unwrap();
    bytes.extend_from_slice(mark.as_bytes());
    bytes
}

fn write_config(at: &ReleaseWorld) {
    let config = json!({
        "allowedRoots": [at.repo()], "stateDir": at.state(),
        "agents": { "codex": { "enabled": false }, "claude": { "enabled": false } },
    });
    support::world::write(&at.layout().config(), config.to_string());
}

/// A world whose launcher is the program under test and whose current release is another one.
fn current() -> (ReleaseWorld, String) {
    let at = ReleaseWorld::new();
    let id = at.install(&Release::of_bridge("1.0.0"));
    write_config(&at);
    at.bridge(["cutover", &id, "--yes"]).expect_code(0);
    (at, id)
}

fn by_launcher(at: &ReleaseWorld, arguments: &[&str]) -> Finished {
    let mut command = at.command(at.layout().launcher());
    command.args(arguments);
    process::run(command, DEADLINE)
}

fn server(at: &ReleaseWorld) -> Host {
    let mut command = at.command(at.layout().launcher());
    command.arg("serve");
    let mut host = Host::start(command);
    host.initialize();
    host
}

fn leave(mut host: Host) {
    host.hang_up();
    host.wait_exit(DEADLINE).expect_code(0);
}

fn links(root: &Path) -> Vec<std::path::PathBuf> {
    let all = walkdir::WalkDir::new(root).into_iter().map(|entry| entry.unwrap().into_path());
    all.filter(|path| path.is_symlink()).collect()
}

/// Field report 92: nothing of a release's life needs a link.
#[test]
fn links_on_windows_need_rights() {
    let (at, old) = current();
    let new = at.install(&Release::of_bridge("1.1.0"));
    at.bridge(["cutover", &new, "--yes"]).expect_code(0);
    leave(server(&at));
    at.bridge(["rollback", "--yes"]).expect_code(0);
    assert_eq!(at.current().release_id.as_str(), old);
    assert_eq!(links(at.root()), [""; 0].map(std::path::PathBuf::from));
}

/// The same where the system refuses every link.
#[cfg(target_os = "linux")]
#[test]
fn no_call_that_makes_a_link_has_to_succeed() {
    let Some(strace) = support::world::find_program("strace") else {
        assert!(std::env::var_os("CI").is_none(), "strace is not installed");
        return;
    };
    let at = ReleaseWorld::new();
    let without_links = |arguments: &[&str]| {
        let mut command = at.command(&strace);
        command.args(["-qq", "-f", "-o"]).arg(at.path().join("trace"));
        command.args(["-e", "trace=symlink,symlinkat,link,linkat"]);
        command.args(["-e", "inject=symlink,symlinkat,link,linkat:error=EPERM"]);
        command.arg(support::world::BRIDGE).args(arguments);
        process::run(command, DEADLINE)
    };
    let bundle = at.bundle(&Release::of_bridge("1.0.0"));
    without_links(&["install-release", bundle.to_str().unwrap()]).expect_code(0);
    write_config(&at);
    let id = Release::of_bridge("1.0.0").id();
    without_links(&["cutover", &id, "--yes"]).expect_code(0);
    leave(server(&at));
    assert_eq!(links(at.root()), [""; 0].map(std::path::PathBuf::from));
}

/// Field report 41: a file of the installation is held open while it is to be replaced.
#[cfg(windows)]
#[test]
fn windows_rename_meets_a_scanner() {
    use std::os::windows::fs::OpenOptionsExt as _;
    const SHARE_READ: u32 = 1;
    let (at, old) = current();
    let new = at.install(&Release::of_bridge("1.1.0"));
    let hold =
        |path: &Path| std::fs::OpenOptions::new().read(true).share_mode(SHARE_READ).open(path).unwrap();
    let staged = at.path().join("staged.json");
    let text = std::fs::read_to_string(at.layout().config()).unwrap();
    std::fs::write(&staged, format!("{text}\n")).unwrap();
    let cutover = || {
        let mut command = at.command(support::world::BRIDGE);
        command.args(["cutover", &new, "--yes", "--stage-config"]).arg(&staged);
        command
    };
    // For good, before the decision: everything is as before.
    let before = at.lasting_tree();
    let held = hold(&at.layout().config());
    let refused = process::run(cutover(), DEADLINE).expect_code(75);
    assert!(refused.stderr().contains("WRITE_TARGET_BUSY"), "{refused}");
    assert!(refused.stderr().contains("config.json"), "{refused}");
    drop(held);
    assert!(at.lasting_tree() == before, "something was changed");
    assert_eq!(at.current().release_id.as_str(), old);
    // For a moment: nobody notices.
    let held = [hold(&at.layout().config()), hold(&at.layout().pointer_copy())];
    let running = process::start(cutover());
    // How long the scanner of the report took, not a wait for something.
    std::thread::sleep(Duration::from_millis(300));
    drop(held);
    running.finish(DEADLINE).expect_code(0);
    assert_eq!(at.current().release_id.as_str(), new);
    leave(server(&at));
}

/// A launcher that does a cutover may be the one that the cutover replaces.
#[test]
fn a_launcher_replaces_itself_and_goes_back() {
    let (at, old) = current();
    let bytes = variant("another program");
    let new = at.install(&Release::of_bytes("1.1.0", bytes.clone()));
    by_launcher(&at, &["cutover", &new, "--yes", "--update-launcher"]).expect_code(0);
    assert!(std::fs::read(at.layout().launcher()).unwrap() == bytes, "it is the new one");
    leave(server(&at));
    by_launcher(&at, &["rollback", "--yes"]).expect_code(0);
    assert_eq!(at.current().release_id.as_str(), old);
    leave(server(&at));
    by_launcher(&at, &["recover"]).expect_code(0);
    only_the_launcher_is_left(&at);
    assert_eq!(at.bridge(["inspect", "--json"]).expect_code(0).json()["findings"], json!([]));
}

/// The launcher that a host starts finds a cutover that was cut off after it had replaced this very launcher.
#[test]
fn a_launcher_undoes_the_replacement_of_itself_while_it_runs() {
    let (at, old) = current();
    let launcher = at.layout().launcher();
    let before = std::fs::read(&launcher).unwrap();
    let after = variant("a launcher that is undone");
    let mut journal = Journal::create(&at.layout(), "cutover").unwrap();
    let backup = at.layout().backup(journal.txid()).join("001-launcher");
    support::world::write(&backup, &before);
    let records = [
        Record::Begin { operation: "cutover".into(), reason: None, facts: json!({}) },
        Record::Replace {
            path: launcher.clone(),
            before: Some(FileFacts::of(&before)),
            after: Some(FileFacts::of(&after)),
            backup: at.layout().relative(&backup),
            client: None,
            patch: Vec::new(),
        },
    ];
    for record in records {
        assert!(journal.append("2026-01-01T00:00:00.000Z", record).is_ok());
    }
    drop(journal);
    std::fs::remove_file(&launcher).unwrap();
    std::fs::write(&launcher, &after).unwrap();
    support::release::set_mode(&launcher, 0o755);

    let host = server(&at);
    assert_eq!(digest::of_file(&launcher).unwrap().0, digest::of_bytes(&before), "it is the old one again");
    leave(host);
    assert_eq!(at.current().release_id.as_str(), old);
    leave(server(&at));
    at.bridge(["recover"]).expect_code(0);
    only_the_launcher_is_left(&at);
}

/// What was killed while it replaced the launcher may have left no launcher at all.
#[test]
fn a_launcher_that_is_missing_after_a_crash_is_put_back() {
    let (at, _) = current();
    let launcher = at.layout().launcher();
    let before = std::fs::read(&launcher).unwrap();
    let mut journal = Journal::create(&at.layout(), "cutover").unwrap();
    let backup = at.layout().backup(journal.txid()).join("001-launcher");
    support::world::write(&backup, &before);
    let begin = Record::Begin { operation: "cutover".into(), reason: None, facts: json!({}) };
    let replace = Record::Replace {
        path: launcher.clone(),
        before: Some(FileFacts::of(&before)),
        after: Some(FileFacts::of(b"never came to be")),
        backup: at.layout().relative(&backup),
        client: None,
        patch: Vec::new(),
    };
    for record in [begin, replace] {
        assert!(journal.append("2026-01-01T00:00:00.000Z", record).is_ok());
    }
    drop(journal);
    std::fs::remove_file(&launcher).unwrap();
    let recovered = at.bridge(["recover", "--json"]).expect_code(0).json();
    assert_eq!((&recovered["outcome"], &recovered["conflicts"]), (&json!("undone"), &json!([])));
    assert!(std::fs::read(&launcher).unwrap() == before, "it is there again");
    leave(server(&at));
}

/// Programs that ran under a name that was taken from them are gone once they have ended and it was tidied up.
fn only_the_launcher_is_left(at: &ReleaseWorld) {
    let folder = at.layout().root().join("bin");
    process::wait_until("a tidy folder of programs", DEADLINE, || {
        at.bridge(["recover"]).expect_code(0);
        std::fs::read_dir(&folder).unwrap().count() == 1
    });
}
