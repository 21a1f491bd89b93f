//! Wrappers as npm and pnpm write them, and everything that only looks like one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::error::Coded;

const NPM: &str = "@ECHO off\r\nGOTO start\r\n:find_dp0\r\nSET dp0=%~dp0\r\nEXIT /b\r\n:start\r\nSETLOCAL\r\nCALL :find_dp0\r\n\r\nIF EXIST \"%dp0%\\node.exe\" (\r\n  SET \"_prog=%dp0%\\node.exe\"\r\n) ELSE (\r\n  SET \"_prog=node\"\r\n  SET PATHEXT=%PATHEXT:;.JS;=;%\r\n)\r\n\r\nendLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & \"%_prog%\"  \"%dp0%\\node_modules\\@openai\\codex\\bin\\codex.js\" %*\r\n";
const PNPM: &str = "@SETLOCAL\r\n@IF NOT DEFINED NODE_PATH (\r\n  @SET \"NODE_PATH=C:\\p\\node_modules\"\r\n) ELSE (\r\n  @SET \"NODE_PATH=C:\\p\\node_modules;%NODE_PATH%\"\r\n)\r\n@IF EXIST \"%~dp0\\node.exe\" (\r\n  \"%~dp0\\node.exe\"  \"%~dp0\\global\\5\\node_modules\\@openai\\codex\\bin\\codex.js\" %*\r\n) ELSE (\r\n  @SET PATHEXT=%PATHEXT:;.JS;=;%\r\n  node  \"%~dp0\\global\\5\\node_modules\\@openai\\codex\\bin\\codex.js\" %*\r\n)\r\n";
const ENTRY: &str = r"C:\npm\node_modules\@openai\codex\bin\codex.js";

#[derive(Default)]
struct Disk {
    files: BTreeMap<String, Vec<u8>>,
    links: BTreeMap<String, String>,
}

impl Disk {
    fn with(files: &[(&str, &str)]) -> Self {
        let files =
            files.iter().map(|(path, text)| (path.to_lowercase(), text.as_bytes().to_vec())).collect();
        Self { files, links: BTreeMap::new() }
    }

    fn npm(shim: &str) -> Self {
        Self::with(&[(r"C:\npm\codex.cmd", shim), (ENTRY, "js"), (r"C:\nodejs\node.exe", "MZ")])
    }
}

impl Files for Disk {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.files.get(&path.to_lowercase()).cloned()
    }
    fn is_file(&self, path: &str) -> bool {
        self.files.contains_key(&path.to_lowercase())
    }
    fn canonical(&self, path: &str) -> Option<String> {
        Some(self.links.get(&path.to_lowercase()).cloned().unwrap_or_else(|| path.to_owned()))
    }
}

const SEARCH: Search<'_> =
    Search { cwd: r"C:\work", path: r"C:\Windows;C:\npm;.;C:\nodejs\", pathext: DEFAULT_PATHEXT };

fn code(result: Result<Target, ProcessError>) -> &'static str {
    result.map(|_| "OK").unwrap_or_else(|error| error.doc().code)
}

fn start(disk: &Disk) -> Result<Target, ProcessError> {
    resolve("codex", &SEARCH, disk)
}

#[test]
fn an_npm_wrapper_leads_to_node_and_its_entry() {
    let target = start(&Disk::npm(NPM)).unwrap();
    assert_eq!(target.program, r"C:\nodejs\node.exe");
    assert_eq!(target.prefix_args, [ENTRY]);
}

#[test]
fn a_program_that_nobody_wraps_is_not_started_through_a_script() {
    let native = |disk: &Disk| resolve_native("codex", &SEARCH, disk);
    assert_eq!(code(native(&Disk::npm(NPM))), "UNSAFE_WINDOWS_BATCH_SHIM");
    assert_eq!(code(native(&Disk::with(&[(r"C:\npm\codex.bat", "x")]))), "UNSAFE_WINDOWS_BATCH_SHIM");
    assert_eq!(code(native(&Disk::with(&[]))), "PROGRAM_NOT_FOUND");
    let disk = Disk::with(&[(r"C:\npm\codex.exe", "MZ"), (r"C:\npm\codex.cmd", NPM)]);
    assert_eq!(native(&disk).unwrap().program, r"C:\npm\codex.exe");
}

#[test]
fn node_beside_the_wrapper_comes_first() {
    let mut disk = Disk::npm(NPM);
    disk.files.insert(r"c:\npm\node.exe".into(), b"MZ".to_vec());
    assert_eq!(start(&disk).unwrap().program, r"C:\npm\node.exe");
}

