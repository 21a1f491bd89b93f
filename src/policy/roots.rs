//! Containment of folders, by path component and never by text prefix.

use std::path::{Component, Path};

/// Why a folder is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// Not inside any allowed root.
    #[error("{0} lies outside the allowed roots")]
    Outside(String),
}

/// Whether `path` is `root` or lies below it. Both must be canonical (absolute, links resolved, no
/// `.` or `..`); a path that is not is never contained.
pub fn contains(root: &Path, path: &Path) -> bool {
    let canonical = |p: &Path| {
        p.is_absolute() && !p.components().any(|c| matches!(c, Component::ParentDir | Component::CurDir))
    };
    if !canonical(root) || !canonical(path) {
        return false;
    }
    let mut below = path.components();
    root.components().all(|part| below.next().is_some_and(|other| same(part, other)))
}

/// The first root that contains `path`.
pub fn find_root<'a, R: AsRef<Path>>(roots: &'a [R], path: &Path) -> Result<&'a Path, RootError> {
    roots
        .iter()
        .map(AsRef::as_ref)
        .find(|root| contains(root, path))
        .ok_or_else(|| RootError::Outside(path.display().to_string()))
}

/// Canonical Windows paths still differ in drive-letter case; everywhere else bytes decide.
fn same(a: Component<'_>, b: Component<'_>) -> bool {
    if cfg!(windows) {
        a.as_os_str().to_string_lossy().to_lowercase() == b.as_os_str().to_string_lossy().to_lowercase()
    } else {
        a == b
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::PathBuf;

    fn at(text: &str) -> PathBuf {
        if cfg!(windows) {
            PathBuf::from(format!("C:{}", text.replace('/', "\\")))
        } else {
            PathBuf::from(text)
        }
    }

    #[test]
    fn a_sibling_with_the_same_prefix_is_outside() {
        assert!(!contains(&at("/data/app"), &at("/data/app-secret")));
        assert!(contains(&at("/data/app"), &at("/data/app/src")));
        assert!(contains(&at("/data/app"), &at("/data/app")));
    }

    #[test]
    fn the_filesystem_root_contains_everything() {
        assert!(contains(&at("/"), &at("/data")));
    }

    #[test]
    fn dot_dot_is_never_contained() {
        assert!(!contains(&at("/data/app"), &at("/data/app/../secret")));
        assert!(!contains(Path::new("data"), Path::new("data/app")));
    }

    proptest! {
        #[test]
        fn contained_means_root_plus_components(root in "(/[a-c]{1,3}){1,4}", rest in "(/[a-c]{1,3}){0,4}", other in "(/[a-c]{1,3}){1,5}") {
            let root = at(&root);
            let path = at(&format!("{}{rest}", root.display()));
            if !cfg!(windows) {
                prop_assert!(contains(&root, &path));
            }
            let other = at(&other);
            prop_assert_eq!(contains(&root, &other), other.starts_with(&root));
        }
    }
}
