//! Paths as written become paths as the operating system means them. Nothing here creates anything.

use std::io;
use std::path::{Component, Path, PathBuf};

use crate::context::Context;

/// The home folder, unless it is the filesystem root (as in some containers), where nothing of a
/// user belongs.
pub fn usable_home(context: &Context) -> Option<&Path> {
    context.home.as_deref().filter(|home| home.is_absolute() && home.parent().is_some())
}

/// The canonical path of something that exists: links resolved, on Windows without the verbatim
/// prefix where that is safe.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    std::fs::canonicalize(path).map(simplify_verbatim)
}

/// The canonical path of an existing folder, or why there is none.
pub fn canonical_folder(path: &Path) -> Result<PathBuf, String> {
    let found = canonical(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{} does not exist", path.display()),
        _ => format!("{} cannot be examined: {error}", path.display()),
    })?;
    if found.is_dir() { Ok(found) } else { Err(format!("{} is not a folder", path.display())) }
}

/// Where `path` would lie if it were created: links of the existing part resolved, `.` and `..`
/// gone. `path` must be absolute.
pub fn would_be_canonical(path: &Path) -> Result<PathBuf, String> {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Prefix(_) | Component::RootDir => resolved.push(part),
            Component::CurDir => {}
            // Links are already resolved at this point, so the parent is the real one.
            Component::ParentDir => {
                resolved.pop();
            }
            Component::Normal(name) => {
                let next = resolved.join(name);
                resolved = match std::fs::symlink_metadata(&next) {
                    Ok(_) => canonical_folder(&next)?,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => next,
                    Err(error) => return Err(format!("{} cannot be examined: {error}", next.display())),
                };
            }
        }
    }
    Ok(resolved)
}

/// A path of the config as an absolute path: `~` expanded, relative paths below `base` (the folder
/// of the config file). Without a base, relative paths are refused.
pub fn expand(context: &Context, text: &str, base: Option<&Path>) -> Result<PathBuf, String> {
    if text.contains('\0') {
        return Err("a path cannot contain a NUL character".into());
    }
    let needs_home = text == "~" || text.starts_with("~/") || text.starts_with("~\\");
    if needs_home && usable_home(context).is_none() {
        return Err("starts with ~ and there is no usable home folder; write an absolute path".into());
    }
    let path = context.expand(text, base.unwrap_or(Path::new(""))).unwrap_or_else(|| PathBuf::from(text));
    if path.is_absolute() { Ok(path) } else { Err("expected an absolute path".into()) }
}

/// `\\?\C:\x` as `C:\x`, if every program reads both the same way. Other paths stay as they are.
fn simplify_verbatim(path: PathBuf) -> PathBuf {
    match path.to_str().and_then(without_verbatim_prefix) {
        Some(simple) => PathBuf::from(simple),
        None => path,
    }
}

fn without_verbatim_prefix(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(r"\\?\")?;
    let (drive, below) = rest.split_at_checked(3)?;
    let is_drive = drive.as_bytes()[0].is_ascii_alphabetic() && &drive[1..] == r":\";
    let plain = below.split('\\').all(|part| (below.is_empty() || !part.is_empty()) && is_plain_part(part));
    // Without the prefix, longer paths fail in programs that are not long-path aware.
    (is_drive && plain && rest.encode_utf16().count() < 248).then_some(rest)
}

/// Whether Windows takes a path component literally even without the verbatim prefix.
fn is_plain_part(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or_default().trim_end();
    let reserved = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
    let numbered = stem.len() > 3 && stem.is_char_boundary(3) && {
        let (name, number) = stem.split_at(3);
        ["COM", "LPT"].iter().any(|port| port.eq_ignore_ascii_case(name)) && number.chars().count() == 1
    };
    !part.ends_with(['.', ' '])
        && !part.contains(['/', '<', '>', ':', '"', '|', '?', '*'])
        && !part.chars().any(char::is_control)
        && !reserved.iter().any(|name| name.eq_ignore_ascii_case(stem))
        && !numbered
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_verbatim_prefix_goes_only_where_that_is_safe() {
        for (verbatim, simple) in [
            (r"\\?\C:\", Some(r"C:\")),
            (r"\\?\c:\Users\テスト é", Some(r"c:\Users\テスト é")),
            (r"\\?\UNC\server\share", None),
            (r"\\?\Volume{4c1b02c1}\x", None),
            (r"\\?\C:\a\con", None),
            (r"\\?\C:\a\NUL.txt\b", None),
            (r"\\?\C:\a\com1", None),
            (r"\\?\C:\a\command", Some(r"C:\a\command")),
            (r"\\?\C:\a\trailing.", None),
            (r"\\?\C:\a/b", None),
            (r"C:\a", None),
            ("/data", None),
        ] {
            assert_eq!(without_verbatim_prefix(verbatim), simple, "{verbatim}");
        }
        let long = format!(r"\\?\C:\{}", "x".repeat(300));
        assert_eq!(without_verbatim_prefix(&long), None);
    }

    #[test]
    fn a_missing_path_resolves_below_its_deepest_existing_ancestor() {
        let folder = tempfile::tempdir().unwrap();
        let real = canonical(folder.path()).unwrap();
        std::fs::create_dir(real.join("there")).unwrap();
        let asked = real.join("there/./a/../b/c");
        assert_eq!(would_be_canonical(&asked).unwrap(), real.join("there").join("b").join("c"));
        assert!(!real.join("there/b").exists(), "nothing is created");
    }

    #[test]
    fn a_file_on_the_way_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(would_be_canonical(&folder.path().join("file/below")).unwrap_err().contains("not a folder"));
    }
}
