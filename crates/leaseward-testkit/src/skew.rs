//! A wall clock that is wrong, for servers. (`libfaketime` hangs `redis-server`.)

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{FileExt, PermissionsExt},
    path::PathBuf,
    process::Command,
};

use tempfile::TempDir;

use crate::process::require;

/// The wall clock of the servers that are started with it, by [`RedisBuilder::skew`](crate::RedisBuilder::skew)
/// and [`PostgresBuilder::skew`](crate::PostgresBuilder::skew). They run
/// on right time until [`set_ms`](Self::set_ms); must live as long as they do.
#[derive(Debug)]
pub struct Skew {
    folder: TempDir,
    offset: File,
}

impl Skew {
    /// Makes one; compiles a small library with `cc`.
    ///
    /// # Panics
    /// If there is no C compiler.
    #[must_use]
    pub fn new() -> Self {
        require("cc", "gcc");
        let folder = tempfile::Builder::new().prefix("skew-").tempdir().expect("a folder");
        let source = folder.path().join("skew.c");
        fs::write(&source, include_str!("skew.c")).expect("a file can be written");
        let mut compile = Command::new("cc");
        compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(folder.path().join("skew.so"));
        let output = compile.arg(source).output().expect("cc can be run");
        assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        // Servers may run as somebody else.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("it is ours");
        let offset = File::create(folder.path().join("offset")).expect("a file can be made");
        let this = Self { folder, offset };
        this.set_ms(0);
        this
    }

    /// By how much the wall clock is ahead, from now on; behind if negative.
    pub fn set_ms(&self, ahead: i64) {
        let bytes = (ahead * 1_000_000).to_ne_bytes();
        self.offset.write_all_at(&bytes, 0).expect("a file can be written");
    }

    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        let at = |name: &str| self.folder.path().join(name);
        [("LD_PRELOAD", at("skew.so")), ("LEASEWARD_SKEW", at("offset"))]
    }
}

impl Default for Skew {
    fn default() -> Self {
        Self::new()
    }
}
