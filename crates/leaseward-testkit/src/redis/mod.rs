//! One Redis server.

mod builder;

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tempfile::TempDir;

pub(crate) use builder::Role;
pub use builder::{Fsync, RedisBuilder, TlsFiles};

use crate::{
    port::Port,
    process::{self, Process},
    wait::{PATIENCE, eventually},
};

/// Another program, that knows nothing of our reservations, may take a port between our look and the server's.
const ATTEMPTS: usize = 5;

/// A Redis server of one's own on a free port of 127.0.0.1. Killed when dropped.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisBuilder,
    folder: TempDir,
    port: Port,
    process: Mutex<Option<Process>>,
}

/// Why a server did not come up.
enum Refusal {
    PortTaken,
    Other(String),
}

impl RedisServer {
    /// A server that keeps nothing.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with options.
    #[must_use]
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    fn start_with(options: RedisBuilder) -> Self {
        for _ in 0..ATTEMPTS {
            let server = Self {
                folder: tempfile::Builder::new().prefix("redis-").tempdir().expect("a folder"),
                port: Port::reserve(),
                process: Mutex::new(None),
                options: options.clone(),
            };
            server.configure();
            match server.launch() {
                Ok(()) => return server,
                Err(Refusal::PortTaken) => {}
                Err(Refusal::Other(why)) => panic!("{why}"),
            }
        }
        panic!("{ATTEMPTS} free ports in turn were taken before the server had them");
    }

    /// Writes the file that the server is started from. In a file and not as arguments, because Sentinel has servers
    /// rewrite theirs, and a restart must find that.
    fn configure(&self) {
        let folder = self.folder.path().display();
        let mut text =
            format!("bind 127.0.0.1\ndaemonize no\ndir {folder}\nlogfile {folder}/log\n");
        if self.options.role == Role::Server {
            text.push_str("save \"\"\nenable-debug-command local\nrepl-diskless-sync-delay 0\n");
        }
        let port = self.port();
        let mut line = |line: &dyn std::fmt::Display| {
            writeln!(text, "{line}").expect("a string takes it");
        };
        if let Some(tls) = &self.options.tls {
            line(&format_args!("port 0\ntls-port {port}\ntls-replication yes\ntls-cluster yes"));
            line(&format_args!("tls-ca-cert-file {}", tls.ca.display()));
            line(&format_args!("tls-cert-file {}", tls.cert.display()));
            line(&format_args!("tls-key-file {}", tls.key.display()));
            let ask = if tls.ask_clients { "yes" } else { "no" };
            line(&format_args!("tls-auth-clients {ask}"));
        } else {
            line(&format_args!("port {port}"));
        }
        if self.options.socket {
            line(&format_args!("unixsocket {}", self.socket().display()));
        }
        for own in &self.options.lines {
            line(own);
        }
        fs::write(self.folder.path().join("redis.conf"), text).expect("a file can be written");
    }

    fn launch(&self) -> Result<(), Refusal> {
        let before = self.log().len();
        let program = match self.options.role {
            Role::Server => "redis-server",
            Role::Sentinel => "redis-sentinel",
        };
        let mut command = process::mortal(program, program);
        command.arg(self.folder.path().join("redis.conf"));
        command.envs(self.options.environment.clone());
        // What it says before it has read where its log is.
        let early = File::create(self.folder.path().join("early")).expect("a file can be made");
        command.stdin(Stdio::null()).stdout(early.try_clone().expect("a handle")).stderr(early);
        let mut process = Process::start(command);
        let begin = Instant::now();
        let outcome = loop {
            if let Some(status) = process.ended() {
                break Err(format!("ended with {status}"));
            }
            if self.answers() {
                break Ok(());
            }
            if begin.elapsed() > PATIENCE {
                break Err(format!("does not answer after {PATIENCE:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        *self.lock() = Some(process);
        outcome.map_err(|what| {
            let log = self.log();
            let log = log.get(before..).unwrap_or(&log);
            if log.contains("Address already in use") {
                return Refusal::PortTaken;
            }
            let early = fs::read_to_string(self.folder.path().join("early")).unwrap_or_default();
            Refusal::Other(format!("{program} {what}\n{}{early}", tail(log)))
        })
    }

    /// Whether it serves. A refusal is an answer too, unless it is still loading.
    fn answers(&self) -> bool {
        if self.options.tls.is_some() {
            return self.try_cli(&["ping"]).is_ok();
        }
        let ask = || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port()))?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"PING\r\n")?;
            let mut answer = [0; 32];
            let read = stream.read(&mut answer)?;
            Ok::<_, std::io::Error>(answer[..read].to_vec())
        };
        ask().is_ok_and(|answer| !answer.is_empty() && !answer.starts_with(b"-LOADING"))
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// `redis://127.0.0.1:PORT`, or `rediss://`, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.options.tls.is_some() { "rediss" } else { "redis" };
        let password = self.password();
        let login = password.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{login}{}", self.address())
    }

