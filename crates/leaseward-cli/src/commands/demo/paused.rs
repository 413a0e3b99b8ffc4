//! A holder paused past its TTL, whose late write the fence rejects.

use leaseward::Fence;
use rustix::process::Signal;

use super::{
    Set,
    actor::Actor,
    stage::{Doing, Stage},
};
use crate::{failure::Failure, printer::Printer};

const ABOUT: &str = "\
A process takes the lock and is frozen: a long garbage collection, a
suspended virtual machine. It wakes up after somebody else has taken over,
knows nothing, and writes. No lock on earth prevents that. The fence does:
what is written to remembers the largest fence it has seen, and refuses
smaller ones.";

/// What is written to: takes a write if its fence is not smaller than the largest it has seen.
#[derive(Debug, Default)]
struct Register {
    highest: Fence,
    value: &'static str,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Accepted,
    Stale,
}

impl Register {
    fn write(&mut self, fence: Fence, value: &'static str) -> Written {
        if fence < self.highest {
            return Written::Stale;
        }
        self.highest = fence;
        self.value = value;
        Written::Accepted
    }
}

pub(super) async fn play(set: &Set, printer: Printer) -> Result<bool, Failure> {
    let mut stage = Stage::open("paused: the fence refuses a late write", ABOUT, printer)?;
    let mut register = Register::default();
    let (name, ttl) = (set.name("balance"), set.ttl(1_000));
    let mut alice = Actor::start(set, &name, ttl).await?;
    let text = format!("process {} has the lock, fence {}", alice.pid(), alice.fence());
    stage.turn("alice", Doing::Holding, &text)?;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    alice.signal(Signal::STOP);
    alice.order_write()?;
    stage.tell("alice", "is about to write, and is frozen (SIGSTOP)")?;
    let bob = set.client("bob").await?;
    stage.turn("bob", Doing::Waiting, "waits in line")?;
    let guard = bob.lock(&name).ttl(ttl).wait(ttl * 8).acquire().await?;
    stage.mark("alice", Doing::Deluded);
    let text = format!("has it, because the lease ran out, fence {}", guard.fence());
    stage.turn("bob", Doing::Holding, &text)?;
    let first = register.write(guard.fence(), "bob's");
    stage.tell("bob", &format!("writes with fence {}: {first:?}", guard.fence()))?;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    alice.signal(Signal::CONT);
    let fence = alice.answer().await?;
    let late = register.write(fence, "alice's");
    let text = format!("wakes up and writes with fence {fence}: {late:?}");
    stage.turn("alice", Doing::Nothing, &text)?;
    stage.claim("the late write was refused", late == Written::Stale)?;
    let kept = first == Written::Accepted && register.value == "bob's";
    stage.claim("what bob wrote is still there", kept)?;
    guard.release().await?;
    stage.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_register_takes_equal_and_larger_fences_only() {
        let mut register = Register::default();
        assert_eq!(register.write(Fence::new(5), "a"), Written::Accepted);
        assert_eq!(register.write(Fence::new(5), "b"), Written::Accepted);
        assert_eq!(register.write(Fence::new(4), "c"), Written::Stale);
        assert_eq!(register.value, "b");
    }
}
