//! The SQL in the documents does what they say.

use leaseward::fenced::{FenceColumn, SIDE_TABLE_SQL};

use crate::help::{SERVER, connect};

const TEXT: &str = include_str!("../../../../docs/fenced-writes.md");

/// What stands between the fences.
fn blocks() -> Vec<&'static str> {
    let after = TEXT.split("```sql\n").skip(1);
    after.map(|rest| rest.split("```").next().expect("a block ends")).collect()
}

#[tokio::test]
async fn the_sql_runs_on_postgresql_and_refuses_the_stale() {
    let url = SERVER.database("fenced_document");
    let client = connect(&url).await;
    let accounts = "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL);
        INSERT INTO accounts VALUES (1, 100)";
    client.batch_execute(accounts).await.expect("a table");
    let blocks = blocks();
    let [column, claim, update, side, check, hold] = blocks[..] else {
        panic!("{} blocks", blocks.len())
    };
    for definition in [column, side] {
        client.batch_execute(definition).await.expect("a definition");
    }
    let (id, new) = (1_i64, 70_i64);
    let read = async |fence: i64| client.query_opt(claim, &[&id, &fence]).await.expect("read");
    assert_eq!(read(5).await.expect("a good fence").get::<_, i64>(0), 100);
    assert!(read(4).await.is_none());
    for (fence, changed) in [(5_i64, 1), (5, 1), (6, 1), (5, 0)] {
        let wrote = client.execute(update, &[&id, &fence, &new]).await.expect("a write");
        assert_eq!(wrote, changed, "fence {fence}");
        let checked = client.execute(check, &[&"bank", &fence]).await.expect("a check");
        assert_eq!(checked, changed, "fence {fence}");
    }
    let locks = leaseward::connect(&url).await.expect("a store");
    let guard = locks.lock("bank").acquire().await.expect("it is free");
    let row = client.query_one(hold, &[&"bank"]).await.expect("its fences");
    let newest = row.get::<_, i64>(0)..=row.get(1);
    assert!(newest.contains(&(guard.fence().get() as i64)), "{newest:?} and {}", guard.fence());
}

/// What is documented is what the library sends.
#[test]
fn the_sql_is_the_librarys_own() {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let blocks: Vec<_> = blocks().into_iter().map(plain).collect();
    let update = FenceColumn::new("accounts").update_sql("balance = $3");
    assert!(blocks.contains(&format!("{update};")), "{update}\n{blocks:#?}");
    assert!(blocks.contains(&format!("{};", plain(SIDE_TABLE_SQL))), "{blocks:#?}");
}
