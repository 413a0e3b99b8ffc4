//! What the waking thread sleeps on: a bell that is rung from inside, and the watch on a file.

#[cfg(target_os = "linux")]
pub(in super::super) use linux::Bell;
#[cfg(not(target_os = "linux"))]
pub(in super::super) use portable::Bell;

#[cfg(target_os = "linux")]
mod linux {
    use std::{io, os::fd::OwnedFd, path::Path, time::Duration};

    use parking_lot::Mutex;
    use rustix::{
        event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
        fs::inotify,
    };

    /// An event descriptor and an inotify descriptor, waited for together.
    #[derive(Debug)]
    pub(in super::super::super) struct Bell {
        rung: OwnedFd,
        changes: OwnedFd,
        watched: Mutex<Option<i32>>,
    }

    impl Bell {
        pub(in super::super::super) fn new() -> io::Result<Self> {
            Ok(Self {
                rung: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
                changes: inotify::init(
                    inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK,
                )?,
                watched: Mutex::new(None),
            })
        }

        /// Wakes the thread that waits.
        pub(in super::super::super) fn ring(&self) {
            // Fails only if it has been rung 2⁶⁴ times unheard.
            let _ = rustix::io::write(&self.rung, &1_u64.to_ne_bytes());
        }

        /// Begins to hear of writes to a file. Where that cannot be, the net under the watch has to do.
        pub(in super::super::super) fn watch(&self, path: &Path) {
            let added = inotify::add_watch(&self.changes, path, inotify::WatchFlags::MODIFY);
            *self.watched.lock() = added.ok();
        }

        pub(in super::super::super) fn unwatch(&self) {
            if let Some(watched) = self.watched.lock().take() {
                // Fails if the file has gone, and the watch with it.
                let _ = inotify::remove_watch(&self.changes, watched);
            }
        }

        /// Sleeps until it is rung.
        pub(in super::super::super) fn wait(&self) {
            self.sleep(None);
        }

        /// Sleeps until it is rung or the file was written; answers whether that came before the time was up.
        pub(in super::super::super) fn hear(&self, timeout: Duration) -> bool {
            self.sleep(Some(timeout))
        }

        fn sleep(&self, timeout: Option<Duration>) -> bool {
            let timeout = timeout.map(|timeout| Timespec {
                tv_sec: timeout.as_secs().cast_signed(),
                tv_nsec: timeout.subsec_nanos().into(),
            });
            let mut both =
                [PollFd::new(&self.rung, PollFlags::IN), PollFd::new(&self.changes, PollFlags::IN)];
            // An interrupted sleep is a look too many, no more.
            let heard = poll(&mut both, timeout.as_ref()).unwrap_or(1) > 0;
            if heard {
                let mut sound = [0_u8; 1024];
                let _ = rustix::io::read(&self.rung, &mut sound[..8]);
                while rustix::io::read(&self.changes, &mut sound)
                    .is_ok_and(|len| len == sound.len())
                {}
            }
            heard
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use std::{io, path::Path, time::Duration};

    use parking_lot::{Condvar, Mutex};

    /// A look costs about a microsecond: often enough to be quick, seldom enough to be free.
    const LOOK_EVERY: Duration = Duration::from_millis(2);

    /// Without a watch that is quick: looks at short intervals while somebody waits.
    #[derive(Debug)]
    pub(in super::super::super) struct Bell {
        rung: Mutex<bool>,
        ringing: Condvar,
    }

    impl Bell {
        pub(in super::super::super) fn new() -> io::Result<Self> {
            Ok(Self { rung: Mutex::new(false), ringing: Condvar::new() })
        }

        pub(in super::super::super) fn ring(&self) {
            *self.rung.lock() = true;
            self.ringing.notify_all();
        }

        pub(in super::super::super) fn watch(&self, _path: &Path) {}

        pub(in super::super::super) fn unwatch(&self) {}

        pub(in super::super::super) fn wait(&self) {
            let mut rung = self.rung.lock();
            while !std::mem::take(&mut *rung) {
                self.ringing.wait(&mut rung);
            }
        }

        pub(in super::super::super) fn hear(&self, timeout: Duration) -> bool {
            let mut rung = self.rung.lock();
            self.ringing.wait_for(&mut rung, timeout.min(LOOK_EVERY));
            std::mem::take(&mut *rung)
        }
    }
}
