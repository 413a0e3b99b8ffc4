//! ZooKeeper: one server, or three that vote.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    port::Port,
    process::{self, Process},
    wait::eventually,
};

/// Java takes a second to start, on a loaded machine many; then servers vote.
const START: Duration = Duration::from_secs(60);

/// What Debian's package brings, and what of it the server needs.
const JARS: &str = "/usr/share/java";
const NEEDED: [&str; 5] =
    ["zookeeper.jar", "log4j-1.2.jar", "slf4j-log4j12.jar", "slf4j-api.jar", "netty-all.jar"];

/// The options of a [`ZooKeeper`].
#[derive(Clone, Debug)]
pub struct ZooKeeperBuilder {
    tick: Duration,
    longest: Duration,
    servers: usize,
    lines: Vec<String>,
    fsync: bool,
}

impl ZooKeeperBuilder {
    /// How long a tick is; sessions last at least two.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// How long a session may last.
    #[must_use]
    pub fn longest_session(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// How many servers vote.
    #[must_use]
    pub fn servers(mut self, servers: usize) -> Self {
        self.servers = servers;
        self
    }

    /// Answers only what is on the disk, as a server does unless told otherwise. Tests do without: killing a server loses
    /// nothing that the kernel has.
    #[must_use]
    pub fn fsync(mut self) -> Self {
        self.fsync = true;
        self
    }

    /// Any other option, as in `zoo.cfg`.
    #[must_use]
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        self.lines.push(format!("{key}={value}"));
        self
    }

    /// Starts it; returns when it answers.
    ///
    /// # Panics
    /// With the end of its log if it does not, and with how to install it if it is not there.
    #[must_use]
    pub fn start(self) -> ZooKeeper {
        ZooKeeper::start_with(self, None)
    }
}

/// Servers of one's own on free ports of 127.0.0.1. Killed when dropped.
#[derive(Debug)]
pub struct ZooKeeper {
    options: ZooKeeperBuilder,
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    folder: TempDir,
    clients: Port,
    peers: Port,
    votes: Port,
    process: Mutex<Option<Process>>,
}

impl ZooKeeper {
    /// One server, with ticks so short that sessions end within a tenth of a second.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Servers with options.
    #[must_use]
    pub fn builder() -> ZooKeeperBuilder {
        ZooKeeperBuilder {
            tick: Duration::from_millis(50),
            longest: Duration::from_secs(3 * 3600),
            servers: 1,
            lines: Vec::new(),
            fsync: false,
        }
    }

    /// Others that begin with what these have on their disks at this moment, as after a crash.
    ///
    /// # Panics
    /// As [`ZooKeeperBuilder::start`].
    #[must_use]
    pub fn from_its_disk(&self) -> Self {
        Self::start_with(self.options.clone(), Some(self))
    }

    fn start_with(options: ZooKeeperBuilder, before: Option<&Self>) -> Self {
        let server = |_| Server {
            folder: tempfile::Builder::new().prefix("zookeeper-").tempdir().expect("a folder"),
            clients: Port::reserve(),
            peers: Port::reserve(),
            votes: Port::reserve(),
            process: Mutex::new(None),
        };
        let servers: Vec<Server> = (0..options.servers).map(server).collect();
        let this = Self { options, servers };
        for at in 0..this.servers.len() {
            if let Some(before) = before {
                copy(&before.servers[at].data(), &this.servers[at].data());
            }
            this.configure(at);
            this.launch(at);
        }
        for at in 0..this.servers.len() {
            this.wait_for(at);
        }
        this
    }

    fn configure(&self, at: usize) {
        let server = &self.servers[at];
        let data = server.data();
        fs::create_dir_all(&data).expect("a folder can be made");
        let tick = self.options.tick.as_millis();
        let mut text = format!(
            "tickTime={tick}\ninitLimit=200\nsyncLimit=40\ndataDir={}\nclientPort={}\n\
             clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=*\n\
             maxClientCnxns=0\nmaxSessionTimeout={}\n",
            data.display(),
            server.clients.number(),
            self.options.longest.as_millis(),
        );
        for line in &self.options.lines {
            text.push_str(&format!("{line}\n"));
        }
        if self.servers.len() > 1 {
            for (id, peer) in self.servers.iter().enumerate() {
                let (peers, votes) = (peer.peers.number(), peer.votes.number());
                text.push_str(&format!("server.{id}=127.0.0.1:{peers}:{votes}\n"));
            }
            fs::write(data.join("myid"), at.to_string()).expect("a file can be written");
        }
        let folder = server.folder.path();
        fs::write(folder.join("zoo.cfg"), text).expect("a file can be written");
        let log = "log4j.rootLogger=WARN, console\n\
                   log4j.appender.console=org.apache.log4j.ConsoleAppender\n\
                   log4j.appender.console.layout=org.apache.log4j.PatternLayout\n\
                   log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m%n\n";
        fs::write(folder.join("log4j.properties"), log).expect("a file can be written");
    }