#[test]
fn arguments_for_node_are_kept() {
    let shim = NPM.replace("\"%_prog%\"  ", "\"%_prog%\" --no-warnings=DEP0040 ");
    let target = start(&Disk::npm(&shim)).unwrap();
    assert_eq!(target.prefix_args, ["--no-warnings=DEP0040", ENTRY]);
}

#[test]
fn older_tails_marks_and_line_ends_are_accepted() {
    let plain = NPM.replace("endLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & ", "");
    for shim in [
        plain,
        format!("\u{FEFF}{NPM}"),
        NPM.replace("\r\n", "\n"),
        NPM.replace("codex.js\" %*\r\n", "codex.js\" %*"),
    ] {
        assert_eq!(code(start(&Disk::npm(&shim))), "OK", "{shim}");
    }
}

#[test]
fn a_pnpm_wrapper_is_understood() {
    let entry = r"C:\npm\global\5\node_modules\@openai\codex\bin\codex.js";
    let disk = Disk::with(&[(r"C:\npm\codex.cmd", PNPM), (entry, "js"), (r"C:\nodejs\node.exe", "MZ")]);
    assert_eq!(start(&disk).unwrap().prefix_args, [entry]);
    let differing = PNPM.replace("node  \"%~dp0\\global\\5", "node  \"%~dp0\\global\\6");
    let disk = Disk::with(&[(r"C:\npm\codex.cmd", &differing), (entry, "js"), (r"C:\nodejs\node.exe", "MZ")]);
    assert_eq!(code(start(&disk)), "UNSAFE_WINDOWS_BATCH_SHIM");
}

#[test]
fn a_native_wrapper_leads_to_its_program() {
    let head: String = NPM.split_inclusive("\r\n").take(8).collect();
    let shim = format!("{head}\"%dp0%\\node_modules\\tool\\tool.exe\"   %*\r\n");
    let exe = r"C:\npm\node_modules\tool\tool.exe";
    let disk = Disk::with(&[(r"C:\npm\codex.cmd", &shim), (exe, "MZ")]);
    assert_eq!(start(&disk).unwrap(), Target { program: exe.into(), prefix_args: vec![] });
}

#[test]
fn a_project_local_wrapper_reaches_its_sibling_packages() {
    let shim = NPM.replace(r"%dp0%\node_modules\@openai", r"%dp0%\..\@openai");
    let entry = r"C:\p\node_modules\@openai\codex\bin\codex.js";
    let disk = Disk::with(&[
        (r"C:\p\node_modules\.bin\codex.cmd", &shim),
        (entry, "js"),
        (r"C:\nodejs\node.exe", "MZ"),
    ]);
    let target = resolve(r"C:\p\node_modules\.bin\codex.cmd", &SEARCH, &disk).unwrap();
    assert_eq!(target.prefix_args, [entry]);
}

#[test]
fn whatever_is_not_exactly_a_wrapper_is_refused() {
    let tail = NPM.lines().last().unwrap();
    let traps = [
        // A comment that looks like the tail, and no tail.
        NPM.replace(tail, &format!("REM {tail}")),
        NPM.replace(tail, &format!(":: {tail}")),
        // Twice.
        format!("{NPM}{tail}\r\n"),
        // More before or after it.
        format!("@echo hello\r\n{NPM}"),
        format!("{NPM}del C:\\x\r\n"),
        NPM.replace(" %*", " %* & calc.exe"),
        NPM.replace(" %*", " %1"),
        // Dynamic or foreign entries.
        NPM.replace(r"%dp0%\node_modules\@openai", r"%TARGET%"),
        NPM.replace(r"\node_modules\@openai", r"\node_modules\%X%"),
        NPM.replace(r"%dp0%\node_modules", r"C:\evil\node_modules"),
        NPM.replace("_prog=node\"", "_prog=deno\""),
        NPM.replace("\"%_prog%\"  ", "\"%_prog%\" -e evil() "),
        NPM.replace("\"%_prog%\"  ", "\"%_prog%\" --x=%PATH% "),
        NPM.replace("SETLOCAL", "SETLOCAL ENABLEDELAYEDEXPANSION"),
        NPM.replace("EXIT /b", "EXIT /b\r\n"),
        NPM.replace("SET dp0=%~dp0", "SET dp0=C:\\evil\\"),
        NPM.replace("codex.js", "codex.js\u{1a}"),
        "@echo off\r\nnode \"%~dp0\\node_modules\\x\\x.js\" %*\r\n".into(),
        String::new(),
    ];
    for trap in traps {
        assert_eq!(code(start(&Disk::npm(&trap))), "UNSAFE_WINDOWS_BATCH_SHIM", "{trap}");
    }
}

