//! How a lock is to be taken and held, checked before anything is asked of a store.

use std::{sync::Arc, time::Duration};

use crate::{
    CAPACITY_MAX, Error, ErrorKind, Mode, OwnerId, TTL_DEFAULT, TTL_MAX, TTL_MIN, Value,
    engine::spec::{Extras, OnDanger, Spec},
    store::{Capability, IfBusy},
};

/// Renewal happens this often in a TTL, so that two may fail.
const RENEWALS_PER_TTL: u32 = 3;
/// The shortest interval between renewals.
const RENEW_MIN: Duration = Duration::from_millis(10);
/// The longest wait: what is longer is a mistake in units.
const WAIT_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// How a lock is to be taken and held.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) owner: Option<OwnerId>,
    /// What few locks set; apart, so that the others are cheap to make.
    pub(crate) rare: Option<Box<Rare>>,
}

#[derive(Clone, Default)]
pub(crate) struct Rare {
    pub(crate) renew: Renewing,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) retry: Option<Retry>,
    pub(crate) on_danger: Option<OnDanger>,
    pub(crate) trace_id: Option<Arc<str>>,
    pub(crate) rides_out: bool,
}

#[derive(Clone, Copy, Default)]
pub(crate) enum Renewing {
    #[default]
    ThirdOfTtl,
    Every(Duration),
    Off,
}

#[derive(Clone, Copy)]
pub(crate) struct Retry {
    pub(crate) base: Duration,
    pub(crate) cap: Duration,
    pub(crate) attempts: u32,
}

impl Options {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { mode, ttl: TTL_DEFAULT, wait: None, owner: None, rare: None }
    }

    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Checks everything against limits and the store, before anything is asked of it.
    pub(crate) fn spec(&self, capability: &Capability, if_busy: IfBusy) -> Result<Spec, Error> {
        check_mode(self.mode, capability)?;
        let ttl = checked_ttl(self.ttl, capability)?;
        if self.wait.is_some_and(|wait| wait > WAIT_MAX) {
            return Err(invalid("a wait of more than a year is out of range")
                .hint("leave the wait out to wait as long as it takes"));
        }
        let spec = Spec {
            mode: self.mode.into(),
            if_busy,
            ttl_ms: millis("TTL", ttl)?,
            renew_ms: millis("renewal interval", ttl / RENEWALS_PER_TTL)?,
            extras: None,
        };
        match &self.rare {
            None => Ok(spec),
            Some(rare) => rare.apply(spec, capability),
        }
    }

    pub(crate) fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    pub(crate) fn owner(&self) -> Option<OwnerId> {
        self.owner.clone().or_else(OwnerId::current_task)
    }
}

impl Rare {
    fn apply(&self, mut spec: Spec, capability: &Capability) -> Result<Spec, Error> {
        match self.renew {
            Renewing::ThirdOfTtl => {}
            Renewing::Off => spec.renew_ms = 0,
            Renewing::Every(every) if every < RENEW_MIN || every >= spec.ttl() => {
                return Err(invalid(
                    "the renewal interval must be at least 10 ms and below the TTL",
                )
                .hint("a third of the TTL is the default; `no_renewal` turns it off"));
            }
            Renewing::Every(every) => spec.renew_ms = millis("renewal interval", every)?,
        }
        let extras = Extras {
            max_hold_ms: millis("longest hold", self.max_hold.unwrap_or_default())?,
            min_hold_ms: millis("minimum hold", self.min_hold.unwrap_or_default())?,
            value: self.value.as_deref().map(Value::new).transpose()?,
            on_danger: self.on_danger.clone(),
            trace_id: self.trace_id.clone(),
            rides_out: self.rides_out,
        };
        if self.min_hold.is_some() && !capability.min_hold {
            return Err(unsupported("a minimum hold", capability));
        }
        // It keeps the name taken as a lease would.
        let longest = *capability.ttl.end();
        if self.min_hold.is_some_and(|min_hold| min_hold > longest) {
            return Err(too_long("minimum hold", longest));
        }
        if self.value.is_some() && !capability.value {
            return Err(unsupported("a value on a lease", capability));
        }
        if extras.trace_id.is_some() || !extras.is_same(&Extras::default()) {
            spec.extras = Some(Arc::new(extras));
        }
        Ok(spec)
    }
}

/// The TTL a store will keep: a shorter one is raised to its minimum, a longer one refused.
pub(crate) fn checked_ttl(ttl: Duration, capability: &Capability) -> Result<Duration, Error> {
    if ttl < TTL_MIN {
        return Err(invalid(format!("a TTL of {ttl:?} is out of range"))
            .hint("at least 100 ms: shorter leases end by scheduling noise"));
    }
    if ttl > TTL_MAX {
        return Err(invalid(format!("a TTL of {ttl:?} is out of range"))
            .hint("at most 24 h: a crashed holder blocks the name for this long"));
    }
    if ttl > *capability.ttl.end() {
        return Err(too_long("TTL", *capability.ttl.end()));
    }
    Ok(ttl.max(*capability.ttl.start()))
}

fn too_long(what: &str, longest: Duration) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("this store keeps no {what} longer than {longest:?}"),
    )
    .hint("ask for a shorter one; some stores have a setting for it, such as `?max_ttl=`")
}

fn check_mode(mode: Mode, capability: &Capability) -> Result<(), Error> {
    match mode {
        Mode::Exclusive => Ok(()),
        Mode::Shared if capability.modes.shared => Ok(()),
        Mode::Shared => Err(unsupported("shared mode", capability)),
        Mode::Permit { capacity } if !(1..=CAPACITY_MAX).contains(&capacity) => {
            Err(invalid(format!("a semaphore with {capacity} permits is out of range"))
                .hint(format!("1 to {CAPACITY_MAX}")))
        }
        Mode::Permit { .. } if capability.modes.permits => Ok(()),
        Mode::Permit { .. } => Err(unsupported("permits", capability)),
    }
}

fn millis(what: &str, duration: Duration) -> Result<u32, Error> {
    if duration > TTL_MAX {
        return Err(
            invalid(format!("a {what} of {duration:?} is out of range")).hint("at most 24 h")
        );
    }
    u32::try_from(duration.as_millis()).map_err(|_| invalid(format!("a {what} that long")))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

fn unsupported(what: &str, capability: &Capability) -> Error {
    let message = match capability.why_not {
        Some(why) => format!("this store cannot keep {what}: {why}"),
        None => format!("this store cannot keep {what}"),
    };
    Error::new(ErrorKind::Unsupported, message).hint("docs/choosing.md says which store can")
}