    /// The unix socket, if it was asked for.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.options.password()
    }

    /// Where it keeps its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.with_process(|process| process.pid())
    }

    /// Whether it runs and is not paused. Tells nothing about a server that hangs.
    #[must_use]
    pub fn is_awake(&self) -> bool {
        self.lock().as_ref().is_some_and(Process::is_awake)
    }

    /// SIGKILL, and waits for its end. Its port stays reserved. Does nothing if it is down.
    pub fn kill(&self) {
        *self.lock() = None;
    }

    /// Kills it if it runs, and starts it again: same port, same files, same options. Returns when it answers.
    ///
    /// # Panics
    /// As [`RedisBuilder::start`].
    pub fn restart(&self) {
        self.kill();
        match self.launch() {
            Ok(()) => {}
            Err(Refusal::PortTaken) => panic!("port {} was taken meanwhile", self.port()),
            Err(Refusal::Other(why)) => panic!("{why}"),
        }
    }

    /// SIGSTOP: connections stay and nothing is answered, while keys go on expiring.
    pub fn pause(&self) {
        self.with_process(|process| process.pause());
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.with_process(|process| process.resume());
    }

    /// What `redis-cli` prints.
    ///
    /// # Panics
    /// If the server refuses or does not answer.
    pub fn cli(&self, args: &[&str]) -> String {
        self.try_cli(args).unwrap_or_else(|why| panic!("redis-cli {}: {why}", args.join(" ")))
    }

    /// What `redis-cli` prints, or the server's refusal.
    ///
    /// # Errors
    /// What the server or `redis-cli` says.
    pub fn try_cli(&self, args: &[&str]) -> Result<String, String> {
        let mut cli = cli();
        cli.args(["-p", &self.port().to_string()]);
        if let Some(password) = self.password() {
            cli.env("REDISCLI_AUTH", password);
        }
        if let Some(tls) = &self.options.tls {
            cli.arg("--tls").arg("--cacert").arg(&tls.ca);
            cli.arg("--cert").arg(&tls.cert).arg("--key").arg(&tls.key);
        }
        said(cli.args(args))
    }

    /// `INFO section` as a map.
    pub fn info(&self, section: &str) -> HashMap<String, String> {
        let pairs = self.cli(&["info", section]);
        let pairs = pairs.lines().filter_map(|line| line.trim_end().split_once(':'));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// `CLIENT LIST`, a map for each connection, without the one that asks.
    pub fn client_list(&self) -> Vec<HashMap<String, String>> {
        let clients = self.cli(&["client", "list"]);
        let fields = |line: &str| {
            let pairs = line.split(' ').filter_map(|pair| pair.split_once('='));
            pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let clients = clients.lines().map(fields);
        clients.filter(|client: &HashMap<_, _>| client["cmd"] != "client|list").collect()
    }

    /// How often each command was carried out, by its name, those inside of scripts included, since the start or
    /// `CONFIG RESETSTAT`.
    pub fn calls(&self) -> HashMap<String, u64> {
        let stats = self.info("commandstats").into_iter();
        let calls = stats.filter_map(|(key, stats)| {
            let calls = stats.split(',').find_map(|pair| pair.strip_prefix("calls="))?;
            Some((key.strip_prefix("cmdstat_")?.to_owned(), calls.parse().ok()?))
        });
        calls.collect()
    }

    /// Cuts its replicas off, so that what it takes from now on reaches none: stops them, then drops their connections,
    /// or else the data would wait in the kernel's buffers and still arrive.
    pub(crate) fn isolate_from(&self, replicas: &[&Self]) {
        replicas.iter().for_each(|replica| replica.pause());
        self.cli(&["client", "kill", "type", "replica"]);
    }

    /// Waits until it follows its primary, all data taken over.
    ///
    /// # Panics
    /// If it does not within [`PATIENCE`].
    pub fn wait_for_link(&self) {
        eventually("the replica is linked to its primary", PATIENCE, || {
            let info = self.info("replication");
            (info.get("master_link_status")? == "up").then_some(())
        });
    }

    /// Waits until it, a replica, has all that `primary` has now. (A `WAIT` by [`cli`](Self::cli) tells nothing: it answers
    /// for what its own connection wrote.)
    ///
    /// # Panics
    /// If it has not within [`PATIENCE`].
    pub fn wait_for_copy(&self, primary: &Self) {
        let offset = |server: &Self, key: &str| {
            server.info("replication").get(key).and_then(|text| text.parse::<u64>().ok())
        };
        let all = offset(primary, "master_repl_offset").expect("a server has an offset");
        eventually("the replica has all of its primary", PATIENCE, || {
            (offset(self, "slave_repl_offset")? >= all).then_some(())
        });
    }

    /// Waits until that many replicas have acknowledged what it wrote: `WAIT` answers for them from then on. A new replica
    /// counts as online before, and sends its first acknowledgement up to a second later.
    ///
    /// # Panics
    /// If they do not within [`PATIENCE`].
    pub fn wait_for_replicas(&self, count: usize) {
        // A write that every node of a cluster takes, and that changes nothing.
        self.cli(&["function", "flush"]);
        eventually("the replicas acknowledge", PATIENCE, || {
            let info = self.info("replication");
            let written = format!("offset={},", info["master_repl_offset"]);
            let up_to_date = info.values().filter(|value| value.contains(&written)).count();
            (up_to_date == count).then_some(())
        });
    }

    /// All that it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(self.folder.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_process<T>(&self, act: impl FnOnce(&Process) -> T) -> T {
        act(self.lock().as_ref().unwrap_or_else(|| panic!("the server on {} is down", self.port())))
    }
}

/// `redis-cli`, that fails when the server refuses, and does not hang for ever on a paused one.
pub(crate) fn cli() -> Command {
    process::require("redis-cli", "redis-tools");
    let mut cli = Command::new("timeout");
    cli.args(["30", "redis-cli", "-h", "127.0.0.1", "-e"]);
    cli
}

/// Runs `redis-cli` to its end.
pub(crate) fn said(cli: &mut Command) -> Result<String, String> {
    let output = cli.stdin(Stdio::null()).output().expect("redis-cli can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("{} {}", text(&output.stderr), text(&output.stdout)).trim().to_owned())
}

/// The last lines, enough to see why.
fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].iter().map(|line| format!("  {line}\n")).collect()
}
