//! Finds the real program behind a command name on Windows, without cmd.exe.
//!
//! Package managers put `.cmd` wrappers on PATH. Running one takes cmd.exe, which cuts arguments at line
//! ends and expands `%` and `^` in them. So the wrapper is read instead, and node is started on the entry
//! it names. Only the exact forms that npm and pnpm write are understood; all else is refused.
//!
//! Everything here is text and a small view of the file system, so every operating system tests it.

use super::ProcessError;

/// Wrappers are a few hundred bytes long.
pub(super) const MAX_SHIM: usize = 16 * 1024;

/// What is searched when PATHEXT is not set.
pub(super) const DEFAULT_PATHEXT: &str = ".COM;.EXE;.BAT;.CMD";

/// The part of the file system that is needed here. Paths are Windows paths.
pub(super) trait Files {
    /// The content, at most [`MAX_SHIM`] + 1 bytes of it.
    fn read(&self, path: &str) -> Option<Vec<u8>>;
    /// Whether it is a regular file (links are followed).
    fn is_file(&self, path: &str) -> bool;
    /// The path with every link resolved.
    fn canonical(&self, path: &str) -> Option<String>;
}

/// Where to look.
pub(super) struct Search<'a> {
    pub(super) cwd: &'a str,
    pub(super) path: &'a str,
    pub(super) pathext: &'a str,
}

/// What to start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) program: String,
    pub(super) prefix_args: Vec<String>,
}

/// Finds what to start for a command name or path.
pub(super) fn resolve(bin: &str, search: &Search<'_>, files: &dyn Files) -> Result<Target, ProcessError> {
    let found = find(bin, search, files)?;
    match extension(&found).as_deref() {
        Some("exe" | "com") => Ok(Target { program: found, prefix_args: Vec::new() }),
        Some("cmd") => from_shim(&found, search, files),
        Some("bat") => Err(refused(&found, "it is a .bat file, which only cmd.exe can run")),
        _ => Err(ProcessError::ProgramNotExecutable {
            program: found.into(),
            reason: "it is no .exe, .com or package manager's .cmd file".into(),
        }),
    }
}

/// The same for a program that no package manager wraps: a script in its place is refused, whatever it starts.
pub(super) fn resolve_native(
    bin: &str,
    search: &Search<'_>,
    files: &dyn Files,
) -> Result<Target, ProcessError> {
    let found = find(bin, search, files)?;
    match extension(&found).as_deref() {
        Some("cmd" | "bat") => {
            Err(refused(&found, "this agent is an .exe file, and no script in front of it"))
        }
        _ => resolve(&found, search, files),
    }
}

fn find(bin: &str, search: &Search<'_>, files: &dyn Files) -> Result<String, ProcessError> {
    let not_found = |searched: &str| ProcessError::ProgramNotFound {
        program: bin.to_owned(),
        searched: searched.to_owned(),
    };
    if bin.contains(['\\', '/', ':']) {
        let path = if is_absolute(bin) {
            normalise(bin)
        } else if bin.contains(':') || bin.starts_with(['\\', '/']) {
            return Err(not_found("the path names no drive or no folder on it"));
        } else {
            normalise(&format!("{}\\{bin}", search.cwd))
        };
        return candidates(&path, search.pathext)
            .into_iter()
            .find(|candidate| files.is_file(candidate))
            .ok_or_else(|| not_found("no such file"));
    }
    for folder in folders(search.path) {
        for candidate in candidates(&format!("{folder}\\{bin}"), search.pathext) {
            // A file without an ending is the Unix half of the wrapper.
            if extension(&candidate).is_some() && files.is_file(&candidate) {
                return Ok(candidate);
            }
        }
    }
    Err(not_found("searched PATH"))
}

/// PATH without its relative entries, which would depend on the working folder.
fn folders(path: &str) -> impl Iterator<Item = &str> {
    path.split(';')
        .map(|folder| folder.trim().trim_matches('"').trim_end_matches(['\\', '/']))
        .filter(|folder| is_absolute(folder) || (folder.len() == 2 && folder.ends_with(':')))
}

fn candidates(path: &str, pathext: &str) -> Vec<String> {
    const STARTABLE: [&str; 4] = [".com", ".exe", ".bat", ".cmd"];
    let mut found = Vec::new();
    if extension(path).is_some_and(|ending| STARTABLE.contains(&format!(".{ending}").as_str())) {
        found.push(path.to_owned());
    }
    found.extend(
        pathext
            .split(';')
            .map(|ending| ending.trim().to_ascii_lowercase())
            .filter(|ending| STARTABLE.contains(&ending.as_str()))
            .map(|ending| format!("{path}{ending}")),
    );
    if !found.iter().any(|known| known == path) {
        found.push(path.to_owned());
    }
    found
}

