//! One member of a cluster.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Stdio,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::EtcdBuilder;
use crate::{
    port::Port,
    process::{self, Process},
};

#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) port: Port,
    pub(super) peer_port: Port,
    process: Mutex<Option<Process>>,
}

impl Member {
    pub(super) fn new(number: usize) -> Self {
        Self {
            name: format!("m{number}"),
            port: Port::reserve(),
            peer_port: Port::reserve(),
            process: Mutex::default(),
        }
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    pub(super) fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer_port.number())
    }

    /// Starts it, or starts it again with what it has.
    pub(super) fn launch(&self, folder: &Path, options: &EtcdBuilder, cluster: &str) {
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let client_url = format!("{scheme}://{}", self.address());
        let mut command = process::mortal("etcd", "etcd-server");
        // Settings of whoever runs the tests.
        for (key, _) in std::env::vars().filter(|(key, _)| key.starts_with("ETCD")) {
            command.env_remove(key);
        }
        command.arg("--data-dir").arg(folder.join(&self.name)).args([
            "--name",
            &self.name,
            "--listen-client-urls",
            &client_url,
            "--advertise-client-urls",
            &client_url,
            "--listen-peer-urls",
            &self.peer_url(),
            "--initial-advertise-peer-urls",
            &self.peer_url(),
            "--initial-cluster",
            cluster,
            "--logger",
            "zap",
            "--log-outputs",
            "stderr",
            "--log-level",
            "warn",
        ]);
        if let Some(tls) = &options.tls {
            command.arg("--cert-file").arg(&tls.cert).arg("--key-file").arg(&tls.key);
            if tls.ask_clients {
                command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&tls.ca);
            }
        }
        command.args(&options.arguments);
        let log = File::options().create(true).append(true).open(folder.join(self.log_name()));
        let log = log.expect("a file can be made");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a handle")).stderr(log);
        *self.lock() = Some(Process::start(command));
    }

    fn log_name(&self) -> String {
        format!("{}.log", self.name)
    }

    pub(super) fn log(&self, folder: &Path) -> String {
        let log = fs::read(folder.join(self.log_name())).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// How it ended, if it did.
    pub(super) fn ended(&self) -> bool {
        self.lock().as_mut().is_none_or(|process| process.ended().is_some())
    }

    pub(super) fn kill(&self) {
        *self.lock() = None;
    }

    pub(super) fn pause(&self) {
        self.running(|process| process.pause());
    }

    pub(super) fn resume(&self) {
        self.running(|process| process.resume());
    }

    pub(super) fn is_up(&self) -> bool {
        self.lock().is_some()
    }

    fn running(&self, act: impl FnOnce(&Process)) {
        act(self.lock().as_ref().unwrap_or_else(|| panic!("`{}` is down", self.name)));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it says to a plain request; `None` if it says nothing.
    pub(super) fn http(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}
