//! The SQLite store against real files: the reference semantics, bad files, several processes.
#![cfg(feature = "sqlite")]

mod bad_files;
mod file;
mod help;
mod processes;
mod reference;
mod waking;