#[test]
fn entries_must_stay_in_their_package_folder() {
    let outside = NPM.replace(r"%dp0%\node_modules\@openai\codex", r"%dp0%\node_modules\..\..\evil");
    let mut disk = Disk::npm(&outside);
    disk.files.insert(r"c:\evil\bin\codex.js".into(), b"js".to_vec());
    assert_eq!(code(start(&disk)), "UNSAFE_WINDOWS_BATCH_SHIM");

    let beside = NPM.replace(r"%dp0%\node_modules\@openai", r"%dp0%\lib\@openai");
    let mut disk = Disk::npm(&beside);
    disk.files.insert(r"c:\npm\lib\@openai\codex\bin\codex.js".into(), b"js".to_vec());
    assert_eq!(code(start(&disk)), "UNSAFE_WINDOWS_BATCH_SHIM");

    let mut linked = Disk::npm(NPM);
    linked.links.insert(ENTRY.to_lowercase(), r"C:\npm2\node_modules\x.js".into());
    assert_eq!(code(start(&linked)), "UNSAFE_WINDOWS_BATCH_SHIM");

    let mut missing = Disk::npm(NPM);
    missing.files.remove(&ENTRY.to_lowercase());
    assert_eq!(code(start(&missing)), "UNSAFE_WINDOWS_BATCH_SHIM");
}

#[test]
fn endings_decide_what_may_start() {
    let disk = Disk::with(&[
        (r"C:\npm\a.exe", "MZ"),
        (r"C:\npm\b.bat", "x"),
        (r"C:\npm\c", "#!/bin/sh"),
        (r"C:\npm\d.ps1", "x"),
    ]);
    let go = |bin: &str| code(resolve(bin, &SEARCH, &disk));
    assert_eq!(go("a"), "OK");
    assert_eq!(go("a.exe"), "OK");
    assert_eq!(go("b"), "UNSAFE_WINDOWS_BATCH_SHIM");
    assert_eq!(go(r"C:\npm\b.bat"), "UNSAFE_WINDOWS_BATCH_SHIM");
    assert_eq!(go(r"C:\npm\B.BAT"), "UNSAFE_WINDOWS_BATCH_SHIM");
    assert_eq!(go("c"), "PROGRAM_NOT_FOUND");
    assert_eq!(go(r"C:\npm\d.ps1"), "PROGRAM_NOT_EXECUTABLE");
    assert_eq!(go("none"), "PROGRAM_NOT_FOUND");
    assert_eq!(go(r"\npm\a.exe"), "PROGRAM_NOT_FOUND");
    assert_eq!(go("C:a.exe"), "PROGRAM_NOT_FOUND");
}

#[test]
fn relative_paths_are_taken_from_the_working_folder_and_path_never_is() {
    let disk = Disk::with(&[(r"C:\work\tools\a.exe", "MZ"), (r"C:\work\b.exe", "MZ")]);
    let target = resolve(r"tools\..\tools\a", &SEARCH, &disk).unwrap();
    assert_eq!(target.program, r"C:\work\tools\a.exe");
    assert_eq!(code(resolve("b", &SEARCH, &disk)), "PROGRAM_NOT_FOUND");
}

#[test]
fn without_node_its_absence_is_named() {
    let mut disk = Disk::npm(NPM);
    disk.files.remove(r"c:\nodejs\node.exe");
    assert_eq!(code(start(&disk)), "INTERPRETER_MISSING");
}

#[test]
fn paths_are_compared_by_component_and_without_case() {
    assert_eq!(inside(r"C:\NPM\x\y", r"c:\npm"), Some(r"x\y"));
    assert_eq!(inside(r"C:\npm2\x", r"C:\npm"), None);
    assert_eq!(inside(r"C:\npm", r"C:\npm"), None);
    assert_eq!(normalise(r"C:\a\..\..\..\b"), r"C:\b");
    assert_eq!(normalise(r"\\host\share\..\..\x"), r"\\host\share\x");
}

proptest! {
    #[test]
    fn one_changed_character_never_starts_another_file(position in 0usize..NPM.len(), replacement in "[ -~]") {
        let mut shim = NPM.to_owned();
        if shim.is_char_boundary(position) && shim.is_char_boundary(position + 1) {
            shim.replace_range(position..=position, &replacement);
        }
        if let Ok(target) = start(&Disk::npm(&shim)) {
            // Another case is the same file there.
            let entry = target.prefix_args.last().map(|entry| entry.to_ascii_lowercase());
            prop_assert_eq!(entry, Some(ENTRY.to_ascii_lowercase()));
            prop_assert!(target.program.eq_ignore_ascii_case(r"C:\nodejs\node.exe"));
        }
    }

    #[test]
    fn any_text_is_judged_without_a_panic(text in any::<String>(), bin in any::<String>()) {
        let _ = parse(&text);
        let _ = resolve(&bin, &SEARCH, &Disk::npm(&text));
    }
}
