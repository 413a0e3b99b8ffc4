//! The least a Redlock client can be: one bare connection a node, and a task goes on once a majority has answered.

use std::{
    collections::VecDeque,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::raw::{Driven, RawRedis, Requests};

/// One node.
struct Node {
    raw: RawRedis,
    out: Vec<u8>,
    /// Which request of which task each reply will answer.
    in_flight: VecDeque<(usize, u64)>,
}

/// One task.
struct Task {
    /// Counts its requests: replies that come after a majority are for an earlier one.
    request: u64,
    good: usize,
    bad: usize,
    holds: bool,
    begun: Instant,
    is_over: bool,
}

pub(crate) struct RawQuorum {
    nodes: Vec<Node>,
}

impl RawQuorum {
    pub(crate) fn connect(addresses: &[&str]) -> Result<Self, String> {
        let node = |address: &&str| {
            let raw = RawRedis::connect(address)?;
            Ok(Node { raw, out: Vec::new(), in_flight: VecDeque::new() })
        };
        Ok(Self { nodes: addresses.iter().map(node).collect::<Result<_, String>>()? })
    }

    /// Has every node keep a script; answers its name.
    pub(crate) fn load(&mut self, script: &str) -> Result<String, String> {
        let mut name = String::new();
        for node in &mut self.nodes {
            name = node.raw.load(script)?;
        }
        Ok(name)
    }

    /// Tasks that each acquire and release, as many at once as there are requests, for so long.
    pub(crate) fn drive(&mut self, tasks: &[Requests], span: Duration) -> Result<Driven, String> {
        let mut driven = Driven::default();
        let start = Instant::now();
        let mut states: Vec<_> = tasks
            .iter()
            .map(|_| Task {
                request: 0,
                good: 0,
                bad: 0,
                holds: false,
                begun: start,
                is_over: false,
            })
            .collect();
        for (at, task) in tasks.iter().enumerate() {
            self.send(at, 0, &task.acquire);
        }
        while states.iter().any(|task| !task.is_over) {
            for node in &mut self.nodes {
                if !node.out.is_empty() {
                    node.raw.send(&node.out)?;
                    node.out.clear();
                }
            }
            let heard = self.hear()?;
            let now = Instant::now();
            let is_last = now.duration_since(start) >= span;
            for (at, request, is_good) in heard {
                if self.count(&mut states[at], request, is_good) {
                    self.go_on(at, &tasks[at], &mut states[at], now, is_last, &mut driven);
                }
            }
        }
        driven.seconds = start.elapsed().as_secs_f64();
        // What the slowest nodes still owe would be taken for answers of the next drive.
        while self.nodes.iter().any(|node| !node.in_flight.is_empty()) {
            self.hear()?;
        }
        Ok(driven)
    }

    /// Whether this reply makes a majority.
    fn count(&self, task: &mut Task, request: u64, is_good: bool) -> bool {
        if task.request != request || task.is_over {
            return false;
        }
        if is_good {
            task.good += 1;
        } else {
            task.bad += 1;
        }
        task.good.max(task.bad) > self.nodes.len() / 2
    }

    fn go_on(
        &mut self,
        at: usize,
        requests: &Requests,
        task: &mut Task,
        now: Instant,
        is_last: bool,
        driven: &mut Driven,
    ) {
        driven.errors += u32::from(task.bad > task.good);
        (task.good, task.bad, task.request) = (0, 0, task.request + 1);
        task.holds = !task.holds;
        if task.holds {
            return self.send(at, task.request, &requests.release);
        }
        driven.micros.push(now.duration_since(task.begun).as_secs_f64() * 1e6);
        task.begun = now;
        task.is_over = is_last;
        if !is_last {
            self.send(at, task.request, &requests.acquire);
        }
    }

    fn send(&mut self, at: usize, request: u64, bytes: &[u8]) {
        for node in &mut self.nodes {
            node.out.extend_from_slice(bytes);
            node.in_flight.push_back((at, request));
        }
    }

    /// Waits until some node has answered; which requests of which tasks, and whether with yes.
    fn hear(&mut self) -> Result<Vec<(usize, u64, bool)>, String> {
        let ready: Vec<bool> = {
            let mut all: Vec<_> = self
                .nodes
                .iter()
                .map(|node| PollFd::from_borrowed_fd(node.raw.stream.as_fd(), PollFlags::IN))
                .collect();
            poll(&mut all, None).map_err(|error| error.to_string())?;
            all.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        let mut heard = Vec::new();
        for (node, is_ready) in self.nodes.iter_mut().zip(ready) {
            if !is_ready {
                continue;
            }
            node.raw.receive()?;
            while let Some(reply) = node.raw.next_reply() {
                let (at, request) =
                    node.in_flight.pop_front().ok_or("more replies than requests")?;
                heard.push((at, request, reply.is_good()));
            }
        }
        Ok(heard)
    }
}