/// What a wrapper starts.
#[derive(Debug, PartialEq, Eq)]
enum Shim {
    /// Node with arguments of its own, then this file, relative to the wrapper's folder.
    Node { node_args: Vec<String>, entry: String },
    /// A program, relative to the wrapper's folder.
    Native { entry: String },
}

fn from_shim(path: &str, search: &Search<'_>, files: &dyn Files) -> Result<Target, ProcessError> {
    let refuse = |reason: &str| refused(path, reason);
    let bytes = files.read(path).ok_or_else(|| refuse("it cannot be read"))?;
    if bytes.len() > MAX_SHIM {
        return Err(refuse("it is longer than any package manager's wrapper"));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| refuse("it is not UTF-8 text"))?;
    let shim = parse(text).ok_or_else(|| refuse("it is not the exact form that npm or pnpm writes"))?;
    let folder = parent(path).ok_or_else(|| refuse("it lies in no folder"))?;
    match shim {
        Shim::Native { entry } => {
            let program = contained(folder, &entry, files).map_err(refuse)?;
            if extension(&program).as_deref() != Some("exe") {
                return Err(refuse("what it starts is no .exe file"));
            }
            Ok(Target { program, prefix_args: Vec::new() })
        }
        Shim::Node { node_args, entry } => {
            let entry = contained(folder, &entry, files).map_err(refuse)?;
            let program = node(folder, search.path, files).ok_or_else(|| {
                ProcessError::InterpreterMissing { program: path.into(), interpreter: "node.exe".into() }
            })?;
            let mut prefix_args = node_args;
            prefix_args.push(entry);
            Ok(Target { program, prefix_args })
        }
    }
}

/// The entry's path, if it is a file of a package that was installed beside the wrapper.
fn contained(folder: &str, entry: &str, files: &dyn Files) -> Result<String, &'static str> {
    let in_bin = folder.rsplit('\\').next().is_some_and(|name| name.eq_ignore_ascii_case(".bin"));
    let root = if in_bin { parent(folder).ok_or("it lies in no package folder")? } else { folder };
    let path = normalise(&format!("{folder}\\{entry}"));
    let below = inside(&path, root).ok_or("what it starts lies outside its package folder")?;
    let in_packages = below.split('\\').any(|part| part.eq_ignore_ascii_case("node_modules"));
    if !in_bin && !in_packages {
        return Err("what it starts does not lie below node_modules");
    }
    if !files.is_file(&path) {
        return Err("what it starts is missing or not a regular file");
    }
    let real = files.canonical(&path).ok_or("what it starts cannot be resolved")?;
    let real_root = files.canonical(root).ok_or("its package folder cannot be resolved")?;
    inside(&real, &real_root).ok_or("what it starts is a link that leads outside its package folder")?;
    Ok(path)
}

/// Node beside the wrapper (the wrapper's own first choice), else on PATH.
fn node(folder: &str, path: &str, files: &dyn Files) -> Option<String> {
    std::iter::once(folder)
        .chain(folders(path))
        .map(|folder| format!("{folder}\\node.exe"))
        .find(|candidate| files.is_file(candidate) && files.canonical(candidate).is_some())
}

fn parse(text: &str) -> Option<Shim> {
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let lines: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    if lines.iter().any(|line| line.chars().any(|c| c.is_control())) {
        return None;
    }
    let end = lines.iter().rposition(|line| !line.is_empty())?;
    let lines = lines.get(..=end)?;
    parse_npm(lines).or_else(|| parse_pnpm(lines))
}

/// The forms of npm's `cmd-shim` since version 4.
fn parse_npm(lines: &[&str]) -> Option<Shim> {
    let rest = lines.strip_prefix(&[
        "@ECHO off",
        "GOTO start",
        ":find_dp0",
        "SET dp0=%~dp0",
        "EXIT /b",
        ":start",
        "SETLOCAL",
        "CALL :find_dp0",
    ])?;
    if let [line] = rest {
        return native(line);
    }
    let rest = rest.strip_prefix(&[
        "",
        "IF EXIST \"%dp0%\\node.exe\" (",
        "  SET \"_prog=%dp0%\\node.exe\"",
        ") ELSE (",
        "  SET \"_prog=node\"",
        "  SET PATHEXT=%PATHEXT:;.JS;=;%",
        ")",
        "",
    ])?;
    let [line] = rest else { return None };
    let line = line.strip_prefix("endLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & ").unwrap_or(line);
    node_call(line.strip_prefix("\"%_prog%\" ")?)
}

