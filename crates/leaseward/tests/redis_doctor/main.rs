//! What the Redis store says about itself, against real servers: what it promises, and what it finds wrong.
#![cfg(feature = "redis")]

mod clocks;
mod fence_lead;
mod help;
mod promise;
mod replicas;
mod rights;
mod setting;
mod strangers;
mod wrong_server;
