//! The file before SQLite sees it: its folder exists, it may be written, it is on a local disk.

use std::{fs, io, path::Path};

use parking_lot::Mutex;

use super::{config::Config, network};
use crate::{Error, ErrorKind};

/// Held while a file is made: closing any descriptor of a file drops all POSIX locks this process has on it, so a file
/// that SQLite may have open must never be opened here.
static MAKING: Mutex<()> = Mutex::new(());

/// Makes the folder and checks the file.
///
/// SQLite would answer most of this with `unable to open database file`, or open a read-only file without a word.
pub(super) fn prepare(config: &Config) -> Result<(), Error> {
    let path = config.path.as_path();
    let folder = path.parent().unwrap_or(Path::new("/"));
    make_folder(folder, config.private)
        .map_err(|e| refused("its folder cannot be made", path, e))?;
    network::refuse(folder)?;
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

fn make_file(path: &Path, private: bool) -> Result<(), Error> {
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