/// The forms of pnpm's fork. `NODE_PATH` lines only help old packages to find others and are skipped.
fn parse_pnpm(lines: &[&str]) -> Option<Shim> {
    let mut rest = lines.strip_prefix(&["@SETLOCAL"])?;
    if let ["@IF NOT DEFINED NODE_PATH (", first, ") ELSE (", second, ")", after @ ..] = rest {
        let sets = |line: &str| {
            line.starts_with("  @SET \"NODE_PATH=") && line.ends_with('"')
                || line.starts_with("  @SET NODE_PATH=")
        };
        if !sets(first)
            || !sets(second)
            || [first, second].iter().any(|line| line.contains(['&', '|', '<', '>']))
        {
            return None;
        }
        rest = after;
    }
    match rest {
        [line] => native(line.strip_prefix('@')?),
        [
            "@IF EXIST \"%~dp0\\node.exe\" (",
            beside,
            ") ELSE (",
            "  @SET PATHEXT=%PATHEXT:;.JS;=;%",
            on_path,
            ")",
        ] => {
            let first = node_call(beside.strip_prefix("  \"%~dp0\\node.exe\" ")?)?;
            let second = node_call(on_path.strip_prefix("  node ")?)?;
            (first == second).then_some(first)
        }
        _ => None,
    }
}

/// `"%dp0%\ENTRY"   %*`: the empty places of interpreter arguments are still there.
fn native(line: &str) -> Option<Shim> {
    let entry = entry(line.strip_suffix("   %*")?)?;
    Some(Shim::Native { entry })
}

/// `ARGS "%dp0%\ENTRY" %*`, where ARGS may be empty.
fn node_call(text: &str) -> Option<Shim> {
    let (args, rest) = text.split_at(text.find('"')?);
    let entry = entry(rest.strip_suffix(" %*")?)?;
    let args = args.strip_suffix(' ')?;
    let node_args: Vec<String> = args.split(' ').filter(|arg| !arg.is_empty()).map(str::to_owned).collect();
    let plain = |arg: &String| {
        arg.starts_with('-') && arg.chars().all(|c| c.is_ascii_alphanumeric() || "-_=.,:/@".contains(c))
    };
    node_args.iter().all(plain).then_some(Shim::Node { node_args, entry })
}

/// `"%dp0%\ENTRY"` or `"%~dp0\ENTRY"`, with nothing in it that cmd.exe would change.
fn entry(quoted: &str) -> Option<String> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let entry = inner.strip_prefix("%dp0%\\").or_else(|| inner.strip_prefix("%~dp0\\"))?;
    let unsafe_char = |c: char| c.is_control() || "%\"^&|<>!*?:;/`".contains(c);
    (!entry.is_empty() && !entry.starts_with('\\') && !entry.contains(unsafe_char)).then(|| entry.to_owned())
}

fn refused(path: &str, reason: &str) -> ProcessError {
    ProcessError::UnsafeBatchShim { path: path.to_owned(), reason: reason.to_owned() }
}

fn is_absolute(path: &str) -> bool {
    let bytes = path.as_bytes();
    let drive = matches!(bytes, [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic());
    drive || path.starts_with("\\\\")
}

/// `.`, `..` and doubled separators resolved by text alone. A path cannot climb above its drive or share.
fn normalise(path: &str) -> String {
    let path = path.replace('/', "\\");
    let (start, rest) =
        if path.starts_with("\\\\") { ("\\\\", path.trim_start_matches('\\')) } else { ("", path.as_str()) };
    let fixed = if start.is_empty() { 1 } else { 2 };
    let mut parts: Vec<&str> = Vec::new();
    for part in rest.split('\\') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.len() > fixed {
                    parts.pop();
                }
            }
            part => parts.push(part),
        }
    }
    format!("{start}{}", parts.join("\\"))
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('\\').map(|(folder, _)| folder).filter(|folder| !folder.is_empty())
}

fn extension(path: &str) -> Option<String> {
    let name = path.rsplit(['\\', '/']).next()?;
    let (stem, ending) = name.rsplit_once('.')?;
    (!stem.is_empty() && !ending.is_empty()).then(|| ending.to_ascii_lowercase())
}

/// The part of `path` below `root`, compared by whole components and without case.
fn inside<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let root = root.trim_end_matches('\\');
    let head = path.get(..root.len())?;
    let below = path.get(root.len()..)?.strip_prefix('\\')?;
    let same = head.to_lowercase() == root.to_lowercase();
    (same && !below.is_empty() && !below.split('\\').any(|part| part == "..")).then_some(below)
}

#[cfg(test)]
#[path = "windows_shim_tests.rs"]
mod tests;
