//! What a waiting thread sleeps on: calls to an address, from whichever process, and a bell that is rung from inside.
//!
//! The address is a datagram socket in Linux's abstract namespace: it has no file, so that none is left by a killed process,
//! and neither a long path nor a read-only folder is in its way. Any process of the machine may call it, and a call says
//! nothing: it has the thread look into the file. Processes in another network namespace, such as another container's, do
//! not reach it, nor does any process on another system: there the thread looks by itself.

#[cfg(target_os = "linux")]
pub(in super::super) use linux::{Bell, call};
#[cfg(not(target_os = "linux"))]
pub(in super::super) use portable::{Bell, call};

#[cfg(target_os = "linux")]
mod linux {
    use std::{io, os::fd::OwnedFd, time::Duration};

    use rustix::{
        event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
        net::{
            AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind,
            recv, sendto, socket_with,
        },
    };

    /// Calls taken in one go; what is left wakes the thread once more.
    const CALLS_MAX: u32 = 64;

    /// An event descriptor and a socket, waited for together.
    #[derive(Debug)]
    pub(in super::super::super) struct Bell {
        rung: OwnedFd,
        /// Where it is forbidden there is none, and nobody calls.
        calls: Option<OwnedFd>,
    }

    impl Bell {
        /// One that hears calls to `id`.
        pub(in super::super::super) fn new(id: i64) -> io::Result<Self> {
            Ok(Self {
                rung: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
                calls: listening(id).ok(),
            })
        }

        /// Wakes the thread that waits.
        pub(in super::super::super) fn ring(&self) {
            // Fails only if it has been rung 2⁶⁴ times unheard.
            let _ = rustix::io::write(&self.rung, &1_u64.to_ne_bytes());
        }

        /// Sleeps until it is rung or called, or for this long.
        pub(in super::super::super) fn hear(&self, timeout: Option<Duration>) {
            let timeout = timeout.map(|timeout| Timespec {
                tv_sec: timeout.as_secs().cast_signed(),
                tv_nsec: timeout.subsec_nanos().into(),
            });
            let calls = self.calls.as_ref().unwrap_or(&self.rung);
            let mut both =
                [PollFd::new(&self.rung, PollFlags::IN), PollFd::new(calls, PollFlags::IN)];
            // An interrupted sleep is a look too many, no more.
            if poll(&mut both, timeout.as_ref()).is_ok_and(|heard| heard == 0) {
                return;
            }
            let mut sound = [0_u8; 8];
            let _ = rustix::io::read(&self.rung, &mut sound);
            if let Some(calls) = &self.calls {
                let mut left = CALLS_MAX;
                while left > 0 && recv(calls, &mut sound, RecvFlags::DONTWAIT).is_ok() {
                    left -= 1;
                }
            }
        }
    }

    /// Wakes the threads that hear these calls. One that has too many waiting, or is gone, needs none.
    pub(in super::super::super) fn call(ids: &[i64]) {
        // There may be no descriptor left: then those called look by themselves, as after a call that is lost.
        let Some(socket) = (!ids.is_empty()).then(socket).and_then(Result::ok) else { return };
        for id in ids {
            let _ = address(*id).and_then(|to| sendto(&socket, &[], SendFlags::empty(), &to));
        }
    }

    fn listening(id: i64) -> rustix::io::Result<OwnedFd> {
        let socket = socket()?;
        bind(&socket, &address(id)?)?;
        Ok(socket)
    }

    fn socket() -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
    }

    fn address(id: i64) -> rustix::io::Result<SocketAddrUnix> {
        SocketAddrUnix::new_abstract_name(format!("leaseward/{id:016x}").as_bytes())
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use std::{io, time::Duration};

    use parking_lot::{Condvar, Mutex};

    /// Without an address.
    #[derive(Debug, Default)]
    pub(in super::super::super) struct Bell {
        rung: Mutex<bool>,
        ringing: Condvar,
    }

    impl Bell {
        pub(in super::super::super) fn new(_id: i64) -> io::Result<Self> {
            Ok(Self::default())
        }

        pub(in super::super::super) fn ring(&self) {
            *self.rung.lock() = true;
            self.ringing.notify_all();
        }

        pub(in super::super::super) fn hear(&self, timeout: Option<Duration>) {
            let mut rung = self.rung.lock();
            match timeout {
                Some(timeout) => {
                    drop(self.ringing.wait_while_for(&mut rung, |rung| !*rung, timeout))
                }
                None => self.ringing.wait_while(&mut rung, |rung| !*rung),
            }
            *rung = false;
        }
    }

    pub(in super::super::super) fn call(_ids: &[i64]) {}
}
