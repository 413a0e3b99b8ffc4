//! One PostgreSQL server.

mod bouncer;
mod builder;
mod folder;

use std::{
    fmt::Write as _,
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

pub use bouncer::PgBouncer;
use builder::Origin;
pub use builder::PostgresBuilder;
use folder::{Folder, as_user, give, program};
use rustix::process::Signal;

use crate::{
    port::Port,
    process::{self, Process},
    wait::{PATIENCE, eventually},
};

/// Who a fresh server knows: a superuser.
const USER: &str = "app";
/// Its password.
const PASSWORD: &str = "app-secret";
/// The database that a URL names if nothing else is asked for.
const DATABASE: &str = "postgres";

/// Another program, that knows nothing of our reservations, may take a port between our look and the server's.
const ATTEMPTS: usize = 5;

/// A PostgreSQL server of one's own on a free port of 127.0.0.1. Commits are durable unless it is told otherwise. Killed
/// when dropped.
#[derive(Debug)]
pub struct Postgres {
    options: PostgresBuilder,
    folder: Folder,
    port: Port,
    process: Mutex<Option<Process>>,
}

/// Why a server did not come up.
enum Refusal {
    PortTaken,
    Other(String),
}

impl Postgres {
    /// A server with PostgreSQL's own settings.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with options.
    #[must_use]
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    fn start_with(options: PostgresBuilder) -> Self {
        for _ in 0..ATTEMPTS {
            let server = Self {
                folder: if options.in_memory {
                    Folder::in_memory("server")
                } else {
                    Folder::new("server")
                },
                port: Port::reserve(),
                process: Mutex::new(None),
                options: options.clone(),
            };
            match &server.options.origin {
                Origin::Fresh => copy(template(), &server.data()),
                Origin::Standby(primary) => server.copy_from(primary),
            }
            server.configure();
            match server.launch() {
                Ok(()) => return server,
                Err(Refusal::PortTaken) => {}
                Err(Refusal::Other(why)) => panic!("{why}"),
            }
        }
        panic!("{ATTEMPTS} free ports in turn were taken before the server had them");
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Begins as a copy of a server, to follow it.
    fn copy_from(&self, primary: &str) {
        let mut backup = as_user(&program("pg_basebackup"));
        backup.args(["--write-recovery-conf", "--checkpoint=fast", "--dbname", primary]);
        succeed(backup.arg("--pgdata").arg(self.data()));
    }

    fn configure(&self) {
        let (data, port) = (self.data(), self.port());
        let mut text = fs::read_to_string(data.join("postgresql.conf")).expect("made by initdb");
        let mut line = |line: &dyn std::fmt::Display| {
            writeln!(text, "{line}").expect("a string takes it");
        };
        line(&format_args!("\nlisten_addresses = '127.0.0.1'\nport = {port}"));
        // In its own folder, so that nothing is left in the machine's.
        line(&"dynamic_shared_memory_type = mmap");
        line(&format_args!("unix_socket_directories = '{}'", self.folder.path().display()));
        if let Some(tls) = &self.options.tls {
            let own = |from: &Path, name: &str| {
                let to = data.join(name);
                fs::copy(from, &to).expect("a file can be copied");
                // The server refuses a key that others may read.
                fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("it is ours");
                give(&to);
            };
            own(&tls.cert, "server.crt");
            own(&tls.key, "server.key");
            own(&tls.ca, "ca.crt");
            line(&"ssl = on\nssl_ca_file = 'ca.crt'");
            let verify = if tls.ask_clients { " clientcert=verify-ca" } else { "" };
            let rules =
                format!("local all all scram-sha-256\nhostssl all all all scram-sha-256{verify}\n");
            fs::write(data.join("pg_hba.conf"), rules).expect("a file can be written");
        }
        for own in &self.options.lines {
            line(own);
        }
        fs::write(data.join("postgresql.conf"), text).expect("a file can be written");
    }

    fn launch(&self) -> Result<(), Refusal> {
        let before = self.log().len();
        let mut command = as_user(&program("postgres"));
        command.arg("-D").arg(self.data());
        command.envs(self.options.environment.clone());
        let log = File::options().create(true).append(true).open(self.folder.path().join("log"));
        let log = log.expect("a file can be made");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a handle")).stderr(log);
        let mut process = Process::start(command);
        let begin = Instant::now();
        let outcome = loop {
            if let Some(status) = process.ended() {
                break Err(format!("ended with {status}"));
            }
            if self.is_ready(process.pid()) {
                break Ok(());
            }
            if begin.elapsed() > PATIENCE {
                break Err(format!("takes no connections after {PATIENCE:?}"));
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
            Refusal::Other(format!("postgres {what}\n{log}"))
        })
    }

    /// Whether it says so itself, in the file that `pg_ctl` looks at too.
    fn is_ready(&self, pid: u32) -> bool {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = text.lines();
        lines.next() == Some(pid.to_string().as_str())
            && lines.last().is_some_and(|state| matches!(state.trim(), "ready" | "standby"))
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

    /// Where it is, for its superuser and the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(USER, PASSWORD, DATABASE)
    }

    /// Where it is, for another user or database.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str, database: &str) -> String {
        format!("postgres://{user}:{password}@{}/{database}", self.address())
    }

    /// Makes an empty database; answers its URL.
    #[must_use]
    pub fn database(&self, name: &str) -> String {
        self.sql(&format!("CREATE DATABASE \"{name}\""));
        self.url_of(USER, PASSWORD, name)
    }

    /// Makes a user without any rights; answers its URL.
    #[must_use]
    pub fn user(&self, name: &str) -> String {
        self.sql(&format!("CREATE ROLE \"{name}\" LOGIN PASSWORD '{PASSWORD}'"));
        self.url_of(name, PASSWORD, DATABASE)
    }

    /// The folder of its unix socket, and of all its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The id of its first process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.with_process(Process::pid)
    }

    /// SIGKILL for all of its processes, as if the machine had failed; waits for their end. Its port stays reserved. Does
    /// nothing if it is down.
    pub fn kill(&self) {
        let Some(process) = self.lock().take() else { return };
        let pid = process.pid();
        // The first one while it is stopped: it would start others in place of those that die.
        process.pause();
        let children = process::children(pid);
        drop(process);
        for child in &children {
            process::signal(*child, Signal::KILL);
        }
        eventually("the server's processes have ended", PATIENCE, || {
            children.iter().all(|child| !process::is_there(*child)).then_some(())
        });
    }

    /// An orderly stop that ends all connections. Its port stays reserved. Does nothing if it is down.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`].
    pub fn stop(&self) {
        let Some(mut process) = self.lock().take() else { return };
        process::signal(process.pid(), Signal::INT);
        eventually("the server has ended", PATIENCE, || process.ended());
    }

    /// Kills it if it runs, and starts it again: same port, same files, same options. Returns when it takes connections.
    ///
    /// # Panics
    /// As [`PostgresBuilder::start`].
    pub fn restart(&self) {
        self.kill();
        match self.launch() {
            Ok(()) => {}
            Err(Refusal::PortTaken) => panic!("port {} was taken meanwhile", self.port()),
            Err(Refusal::Other(why)) => panic!("{why}"),
        }
    }

    /// SIGSTOP for all of its processes: connections stay, and nothing is answered.
    pub fn pause(&self) {
        self.with_process(|process| {
            // The first one first, so that it starts no others meanwhile.
            process.pause();
            for child in process::children(process.pid()) {
                process::signal(child, Signal::STOP);
            }
        });
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.with_process(|process| {
            for child in process::children(process.pid()) {
                process::signal(child, Signal::CONT);
            }
            process.resume();
        });
    }

    /// What `psql` prints, columns separated by `|`.
    ///
    /// # Panics
    /// If the server refuses or does not answer.
    pub fn sql(&self, sql: &str) -> String {
        self.sql_in(DATABASE, sql)
    }

    /// The same in another database.
    ///
    /// # Panics
    /// If the server refuses or does not answer.
    pub fn sql_in(&self, database: &str, sql: &str) -> String {
        let url = self.url_of(USER, PASSWORD, database);
        self.try_sql(&url, sql).unwrap_or_else(|why| panic!("{sql}: {why}"))
    }

    /// What `psql` prints, or the server's refusal.
    ///
    /// # Errors
    /// What the server or `psql` says.
    pub fn try_sql(&self, url: &str, sql: &str) -> Result<String, String> {
        process::require("psql", "postgresql-client");
        let mut psql = Command::new("timeout");
        psql.args(["30", "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql]);
        let output = psql.stdin(Stdio::null()).output().expect("psql can be run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Has `pgbench` carry out a script over and over on that many connections, parsing each statement anew as clients
    /// behind a pooler do; answers how many times a second.
    ///
    /// # Panics
    /// If it does not run, or a statement fails.
    pub fn pgbench(&self, script: &str, connections: u32, seconds: u64) -> f64 {
        self.pgbench_as("extended", "", script, connections, seconds)
    }

    /// The same with statements that are prepared once, and with settings of its own (`-c name=value …`).
    ///
    /// # Panics
    /// As [`Postgres::pgbench`].
    #[must_use]
    pub fn pgbench_prepared(
        &self,
        settings: &str,
        script: &str,
        connections: u32,
        seconds: u64,
    ) -> f64 {
        self.pgbench_as("prepared", settings, script, connections, seconds)
    }

    fn pgbench_as(
        &self,
        protocol: &str,
        settings: &str,
        script: &str,
        connections: u32,
        seconds: u64,
    ) -> f64 {
        let file = self.folder.path().join("pgbench.sql");
        fs::write(&file, script).expect("a file can be written");
        let mut pgbench = Command::new(program("pgbench"));
        pgbench.env("PGOPTIONS", settings).args(["--no-vacuum", "--jobs=1"]);
        pgbench.arg(format!("--protocol={protocol}")).arg("--client");
        pgbench.arg(connections.to_string()).arg("--time").arg(seconds.to_string());
        pgbench.arg("--file").arg(file).arg(self.url());
        let output = pgbench.stdin(Stdio::null()).output().expect("pgbench can be run");
        let said = String::from_utf8_lossy(&output.stdout);
        let line = said.lines().find_map(|line| line.strip_prefix("tps = "));
        let rate = line.and_then(|line| line.split(' ').next()?.parse().ok());
        let complaint = String::from_utf8_lossy(&output.stderr);
        rate.filter(|_| output.status.success()).unwrap_or_else(|| panic!("pgbench: {complaint}"))
    }

    /// All that it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(self.folder.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_process<T>(&self, act: impl FnOnce(&Process) -> T) -> T {
        act(self.lock().as_ref().unwrap_or_else(|| panic!("the server on {} is down", self.port())))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.lock().is_some() {
            self.resume();
        }
        if let Some(mut process) = self.lock().take() {
            // An immediate shutdown: killed, it would leave shared memory behind.
            process::signal(process.pid(), Signal::QUIT);
            let begin = Instant::now();
            while process.ended().is_none() && begin.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// A cluster that was made once and never run: servers begin as copies of it.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<Folder> = OnceLock::new();
    let folder = TEMPLATE.get_or_init(|| {
        let folder = Folder::new("template");
        let password = folder.path().join("password");
        fs::write(&password, PASSWORD).expect("a file can be written");
        give(&password);
        let mut initdb = as_user(&program("initdb"));
        initdb.args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        initdb.args(["--wal-segsize=1", "--username", USER]).arg("--pwfile").arg(&password);
        succeed(initdb.arg("--pgdata").arg(folder.path().join("data")));
        folder
    });
    folder.path()
}

fn copy(template: &Path, data: &Path) {
    succeed(Command::new("cp").arg("-a").arg(template.join("data")).arg(data));
}

fn succeed(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
