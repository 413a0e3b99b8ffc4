//! What the tests and the benchmark need beside Rust, and how it gets onto the machine.

use std::{env, path::Path, process::Command};

use crate::command::{Failure, cargo, run, succeeds};

/// A program from a Debian package.
struct Tool {
    program: &'static str,
    package: &'static str,
    /// Arguments with which it succeeds only if all of it is there; none where it comes in one piece.
    proof: &'static [&'static str],
}

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package, proof: &[] }
}

/// One line each; a store that needs a server adds it here.
const TOOLS: &[Tool] = &[
    // The peer of `leaseward run` in the benchmark.
    tool("flock", "util-linux"),
    // Has servers end with the test program that started them.
    tool("setpriv", "util-linux"),
    tool("redis-server", "redis-server"),
    tool("redis-cli", "redis-tools"),
    tool("redis-sentinel", "redis-sentinel"),
    // Where services are started at installation, its package starts a server on port 5432, which no test uses.
    tool("initdb", "postgresql"),
    tool("psql", "postgresql-client"),
    tool("pgbouncer", "pgbouncer"),
    // Where services are started at installation, its package starts one on port 2379, which no test uses.
    tool("etcd", "etcd-server"),
    tool("etcdctl", "etcd-client"),
    tool("java", "default-jre-headless"),
    // No program: the server is a jar, and so is what it needs.
    Tool { program: "test", package: "zookeeper", proof: &["-f", "/usr/share/java/zookeeper.jar"] },
    // Certificates.
    tool("openssl", "openssl"),
    // What the lock libraries in `peers.rs` run on.
    tool("node", "nodejs"),
    tool("npm", "npm"),
    Tool { program: "python3", package: "python3-venv", proof: &["-c", "import ensurepip, venv"] },
];

impl Tool {
    fn is_there(&self) -> bool {
        is_on_path(self.program)
            && (self.proof.is_empty() || succeeds(Command::new(self.program).args(self.proof)))
    }
}

/// A part of the Rust toolchain that a minimal installation lacks.
const COMPONENTS: &[&str] = &["rustfmt", "clippy"];

/// Sees to it that everything is there. Installs only if allowed to; else says how to.
pub(crate) fn ensure(install: bool) -> Result<(), Failure> {
    let missing = Missing::look();
    if missing.is_empty() {
        return Ok(());
    }
    if install || is_root() { missing.install() } else { Err(missing.refuse()) }
}

#[derive(Default)]
struct Missing {
    packages: Vec<&'static str>,
    components: Vec<&'static str>,
}

impl Missing {
    fn look() -> Self {
        let mut packages: Vec<_> =
            TOOLS.iter().filter(|tool| !tool.is_there()).map(|tool| tool.package).collect();
        packages.sort_unstable();
        packages.dedup();
        let has = |component: &&str| {
            let name = component.trim_start_matches("rust");
            succeeds(&mut cargo([name, "--version"]))
        };
        let components = COMPONENTS.iter().copied().filter(|component| !has(component)).collect();
        Self { packages, components }
    }

    fn is_empty(&self) -> bool {
        self.packages.is_empty() && self.components.is_empty()
    }

    fn install(&self) -> Result<(), Failure> {
        if !self.packages.is_empty() {
            let mut apt = apt(&["update"]);
            run(apt.arg("--quiet"))?;
            let mut apt = apt_install();
            run(apt.args(&self.packages))?;
        }
        if !self.components.is_empty() {
            run(Command::new("rustup").args(["component", "add"]).args(&self.components))?;
        }
        Ok(())
    }

    fn refuse(&self) -> Failure {
        let mut lines = Vec::new();
        if !self.packages.is_empty() {
            lines.push(format!(
                "sudo apt-get install -y --no-install-recommends {}",
                self.packages.join(" ")
            ));
        }
        if !self.components.is_empty() {
            lines.push(format!("rustup component add {}", self.components.join(" ")));
        }
        let all: Vec<_> = self.packages.iter().chain(&self.components).copied().collect();
        Failure::new(format!("missing here: {}", all.join(", ")))
            .hint(format!("install with `--install`, or yourself:\n{}", lines.join("\n")))
    }
}

fn apt(command: &[&str]) -> Command {
    let mut apt = if is_root() { Command::new("apt-get") } else { Command::new("sudo") };
    if !is_root() {
        apt.args(["--non-interactive", "apt-get"]);
    }
    // Another apt may be at work, as on a machine that has just booted.
    apt.args(["-o", "DPkg::Lock::Timeout=300"])
        .args(command)
        .env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

fn apt_install() -> Command {
    apt(&["install", "-y", "--no-install-recommends"])
}

fn is_root() -> bool {
    // The standard library has no geteuid; the owner of our own /proc entry is it.
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0)
}

fn is_on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // Not all users have these in their path, and servers live there.
    let more = ["/usr/sbin", "/sbin"].map(|dir| Path::new(dir).to_path_buf());
    // Debian keeps the server's programs of each version of PostgreSQL in a folder of their own.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = versions.map(|version| version.path().join("bin"));
    env::split_paths(&path).chain(more).chain(versions).any(|dir| dir.join(program).is_file())
}
