//! The server of the experiments, and what it spent on each.

use std::{
    cell::OnceCell, collections::BTreeMap, process::Command, rc::Rc, thread, time::Duration,
};

use leaseward_testkit::RedisServer;

use super::raw::RawRedis;
use crate::standby::StandBy;

/// One server for many experiments, started by the first that needs it and emptied before each.
#[derive(Clone, Default)]
pub(crate) struct Server {
    /// The first is the server, the others follow it.
    servers: Rc<OnceCell<Vec<RedisServer>>>,
    replicas: usize,
}

/// What an experiment yields.
pub(crate) struct Outcome {
    /// The figures of each process.
    pub(crate) told: Vec<Vec<f64>>,
    pub(crate) spent: Spent,
}

/// What a server has spent, since it was started or between two looks.
#[derive(Default)]
pub(crate) struct Spent {
    pub(crate) cpu_seconds: f64,
    /// Keys whose time ran out.
    pub(crate) expired: f64,
    calls: BTreeMap<String, f64>,
}

impl Server {
    pub(crate) fn with_replicas(replicas: usize) -> Self {
        Self { servers: Rc::default(), replicas }
    }

    fn get(&self) -> &RedisServer {
        let start = || {
            let primary = RedisServer::start();
            let follow = |_| {
                let replica = RedisServer::builder().replica_of(&primary).start();
                replica.wait_for_link();
                replica
            };
            let mut servers: Vec<_> = (0..self.replicas).map(follow).collect();
            if self.replicas > 0 {
                primary.wait_for_replicas(self.replicas);
            }
            servers.insert(0, primary);
            servers
        };
        &self.servers.get_or_init(start)[0]
    }

    pub(crate) fn url(&self) -> String {
        self.get().url()
    }

    pub(crate) fn address(&self) -> String {
        self.get().address()
    }

    /// Runs an experiment on an empty server: starts its processes, and once all are ready lets them work for so long.
    pub(crate) fn run(&self, commands: Vec<Command>, span: Duration) -> Result<Outcome, String> {
        self.run_prepared(commands, span, |_| Ok(()))
    }

    /// The same, with something to be done when all are ready.
    pub(crate) fn run_prepared(
        &self,
        commands: Vec<Command>,
        span: Duration,
        prepare: impl FnOnce(&mut RawRedis) -> Result<(), String>,
    ) -> Result<Outcome, String> {
        let mut control = RawRedis::connect(&self.address())?;
        control.ask(&["FLUSHALL"])?;
        let mut all = StandBy::start(commands)?;
        prepare(&mut control)?;
        let before = Spent::ask(&mut control)?;
        all.go()?;
        // Not when they have ended: what they do to clear up is no part of the figures.
        thread::sleep(span);
        let spent = Spent::ask(&mut control)?.since(&before);
        Ok(Outcome { told: all.figures()?, spent })
    }
}

impl Spent {
    pub(crate) fn ask(control: &mut RawRedis) -> Result<Self, String> {
        Ok(Self::read(&control.ask(&["INFO", "all"])?))
    }

    fn read(info: &str) -> Self {
        let mut spent = Self::default();
        for (key, value) in info.lines().filter_map(|line| line.trim_end().split_once(':')) {
            if key == "used_cpu_user" || key == "used_cpu_sys" {
                spent.cpu_seconds += value.parse().unwrap_or(0.0);
            } else if key == "expired_keys" {
                spent.expired = value.parse().unwrap_or(0.0);
            } else if let Some(command) = key.strip_prefix("cmdstat_") {
                let calls = value.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
                let calls = calls.and_then(|calls| calls.parse().ok()).unwrap_or(0.0);
                spent.calls.insert(command.to_owned(), calls);
            }
        }
        spent
    }

    fn since(mut self, before: &Self) -> Self {
        self.cpu_seconds -= before.cpu_seconds;
        self.expired -= before.expired;
        for (command, calls) in &mut self.calls {
            *calls -= before.calls.get(command).copied().unwrap_or(0.0);
        }
        self
    }

    /// How often these commands were carried out. A server counts what scripts call like what clients send, so the
    /// requests of a client are the commands that it sends and its scripts do not call.
    pub(crate) fn calls(&self, commands: &[&str]) -> f64 {
        commands
            .iter()
            .filter_map(|command| self.calls.get(*command))
            .fold(0.0, |sum, calls| sum + calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:0.250000\r\n\
        used_cpu_sys_children:7.0\r\nexpired_keys:3\r\n# Commandstats\r\n\
        cmdstat_set:calls=10,usec=99,usec_per_call=9.90,rejected_calls=0,failed_calls=0\r\n";
    const AFTER: &str = "used_cpu_sys:1.750000\r\nused_cpu_user:0.500000\r\nexpired_keys:5\r\n\
        cmdstat_set:calls=14,usec=140,usec_per_call=10.00,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_client|setname:calls=2,usec=1,usec_per_call=0.50\r\n\
        cmdstat_evalsha:calls=1000000,usec=1,usec_per_call=0.50\r\n";

    #[test]
    fn tells_what_was_spent_between_two_looks() {
        let spent = Spent::read(AFTER).since(&Spent::read(BEFORE));
        assert!((spent.cpu_seconds - 0.5).abs() < 1e-9);
        assert_eq!(spent.expired, 2.0);
        assert_eq!(spent.calls(&["set"]), 4.0);
        assert_eq!(spent.calls(&["client|setname", "evalsha", "get"]), 1_000_002.0);
    }
}