    fn launch(&self, at: usize) {
        let folder = self.servers[at].folder.path();
        let jars = NEEDED.map(|jar| format!("{JARS}/{jar}"));
        assert!(
            jars.iter().all(|jar| Path::new(jar).is_file()),
            "ZooKeeper is not installed\nhint: `cargo xtask test --install`, or `sudo apt-get install -y \
             --no-install-recommends zookeeper`"
        );
        let mut command = process::mortal("java", "default-jre-headless");
        // Small, and quick to start: it lives for seconds.
        command.args([
            "-Xmx160m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
        ]);
        command.arg("-Dzookeeper.preAllocSize=64");
        if !self.options.fsync {
            command.arg("-Dzookeeper.forceSync=no");
        }
        command.arg("-cp").arg(format!("{}:{}", folder.display(), jars.join(":")));
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain");
        command.arg(folder.join("zoo.cfg"));
        let log = File::options().create(true).append(true).open(folder.join("log"));
        let log = log.expect("a file can be made");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a handle")).stderr(log);
        *self.servers[at].lock() = Some(Process::start(command));
    }

    fn wait_for(&self, at: usize) {
        let begin = std::time::Instant::now();
        while !self.serves(at) {
            let ended = self.servers[at].lock().as_mut().and_then(Process::ended);
            assert!(
                ended.is_none() && begin.elapsed() < START,
                "ZooKeeper does not serve\n{}",
                fs::read_to_string(self.servers[at].folder.path().join("log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn serves(&self, at: usize) -> bool {
        self.command(at, "srvr").is_some_and(|said| said.contains("Mode: "))
    }

    /// What a server answers to a command of four letters; `None` if nothing.
    #[must_use]
    pub fn command(&self, at: usize, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port(at))).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(command.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        (!text.is_empty()).then_some(text)
    }

    /// Deletes a node that is empty, as anybody may. Does nothing if it is not there.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn remove(&self, path: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port(0))).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out can be set");
        // A session of ten seconds; then `delete`, whatever its version; then its end.
        let mut connect = vec![0; 4 + 8];
        connect.extend(10_000_i32.to_be_bytes());
        connect.extend([0; 8]);
        connect.extend(16_i32.to_be_bytes());
        connect.extend([0; 17]);
        let mut delete =
            [1_i32, 2, i32::try_from(path.len()).expect("short")].map(i32::to_be_bytes).concat();
        delete.extend(path.as_bytes());
        delete.extend((-1_i32).to_be_bytes());
        let close = [2_i32, -11].map(i32::to_be_bytes).concat();
        for message in [connect, delete, close] {
            let len = u32::try_from(message.len()).expect("short").to_be_bytes();
            stream.write_all(&[&len[..], &message].concat()).expect("it listens");
            let mut len = [0; 4];
            stream.read_exact(&mut len).expect("it answers");
            let len = usize::try_from(u32::from_be_bytes(len)).expect("short");
            stream.read_exact(&mut vec![0; len]).expect("it answers");
        }
    }

    /// The port for clients.
    #[must_use]
    pub fn port(&self, at: usize) -> u16 {
        self.servers[at].clients.number()
    }

    /// `127.0.0.1:PORT,…`, all of them.
    #[must_use]
    pub fn hosts(&self) -> String {
        let ports = (0..self.servers.len()).map(|at| format!("127.0.0.1:{}", self.port(at)));
        ports.collect::<Vec<_>>().join(",")
    }

    /// `zookeeper://127.0.0.1:PORT,…/root`.
    #[must_use]
    pub fn url(&self, root: &str) -> String {
        format!("zookeeper://{}/{root}", self.hosts())
    }

    /// Which server leads.
    ///
    /// # Panics
    /// If none does in time.
    #[must_use]
    pub fn leader(&self) -> usize {
        eventually("one of the servers leads", START, || {
            (0..self.servers.len()).find(|at| {
                self.servers[*at].lock().as_ref().is_some_and(Process::is_awake)
                    && self.command(*at, "srvr").is_some_and(|said| said.contains("Mode: leader"))
            })
        })
    }

    /// A server that follows.
    ///
    /// # Panics
    /// As [`leader`](Self::leader).
    #[must_use]
    pub fn follower(&self) -> usize {
        (self.leader() + 1) % self.servers.len()
    }

    /// SIGKILL. Does nothing if it is down.
    pub fn kill(&self, at: usize) {
        *self.servers[at].lock() = None;
    }

    /// Starts a server again with what it has on its disk. Returns when it serves.
    ///
    /// # Panics
    /// As [`ZooKeeperBuilder::start`].
    pub fn restart(&self, at: usize) {
        self.kill(at);
        self.launch(at);
        self.wait_for(at);
    }

    /// SIGSTOP: connections stay and nothing is answered.
    pub fn pause(&self, at: usize) {
        self.servers[at].lock().as_ref().expect("it runs").pause();
    }

    /// SIGCONT.
    pub fn resume(&self, at: usize) {
        self.servers[at].lock().as_ref().expect("it runs").resume();
    }
}

impl Server {
    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies a folder, files that grow meanwhile as they are.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("a folder can be read").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}
