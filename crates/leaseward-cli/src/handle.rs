//! Handle files: a lease kept between two commands.
//!
//! A handle is a secret, whoever has it can release the lease; so the file is readable by its owner alone.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use leaseward::Handle;

use crate::failure::Failure;

/// No handle is longer than this: a name, a token and two numbers.
const LONGEST: u64 = 16 * 1024;

/// The place for a handle that is not there yet, made before the lease is asked for: what cannot be written down must
/// not be taken.
#[derive(Debug)]
pub(crate) struct Blank {
    file: File,
    path: PathBuf,
    made: bool,
}

impl Blank {
    /// Makes the file, or takes an empty one as `mktemp` makes it.
    pub(crate) fn make(path: &Path) -> Result<Self, Failure> {
        let made = !path.exists();
        let opened =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let refused = |error: &io::Error| {
            Failure::usage(format!("cannot write the handle file `{}`: {error}", path.display()))
                .hint("nothing was acquired; name a file in a folder that exists")
        };
        let file = opened.map_err(|error| refused(&error))?;
        if file.metadata().map_err(|error| refused(&error))?.len() > 0 {
            return Err(Failure::usage(format!("`{}` is not empty", path.display())).hint(
                "it may be the handle of a lease still held: release it, or remove the file",
            ));
        }
        file.set_permissions(Permissions::from_mode(0o600)).map_err(|error| refused(&error))?;
        Ok(Self { file, path: path.to_owned(), made })
    }

    /// Writes the handle.
    pub(crate) fn fill(&mut self, handle: &Handle) -> io::Result<()> {
        let text = serde_json::to_string(handle).map_err(io::Error::other)?;
        writeln!(self.file, "{text}")?;
        self.file.sync_all()
    }

    /// Takes back a file that was made for nothing.
    pub(crate) fn discard(self) {
        if self.made {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reads a handle from a file, or from stdin if it is called `-`.
pub(crate) fn read(path: &Path) -> Result<Handle, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(LONGEST).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text))
    };
    read.map_err(|error| {
        Failure::usage(format!("cannot read the handle `{}`: {error}", path.display()))
            .hint("it is what `leaseward acquire NAME --handle FILE` wrote")
    })?;
    // What is wrong is said, what stands there is not: it may hold most of a token.
    serde_json::from_str(&text).map_err(|_| {
        Failure::usage(format!("`{}` does not hold a handle", path.display()))
            .hint("a handle is the line of JSON that `leaseward acquire` prints")
    })
}
