//! Beside another user of SQLite in one program.

use leaseward::store::Store;
use sqlx::{Connection as _, SqliteConnection};

use crate::help::{granted, open_now, take};

#[test]
fn sqlx_has_a_file_of_its_own_in_the_same_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open_now(&folder.path().join("leases.db"));
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("app.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let two = runtime.block_on(async {
        let mut app = SqliteConnection::connect(&url).await.expect("a file");
        granted(store.carry_out(vec![take("a", 1)]).await.remove(0));
        sqlx::query_scalar::<_, i64>("SELECT 1 + 1").fetch_one(&mut app).await.expect("a sum")
    });
    assert_eq!(two, 2);
}
