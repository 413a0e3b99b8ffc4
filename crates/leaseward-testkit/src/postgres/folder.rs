//! Folders that the server's user may read, and that do not outlive the test program for long.
//!
//! PostgreSQL refuses to run as root, so what it keeps belongs to the user `postgres` then. A server that all tests of a
//! program share is never dropped: its folder is found and removed by the next program, which can take its lock.

use std::{
    env,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::process::require;

/// How the folders of one user begin.
const PREFIX: &str = "leaseward-pg-";

/// What a few servers take, and much more than the 64 MiB that containers often have.
const ENOUGH_BYTES: u64 = 1 << 30;

/// Removed when dropped; by a later program if it never is.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Its lock says that the folder is in use; it ends with the process at the latest.
    _in_use: File,
}

impl Folder {
    pub(crate) fn new(what: &str) -> Self {
        Self::inside(&env::temp_dir(), what)
    }

    /// In memory, where the machine has enough of it for files; else as any other.
    pub(crate) fn in_memory(what: &str) -> Self {
        let shared = Path::new("/dev/shm");
        let free = rustix::fs::statvfs(shared).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
        if free > ENOUGH_BYTES { Self::inside(shared, what) } else { Self::new(what) }
    }

    fn inside(parent: &Path, what: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        static SWEPT: OnceLock<()> = OnceLock::new();
        SWEPT.get_or_init(sweep);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{what}-{}-{count}", process::id()));
        let in_use = reserve(&lock_of(&path));
        // Left over by a process of the same id.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path)
            .unwrap_or_else(|error| panic!("`{}` cannot be made: {error}", path.display()));
        fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("it is ours");
        give(&path);
        Self { path, _in_use: in_use }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        let _ = fs::remove_file(lock_of(&self.path));
    }
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.with_extension("lock")
}

/// Takes the lock of a folder. Again, if a sweep had it and removed its file before we did.
fn reserve(lock: &Path) -> File {
    loop {
        let file = File::create(lock)
            .unwrap_or_else(|error| panic!("`{}` cannot be made: {error}", lock.display()));
        file.lock().expect("a file can be locked");
        let inode = |of: io::Result<fs::Metadata>| of.map(|of| of.ino()).ok();
        if inode(file.metadata()) == inode(fs::metadata(lock)) {
            return file;
        }
    }
}

/// Removes what programs left that have ended.
fn sweep() {
    let folders = [env::temp_dir(), PathBuf::from("/dev/shm")];
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    for lock in entries.flatten().map(|entry| entry.path()) {
        let is_ours = lock.extension().is_some_and(|extension| extension == "lock")
            && lock.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        let Some(file) = is_ours.then(|| File::open(&lock).ok()).flatten() else { continue };
        if file.try_lock().is_ok() {
            let _ = fs::remove_dir_all(lock.with_extension(""));
            let _ = fs::remove_file(&lock);
        }
    }
}

/// The user and group that servers run as, if it is not the one that runs the tests.
fn user() -> Option<(u32, u32)> {
    static USER: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *USER.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let id = |flag: &str| -> u32 {
            let output = Command::new("id").args([flag, "postgres"]).output().expect("`id` runs");
            let text = String::from_utf8_lossy(&output.stdout);
            text.trim().parse().unwrap_or_else(|_| {
                panic!("there is no user `postgres`\nhint: `cargo xtask test --install`")
            })
        };
        Some((id("-u"), id("-g")))
    })
}

/// Gives a file to the user that servers run as.
pub(crate) fn give(path: &Path) {
    if let Some((user, group)) = user() {
        chown(path, Some(user), Some(group))
            .unwrap_or_else(|error| panic!("`{}` cannot be given away: {error}", path.display()));
    }
}

/// A command run as the servers' user, which dies with its parent; the program replaces `setpriv`.
pub(crate) fn as_user(program: &Path) -> Command {
    require("setpriv", "util-linux");
    let mut command = Command::new("setpriv");
    if let Some((user, group)) = user() {
        command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
        command.arg("--clear-groups");
    }
    // An immediate shutdown: killed, PostgreSQL would leave shared memory behind.
    command.args(["--pdeathsig", "QUIT", "--"]).arg(program);
    command
}

/// A program of the newest PostgreSQL server on this machine.
pub(crate) fn program(name: &str) -> PathBuf {
    let on_path = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    // Debian keeps the server's programs of each version in a folder of their own.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .map(|version| version.path().join("bin").join(name))
        .filter(|path| path.is_file())
        .max_by_key(|path| version_of(path));
    newest.or(on_path).unwrap_or_else(|| {
        panic!(
            "`{name}` is not installed\nhint: `cargo xtask test --install`, or `sudo apt-get install -y \
             --no-install-recommends postgresql`"
        )
    })
}

fn version_of(path: &Path) -> u32 {
    let version = path.ancestors().nth(2).and_then(Path::file_name);
    version.and_then(|version| version.to_str()?.parse().ok()).unwrap_or(0)
}
