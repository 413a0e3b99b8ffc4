//! The tool, run as its users run it: the real binary, real processes, a store of its own for each test.
//!
//! Nothing is asserted about how long something takes. Tests wait for a line on a pipe or for a process to be gone;
//! the limit on such a wait only turns a hang into a failure.

mod audit;
mod bad_input;
mod breaking;
mod counter;
mod demo;
mod doctor;
mod elect;
mod etcd;
mod events;
mod handles;
mod health;
mod kill;
mod looking;
mod outages;
mod postgres;
mod queue;
mod queue_outage;
mod queue_work;
mod redis;
mod redlock;
mod run;
mod secrets;
mod settings;
mod signals;
mod support;
mod terminal;
mod views;
mod watchdog;
mod zookeeper;
