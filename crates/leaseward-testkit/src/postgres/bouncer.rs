//! PgBouncer in front of a server, in transaction mode.

use std::{
    fs::{self, File},
    net::TcpStream,
    path::Path,
    process::Stdio,
};

use super::{
    DATABASE, PASSWORD, Postgres, USER,
    folder::{Folder, as_user, give},
};
use crate::{
    port::Port,
    process::{Process, require},
    wait::{PATIENCE, eventually},
};

/// Gives each transaction any of its connections to the server. Killed when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    port: Port,
    _process: Process,
    folder: Folder,
}

impl PgBouncer {
    /// In front of `server`, with at most so many connections to it for each database and user.
    ///
    /// # Panics
    /// If it does not start, and with how to install it if it is not there.
    #[must_use]
    pub fn before(server: &Postgres, connections: u32) -> Self {
        Self::configured(server, connections, "")
    }

    /// The same with more lines for its configuration file.
    ///
    /// # Panics
    /// If it does not start, and with how to install it if it is not there.
    #[must_use]
    pub fn configured(server: &Postgres, connections: u32, lines: &str) -> Self {
        // Debian keeps it where not all users look.
        let program = Path::new("/usr/sbin/pgbouncer");
        if !program.is_file() {
            require("pgbouncer", "pgbouncer");
        }
        let (folder, port) = (Folder::new("bouncer"), Port::reserve());
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: String| {
            fs::write(at(name), text).expect("a file can be written");
            give(&at(name));
        };
        write("users", format!("\"{USER}\" \"{PASSWORD}\"\n"));
        write(
            "ini",
            format!(
                "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
                 unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
                 default_pool_size = {connections}\nmax_client_conn = 500\nserver_login_retry = 0\n{lines}\n",
                server.port(),
                port.number(),
                at("users").display(),
            ),
        );
        let log = File::create(at("log")).expect("a file can be made");
        let mut command = as_user(if program.is_file() { program } else { Path::new("pgbouncer") });
        command.arg(at("ini")).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a handle")).stderr(log);
        let process = Process::start(command);
        eventually("pgbouncer takes connections", PATIENCE, || {
            TcpStream::connect(("127.0.0.1", port.number())).ok()
        });
        Self { port, _process: process, folder }
    }

    /// Where it is, for the server's superuser and the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(DATABASE)
    }

    /// The same for another database.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port.number())
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(self.folder.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }
}
