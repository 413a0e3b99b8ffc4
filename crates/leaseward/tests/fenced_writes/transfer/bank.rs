//! The accounts, in SQLite or in PostgreSQL.

use std::time::Duration;

use leaseward::{
    Fence,
    fenced::{self, FenceColumn, StaleFence},
};
use rusqlite::{Connection, TransactionBehavior::Immediate};
use tokio_postgres::Client;

const ACCOUNTS: FenceColumn = FenceColumn::new("accounts");

const TABLE: &str = "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, fence bigint NOT NULL DEFAULT 0)";

/// A bank by its address: a file of SQLite, or a URL of PostgreSQL.
#[derive(Clone, Debug)]
pub(super) struct Bank {
    address: String,
    /// Where the leases are kept.
    locks: String,
}

/// Two accounts and what is on them, or is to be.
pub(super) type Two = [(i64, i64); 2];

impl Bank {
    pub(super) fn new(address: String, locks: String) -> Self {
        Self { address, locks }
    }

    pub(super) fn locks(&self) -> &str {
        &self.locks
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    fn is_file(&self) -> bool {
        !self.address.starts_with("postgres")
    }

    fn file(&self) -> Connection {
        let file = Connection::open(&self.address).expect("a file");
        file.busy_timeout(Duration::from_secs(30)).expect("a setting");
        file
    }

    /// Makes the accounts.
    pub(super) fn open(&self, accounts: usize, begin: i64) {
        let rows: Vec<_> = (0..accounts).map(|id| format!("({id}, {begin})")).collect();
        let insert = format!("INSERT INTO accounts (id, balance) VALUES {}", rows.join(", "));
        if self.is_file() {
            let file = self.file();
            file.execute_batch(&format!("{TABLE}; {insert}")).expect("a new file");
            file.pragma_update(None, "journal_mode", "wal").expect("a setting");
        } else {
            run(async {
                let client = crate::help::connect(&self.address).await;
                client.batch_execute(&format!("{TABLE}; {insert}")).await.expect("a new database");
            });
        }
    }

    /// What is on all accounts.
    pub(super) fn balances(&self) -> Vec<i64> {
        let sql = "SELECT balance FROM accounts ORDER BY id";
        if self.is_file() {
            let file = self.file();
            let mut all = file.prepare(sql).expect("a statement");
            let rows = all.query_map([], |row| row.get(0)).expect("rows");
            rows.map(|row| row.expect("a balance")).collect()
        } else {
            run(async {
                let client = crate::help::connect(&self.address).await;
                let rows = client.query(sql, &[]).await.expect("rows");
                rows.iter().map(|row| row.get(0)).collect()
            })
        }
    }

    /// A connection to it, to be kept.
    pub(super) async fn teller(&self) -> Teller {
        if self.is_file() {
            Teller::File(self.file())
        } else {
            Teller::Server(crate::help::connect(&self.address).await)
        }
    }
}

/// Reads and writes accounts.
pub(super) enum Teller {
    File(Connection),
    Server(Client),
}

impl Teller {
    /// Reads two accounts, having shown them the fence if there is one.
    pub(super) async fn read(
        &mut self,
        ids: [i64; 2],
        fence: Option<Fence>,
    ) -> Result<Two, StaleFence> {
        let sql = "SELECT balance FROM accounts WHERE id = $1";
        let mut two = ids.map(|id| (id, 0));
        match self {
            Self::File(file) => {
                let tx = file.transaction_with_behavior(Immediate).expect("a transaction");
                for (id, balance) in &mut two {
                    if let Some(fence) = fence {
                        refusal(fenced::sqlite::claim(&tx, &ACCOUNTS, *id, fence))?;
                    }
                    *balance = tx.query_row(sql, [*id], |row| row.get(0)).expect("an account");
                }
                tx.commit().expect("a commit");
            }
            Self::Server(client) => {
                let tx = client.transaction().await.expect("a transaction");
                for (id, balance) in &mut two {
                    if let Some(fence) = fence {
                        refusal(fenced::postgres::claim(&tx, &ACCOUNTS, id, fence).await)?;
                    }
                    *balance = tx.query_one(sql, &[id]).await.expect("an account").get(0);
                }
                tx.commit().await.expect("a commit");
            }
        }
        Ok(two)
    }

    /// Writes two accounts, both or none.
    pub(super) async fn write(&mut self, two: Two, fence: Option<Fence>) -> Result<(), StaleFence> {
        match self {
            Self::File(file) => {
                let tx = file.transaction_with_behavior(Immediate).expect("a transaction");
                for (id, balance) in two {
                    if let Some(fence) = fence {
                        let set = "balance = ?3";
                        refusal(fenced::sqlite::update(
                            &tx,
                            &ACCOUNTS,
                            id,
                            fence,
                            set,
                            &[&balance],
                        ))?;
                    } else {
                        let open = "UPDATE accounts SET balance = ?2 WHERE id = ?1";
                        tx.execute(open, (id, balance)).expect("an account");
                    }
                }
                tx.commit().expect("a commit");
            }
            Self::Server(client) => {
                let tx = client.transaction().await.expect("a transaction");
                for (id, balance) in two {
                    if let Some(fence) = fence {
                        let (set, new) = ("balance = $3", [&balance as _]);
                        let done = fenced::postgres::update(&tx, &ACCOUNTS, &id, fence, set, &new);
                        refusal(done.await)?;
                    } else {
                        let open = "UPDATE accounts SET balance = $2 WHERE id = $1";
                        tx.execute(open, &[&id, &balance]).await.expect("an account");
                    }
                }
                tx.commit().await.expect("a commit");
            }
        }
        Ok(())
    }
}

/// The stale fence, if that is what happened; nothing else may.
fn refusal<E: std::fmt::Debug>(
    outcome: Result<(), fenced::FencedError<E>>,
) -> Result<(), StaleFence> {
    outcome.map_err(|error| error.stale().unwrap_or_else(|| panic!("{error:?}")))
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime").block_on(future)
}
