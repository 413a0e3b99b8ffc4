//! Where jobs and their effects are.

use std::{fs, path::PathBuf};

use leaseward_testkit::{Postgres, Proxy};
use tempfile::TempDir;

/// A database, and a file that effects are appended to.
pub(crate) struct Place {
    /// For those who are to be left in peace.
    pub(crate) url: String,
    /// For workers.
    pub(crate) worker_url: String,
    folder: TempDir,
    server: Option<(Postgres, Proxy)>,
}

impl Place {
    /// Durable, so that a restart loses nothing; workers reach it through a proxy.
    pub(crate) fn postgres() -> Self {
        let server = Postgres::builder().max_connections(200).start();
        let proxy = Proxy::start(&server.address());
        let url = server.url();
        let worker_url = url.replace(&server.address(), &proxy.address());
        assert_ne!(url, worker_url, "the proxy is in between");
        server.sql("CREATE TABLE effects (number bigint NOT NULL, fence bigint NOT NULL)");
        Self { url, worker_url, folder: folder(), server: Some((server, proxy)) }
    }

    pub(crate) fn sqlite() -> Self {
        let folder = folder();
        let path = folder.path().join("queue.db");
        let conn = rusqlite::Connection::open(&path).expect("a new file");
        conn.pragma_update(None, "journal_mode", "wal").expect("set");
        conn.execute_batch(
            "CREATE TABLE effects (number INTEGER NOT NULL, fence INTEGER NOT NULL)",
        )
        .expect("made");
        let url = format!("sqlite:{}", path.display());
        Self { worker_url: url.clone(), url, folder, server: None }
    }

    /// What nothing guards is appended here.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("appended")
    }

    pub(crate) fn appended(&self) -> Vec<u64> {
        let text = fs::read_to_string(self.file()).expect("readable");
        text.lines().map(|line| line.parse().expect("whole lines")).collect()
    }

    /// What is in one transaction with the completion.
    pub(crate) fn effects(&self) -> Vec<u64> {
        let sql = "SELECT number FROM effects";
        if let Some((server, _)) = &self.server {
            return server.sql(sql).lines().map(|line| line.parse().expect("a number")).collect();
        }
        let path = self.folder.path().join("queue.db");
        let conn = rusqlite::Connection::open(path).expect("readable");
        let mut statement = conn.prepare(sql).expect("a statement");
        let rows = statement.query_map([], |row| row.get::<_, i64>(0)).expect("rows");
        rows.map(|row| row.expect("a row").cast_unsigned()).collect()
    }

    /// Cuts all connections of workers.
    pub(crate) fn cut(&self) {
        let (_, proxy) = self.server.as_ref().expect("only a server has connections");
        proxy.cut();
    }

    /// Kills the server and starts it again.
    pub(crate) fn restart(&self) {
        let (server, _) = self.server.as_ref().expect("only a server can be restarted");
        server.restart();
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder can be made")
}
