//! Workspaces: which directory of a home belongs to which directory of code.

use std::fmt;
use std::path::{Path, PathBuf};

/// Characters of a workspace's hash.
const HASH_LEN: usize = 12;
/// The longest slug, in bytes.
const SLUG_LEN_MAX: usize = 80;

/// A workspace's name in a home: the first 12 hexadecimal digits of the BLAKE3 hash of its canonical path. The same
/// scheme as recursive-agent's, so both find the same directory for the same path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspaceHash(String);

impl WorkspaceHash {
    /// The hash of a canonical path. Its bytes are hashed as they are, so two paths that are not UTF-8 don't collide.
    #[must_use]
    pub fn of(canonical: &Path) -> Self {
        let digest = blake3::hash(canonical.as_os_str().as_encoded_bytes()).to_hex();
        Self(digest.chars().take(HASH_LEN).collect())
    }

    /// A directory's name, if it is a workspace's.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let valid = name.len() == HASH_LEN
            && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        valid.then(|| Self(name.to_owned()))
    }

    /// The hash as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkspaceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The one spelling of a workspace's path: links, `..` and trailing slashes resolved. A path that does not exist is
/// made absolute and taken as it is.
#[must_use]
pub fn canonical(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// A path as one readable word: every character that is not a letter, a digit, `_` or `.` becomes `-`.
#[must_use]
pub fn slug(path: &Path) -> String {
    let text = path.to_string_lossy();
    let word: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '.' { c } else { '-' })
        .collect();
    word.trim_start_matches('-').chars().take(SLUG_LEN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_recursive_agent_for_the_same_path() {
        // From a store that recursive-agent 0.8.3 wrote for this path.
        assert_eq!(WorkspaceHash::of(Path::new("/home/dev/demo")).as_str(), "944d51144ca0");
    }

    #[cfg(unix)]
    #[test]
    fn paths_that_are_not_utf8_do_not_collide() {
        use std::os::unix::ffi::OsStrExt;
        let path = |byte: u8| PathBuf::from(std::ffi::OsStr::from_bytes(&[b'/', b'x', byte]));
        assert_ne!(WorkspaceHash::of(&path(0xfe)), WorkspaceHash::of(&path(0xff)));
    }

    #[cfg(unix)]
    #[test]
    fn spellings_of_one_directory_agree() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
        let hash = WorkspaceHash::of(&canonical(&real));
        for spelling in ["link", "real/", "real/../real", "./link"] {
            assert_eq!(WorkspaceHash::of(&canonical(&dir.path().join(spelling))), hash, "{spelling}");
        }
    }

    #[test]
    fn a_slug_is_one_word() {
        assert_eq!(slug(Path::new("/home/dev/my demo_1.0")), "home-dev-my-demo_1.0");
        assert_eq!(slug(Path::new("/home/dev/a b/日")), "home-dev-a-b--");
        assert_eq!(slug(Path::new(&"/x".repeat(100))).len(), 80);
        assert_eq!(slug(Path::new("/")), "");
        assert_eq!(slug(Path::new(&format!("/{}", "x".repeat(200)))).len(), SLUG_LEN_MAX);
    }
}
