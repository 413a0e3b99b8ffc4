//! Whether open files still have their names, at a fraction of what looking their paths up costs: each turn asks.

#[cfg(target_os = "linux")]
pub(super) use linux::Pinned;
#[cfg(not(target_os = "linux"))]
pub(super) use portable::Pinned;

#[cfg(target_os = "linux")]
mod linux {
    use std::{cell::Cell, os::fd::OwnedFd, path::Path};

    use rustix::fs::{Mode, OFlags, Stat, fstat, open};

    use super::super::file::{FileId, Files, beside};

    /// Descriptors that only name a database and its log. Closing one of another kind would drop the locks that this process
    /// has on the file, SQLite's own.
    #[derive(Debug)]
    pub(in super::super) struct Pinned(Option<Pins>);

    #[derive(Debug)]
    struct Pins {
        database: OwnedFd,
        log: OwnedFd,
        /// When the database was last changed, its names included: seconds and nanoseconds.
        changed: Cell<Option<(i64, u64)>>,
    }

    impl Pinned {
        /// Pins the files at a path if they are still these. What cannot be pinned is looked up each time.
        pub(in super::super) fn of(path: &Path, files: Files) -> Self {
            let pin = |path: &Path, id: Option<FileId>| {
                let pinned = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
                let stat = fstat(&pinned).ok()?;
                (id == Some(FileId::of(&stat))).then_some(pinned)
            };
            let both = pin(path, files.database).zip(pin(&beside(path, "-wal"), files.log));
            Self(both.map(|(database, log)| Pins { database, log, changed: Cell::new(None) }))
        }

        /// Whether they are as when they were last looked up; if something has happened to their names since, looks.
        pub(in super::super) fn are_current(&self, look: impl FnOnce() -> bool) -> bool {
            let Some(pins) = &self.0 else { return look() };
            // The log changes with each commit, so a new name of it is not seen here; that it was deleted is.
            let has_log = fstat(&pins.log).is_ok_and(|stat| stat.st_nlink > 0);
            let stat = fstat(&pins.database).ok().filter(|stat| has_log && stat.st_nlink > 0);
            let now = stat.as_ref().map(changed);
            if now.is_some() && now == pins.changed.get() {
                return true;
            }
            let is_current = look();
            pins.changed.set(now.filter(|_| is_current));
            is_current
        }
    }

    #[allow(clippy::unnecessary_cast)] // not on every architecture
    fn changed(stat: &Stat) -> (i64, u64) {
        (stat.st_ctime as i64, stat.st_ctime_nsec as u64)
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use std::path::Path;

    use super::super::file::Files;

    /// Without such descriptors paths are looked up each time.
    #[derive(Debug)]
    pub(in super::super) struct Pinned;

    impl Pinned {
        pub(in super::super) fn of(_path: &Path, _files: Files) -> Self {
            Self
        }

        pub(in super::super) fn are_current(&self, look: impl FnOnce() -> bool) -> bool {
            look()
        }
    }
}
