//! The file before SQLite sees it: its folder exists, it may be written, it is on a local disk.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use super::{config::Config, network};
use crate::{Error, ErrorKind};

/// Held while a file is made: closing any descriptor of a file drops all POSIX locks this process has on it, so a file
/// that SQLite may have open must never be opened here.
static MAKING: Mutex<()> = Mutex::new(());

/// The path of a file that SQLite keeps beside the database.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Which files a path names: the database and its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) database: Option<FileId>,
    pub(super) log: Option<FileId>,
}

impl Files {
    pub(super) fn at(path: &Path) -> Self {
        Self { database: FileId::at(path), log: FileId::at(&beside(path, "-wal")) }
    }

    /// With the log that is there now, unless there was one.
    pub(super) fn or_log(self, path: &Path) -> Self {
        Self { log: self.log.or_else(|| Self::at(path).log), ..self }
    }
}

/// One file, whatever its name; device and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    fn at(path: &Path) -> Option<Self> {
        rustix::fs::stat(path).ok().map(|stat| Self::of(&stat))
    }

    #[cfg(unix)]
    pub(super) fn of(stat: &rustix::fs::Stat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }

    /// Elsewhere files cannot be told apart, and one that is open cannot be deleted.
    #[cfg(not(unix))]
    fn at(_path: &Path) -> Option<Self> {
        None
    }
}

/// Makes the folder and the file unless they are there, and checks them.
///
/// SQLite would answer most of this with `unable to open database file`, or open a read-only file without a word.
pub(super) fn prepare(config: &Config) -> Result<(), Error> {
    let path = config.path.as_path();
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !config.must_exist {
        make_folder(folder, config.private)
            .map_err(|e| refused("its folder cannot be made", path, e))?;
    }
    prepare_in_folder(config)
}

/// Makes the file again after it was deleted or replaced in use. Not its folder: if that has gone, it was taken away on
/// purpose.
pub(super) fn prepare_anew(config: &Config, old: Files) -> Result<(), Error> {
    remove_leftovers(&config.path, |now| now.database.is_none() || now.log == old.log)?;
    prepare_in_folder(config)
}

fn prepare_in_folder(config: &Config) -> Result<(), Error> {
    let path = config.path.as_path();
    network::refuse(path.parent().unwrap_or(Path::new("/")))?;
    let _making = MAKING.lock();
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("`{}` is a folder, not a file", path.display()),
        )
        .hint(format!("name a file in it, such as `sqlite:{}`", path.join("leases.db").display()))),
        Ok(meta) if !meta.is_file() => Err(Error::new(
            ErrorKind::Refused,
            format!("`{}` is not a regular file", path.display()),
        )
        .hint("name a file on a local disk")),
        Ok(_) => check_writable(path),
        Err(e) if e.kind() == io::ErrorKind::NotFound && config.must_exist => Err(missing(path)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => make_file(path, config.private),
        Err(e) => Err(refused("it cannot be looked at", path, e)),
    }
}

#[cfg(unix)]
fn check_writable(path: &Path) -> Result<(), Error> {
    use rustix::fs::{Access, access};
    access(path, Access::READ_OK | Access::WRITE_OK)
        .map_err(|e| refused("it cannot be written", path, e.into()))
}

#[cfg(not(unix))]
fn check_writable(_path: &Path) -> Result<(), Error> {
    Ok(())
}

fn missing(path: &Path) -> Error {
    Error::new(ErrorKind::Refused, format!("the store's file `{}` does not exist", path.display()))
        .hint("check the path: taking a lock makes the file, looking does not")
}

fn make_file(path: &Path, private: bool) -> Result<(), Error> {
    let _alone = remove_leftovers(path, |now| now.database.is_none())?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    // SQLite gives the files it makes beside this one the same mode.
    #[cfg(unix)]
    if private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    match options.open(path) {
        Ok(_) => Ok(()),
        // Another process was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => check_writable(path),
        Err(e) => Err(refused("it cannot be made", path, e)),
    }
}

/// Removes the log of a file that was deleted or replaced in use: SQLite would take it for the new one's. Only one process at a
/// time does, until what is answered is dropped; nothing is locked where nothing is left.
#[cfg(unix)]
fn remove_leftovers(
    path: &Path,
    are_left: impl Fn(Files) -> bool,
) -> Result<Option<fs::File>, Error> {
    use rustix::fs::{FlockOperation, flock};
    let leftovers = [beside(path, "-wal"), beside(path, "-shm")];
    if !are_left(Files::at(path)) || !leftovers.iter().any(|leftover| leftover.exists()) {
        return Ok(None);
    }
    let failed = |error| refused("what was left of an older one cannot be removed", path, error);
    let folder = fs::File::open(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    flock(&folder, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    if are_left(Files::at(path)) {
        for leftover in leftovers {
            match fs::remove_file(&leftover) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
    }
    Ok(Some(folder))
}

/// Elsewhere a file in use cannot be deleted.
#[cfg(not(unix))]
fn remove_leftovers(_path: &Path, _are_left: impl Fn(Files) -> bool) -> Result<(), Error> {
    Ok(())
}

fn make_folder(folder: &Path, private: bool) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    if private {
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    }
    builder.create(folder)
}

fn refused(what: &str, path: &Path, error: io::Error) -> Error {
    use io::ErrorKind as Io;
    let (kind, hint) = match error.kind() {
        Io::StorageFull | Io::QuotaExceeded => (ErrorKind::Unavailable, "make room on the disk"),
        Io::ReadOnlyFilesystem => {
            (ErrorKind::Refused, "the file system is mounted read-only; name a file elsewhere")
        }
        Io::NotADirectory | Io::AlreadyExists => {
            (ErrorKind::InvalidInput, "a file stands where a folder should be; name another path")
        }
        _ => (ErrorKind::Refused, "check owner and mode of the file and of its folder"),
    };
    Error::new(kind, format!("the store's file `{}`: {what} ({error})", path.display()))
        .hint(hint)
        .caused_by(error)
}
