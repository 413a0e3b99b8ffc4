//! etcd: one member, or a cluster.

mod builder;
mod member;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

pub use self::builder::EtcdBuilder;
use self::member::Member;
use crate::{process, wait::eventually};

/// How long a cluster may take to come up or to elect: far more than it needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where files live in memory.
const MEMORY: &str = "/dev/shm";

/// An etcd of one's own on free ports of 127.0.0.1. Killed when dropped.
#[derive(Debug)]
pub struct Etcd {
    options: EtcdBuilder,
    folder: TempDir,
    members: Vec<Member>,
}

impl Etcd {
    /// One member.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// With options.
    #[must_use]
    pub fn builder() -> EtcdBuilder {
        EtcdBuilder::new()
    }

    fn start_with(options: EtcdBuilder) -> Self {
        process::require("etcdctl", "etcd-client");
        let mut folder = tempfile::Builder::new();
        folder.prefix("etcd-");
        let folder = match Path::new(MEMORY).is_dir() && !options.on_disk {
            true => folder.tempdir_in(MEMORY),
            false => folder.tempdir(),
        };
        let this = Self {
            folder: folder.expect("a folder"),
            members: (1..=options.members).map(Member::new).collect(),
            options,
        };
        (0..this.members.len()).for_each(|member| this.launch(member));
        this.wait_until_healthy();
        if let Some(password) = &this.options.password {
            this.plain_cli(&["user", "add", &format!("root:{password}")]);
            this.plain_cli(&["auth", "enable"]);
        }
        this
    }

    fn launch(&self, member: usize) {
        let urls = self.members.iter().map(|one| format!("{}={}", one.name, one.peer_url()));
        let cluster = urls.collect::<Vec<_>>().join(",");
        self.members[member].launch(self.folder.path(), &self.options, &cluster);
    }

    /// Waits until a majority agrees, as seen from every member that is up.
    ///
    /// # Panics
    /// With the end of a log if that does not come to be.
    pub fn wait_until_healthy(&self) {
        for member in self.members.iter().filter(|member| member.is_up()) {
            let is_healthy = || {
                if member.ended() {
                    panic!("etcd ended\n{}", tail(&member.log(self.folder.path())));
                }
                let healthy = match &self.options.tls {
                    None => member.http("/health").is_some_and(|said| said.contains("\"true\"")),
                    Some(_) => self
                        .run(&["--endpoints", &self.endpoint(member), "endpoint", "health"], true)
                        .is_ok(),
                };
                healthy.then_some(())
            };
            eventually("etcd is healthy", PATIENCE, is_healthy);
        }
    }

    fn endpoint(&self, member: &Member) -> String {
        let scheme = if self.options.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", member.address())
    }

    /// `127.0.0.1:PORT` of each member.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(Member::address).collect()
    }

    /// The URL of the whole, with `root` and its password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.options.tls.is_some() { "etcds" } else { "etcd" };
        let login = self.options.password.as_ref().map(|password| format!("root:{password}@"));
        format!("{scheme}://{}{}", login.unwrap_or_default(), self.addresses().join(","))
    }

    /// Which member leads.
    ///
    /// # Panics
    /// If none does in time.
    #[must_use]
    pub fn leader(&self) -> usize {
        eventually("there is a leader", PATIENCE, || {
            (0..self.members.len()).filter(|member| self.members[*member].is_up()).find(|member| {
                let endpoint = self.endpoint(&self.members[*member]);
                let said =
                    self.run(&["--endpoints", &endpoint, "endpoint", "status", "-w", "json"], true);
                let said: Option<serde_json::Value> =
                    said.ok().and_then(|said| serde_json::from_str(&said).ok());
                said.is_some_and(|said| {
                    let status = &said[0]["Status"];
                    status["leader"].is_u64() && status["leader"] == status["header"]["member_id"]
                })
            })
        })
    }

    /// SIGKILL.
    pub fn kill(&self, member: usize) {
        self.members[member].kill();
    }

    /// Starts a member that was killed, with what it had.
    pub fn restart(&self, member: usize) {
        self.launch(member);
    }

    /// SIGSTOP: connections stay, nothing is answered.
    pub fn pause(&self, member: usize) {
        self.members[member].pause();
    }

    /// SIGCONT.
    pub fn resume(&self, member: usize) {
        self.members[member].resume();
    }

    /// Kills all members and starts them without anything they had: another cluster at the same addresses.
    pub fn rebuild(&self) {
        self.members.iter().for_each(Member::kill);
        for member in &self.members {
            fs::remove_dir_all(self.folder.path().join(&member.name))
                .expect("its data can be removed");
        }
        (0..self.members.len()).for_each(|member| self.launch(member));
        self.wait_until_healthy();
    }

    /// Stops all members and starts them again.
    pub fn restart_all(&self) {
        self.members.iter().for_each(Member::kill);
        (0..self.members.len()).for_each(|member| self.launch(member));
        self.wait_until_healthy();
    }

    /// The sum of a member's counters whose line begins so.
    #[must_use]
    pub fn metric(&self, member: usize, beginning: &str) -> f64 {
        let said = self.members[member].http("/metrics").expect("metrics");
        let lines = said.lines().filter(|line| line.starts_with(beginning));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// What `etcdctl` prints.
    ///
    /// # Panics
    /// If it fails.
    pub fn cli(&self, args: &[&str]) -> String {
        self.run(args, false).unwrap_or_else(|why| panic!("etcdctl {}: {why}", args.join(" ")))
    }

    fn plain_cli(&self, args: &[&str]) {
        if let Err(why) = self.run(args, true) {
            panic!("etcdctl {}: {why}", args.join(" "));
        }
    }

    /// An `etcdctl` that goes on by itself, with what it reads and writes piped: for `lock`.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn spawn_cli(&self, args: &[&str]) -> Child {
        let mut command = self.etcdctl(false);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().expect("etcdctl can be run")
    }

    fn etcdctl(&self, without_password: bool) -> Command {
        let endpoints: Vec<_> = self.members.iter().map(|member| self.endpoint(member)).collect();
        // Dies with whoever runs it, at the latest after a minute.
        let mut command = Command::new("timeout");
        command.args(["60", "setpriv", "--pdeathsig", "KILL", "--", "etcdctl"]);
        command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", endpoints.join(","));
        if let Some(password) = self.options.password.as_ref().filter(|_| !without_password) {
            command.env("ETCDCTL_USER", format!("root:{password}"));
        }
        if let Some(tls) = &self.options.tls {
            command.env("ETCDCTL_CACERT", &tls.ca);
            if tls.ask_clients {
                command.env("ETCDCTL_CERT", &tls.cert).env("ETCDCTL_KEY", &tls.key);
            }
        }
        command
    }

    fn run(&self, args: &[&str], without_password: bool) -> Result<String, String> {
        let mut command = self.etcdctl(without_password);
        // Who names members means those alone.
        if args.contains(&"--endpoints") {
            command.env_remove("ETCDCTL_ENDPOINTS");
        }
        let output = command.args(args).stdin(Stdio::null()).output().expect("etcdctl can be run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(format!("{} {}", text(&output.stderr), text(&output.stdout)).trim().to_owned())
    }
}

/// The last lines, enough to see why.
fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].iter().map(|line| format!("  {line}\n")).collect()
}
