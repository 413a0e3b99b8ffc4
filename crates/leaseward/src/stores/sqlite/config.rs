//! Which file, and how firmly it is written.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{Error, ErrorKind, store::StoreUrl};

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It does not: a killed process loses nothing, a power cut may take back the last commits.
    #[default]
    Normal,
    /// It does: slower by the time of one `fsync` a commit.
    Full,
}

#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) path: PathBuf,
    pub(super) durability: Durability,
    /// Whether the file is in the user's own state folder and nobody else's business.
    pub(super) private: bool,
    /// Whether a file that is not there is an error, instead of being made.
    pub(super) must_exist: bool,
}

impl Config {
    pub(super) fn from_url(url: &StoreUrl) -> Result<Self, Error> {
        url.only(&["durability", "mode"])?;
        let durability = match url.setting("durability") {
            None | Some("normal") => Durability::Normal,
            Some("full") => Durability::Full,
            Some(other) => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("`{other}` is no durability of the sqlite store"),
                )
                .hint("it is `normal` or `full`"));
            }
        };
        let must_exist = match url.setting("mode") {
            None | Some("rwc") => false,
            Some("rw") => true,
            Some(other) => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("`{other}` is no mode of the sqlite store"),
                )
                .hint(
                    "it is `rwc`, which makes a file that is not there, or `rw`, which does not",
                ));
            }
        };
        let path = url.path();
        if path.is_empty() {
            return Ok(Self { path: default_path()?, durability, private: true, must_exist });
        }
        Ok(Self { must_exist, ..Self::at(Path::new(&path), durability)? })
    }

    pub(super) fn at(path: &Path, durability: Durability) -> Result<Self, Error> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidInput, message);
        let shown = path.display();
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(invalid("the path of a store's file holds a zero byte".into()));
        }
        if path.file_name().is_some_and(|name| name == ":memory:") {
            return Err(invalid("`sqlite::memory:` names no file".into()).hint(
                "what is kept in one process's memory excludes no other; there it is `memory:`",
            ));
        }
        if path.file_name().is_none() || shown.to_string().ends_with('/') {
            return Err(invalid(format!("`{shown}` names no file")).hint(format!(
                "name the file too, such as `sqlite:{}`",
                path.join("leases.db").display()
            )));
        }
        // A later change of the working folder must not change the file.
        let path = std::path::absolute(path)
            .map_err(|e| invalid(format!("`{shown}` cannot be made absolute")).caused_by(e))?;
        Ok(Self { path, durability, private: false, must_exist: false })
    }
}

/// The file used where none is named: `$XDG_STATE_HOME/leaseward/leases.db`, else
/// `~/.local/state/leaseward/leases.db`.
///
/// # Errors
/// [`ErrorKind::Refused`] if the user has no home folder.
pub fn default_path() -> Result<PathBuf, Error> {
    state_folder(env::var_os("XDG_STATE_HOME").map(PathBuf::from), env::home_dir())
        .map(|state| state.join("leaseward/leases.db"))
        .ok_or_else(|| {
            Error::new(ErrorKind::Refused, "there is no home folder to keep leases in")
                .hint("set HOME or XDG_STATE_HOME, or name a file: `sqlite:/path/to/leases.db`")
        })
}

/// A relative XDG folder is to be ignored, says its specification.
fn state_folder(xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    xdg.filter(|folder| folder.is_absolute()).or_else(|| {
        home.filter(|folder| folder.is_absolute()).map(|folder| folder.join(".local/state"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config, Error> {
        Config::from_url(&StoreUrl::parse(url).expect("a URL"))
    }

    #[test]
    fn reads_path_and_durability() {
        for (url, path) in [
            ("sqlite:/a/b.db", "/a/b.db"),
            ("sqlite:///a/b.db", "/a/b.db"),
            ("sqlite:/a/with%3Fmark?durability=normal", "/a/with?mark"),
        ] {
            let config = config(url).expect(url);
            assert_eq!(config.path, Path::new(path));
            assert_eq!(config.durability, Durability::Normal);
            assert!(!config.private);
        }
        assert_eq!(config("sqlite:x?durability=full").expect("good").durability, Durability::Full);
        assert!(config("sqlite:x").expect("good").path.is_absolute());
    }

    #[test]
    fn refuses_what_it_cannot_mean() {
        for bad in ["sqlite:x?durability=some", "sqlite:x?mode=ro", "sqlite::memory:", "sqlite:/a/"]
        {
            let error = config(bad).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn the_state_folder_is_xdg_or_home() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(state_folder(path("/x"), path("/h")), path("/x"));
        assert_eq!(state_folder(path("rel"), path("/h")), path("/h/.local/state"));
        assert_eq!(state_folder(None, path("/h")), path("/h/.local/state"));
        assert_eq!(state_folder(None, None), None);
    }
}
