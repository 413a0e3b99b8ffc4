//! The SQL in the documents does what they say.

use leaseward::optimistic::{DONE_TABLE_SQL, VersionColumn};

use crate::help::{SERVER, connect};

const TEXT: &str = include_str!("../../../../docs/optimistic.md");

fn blocks() -> Vec<&'static str> {
    let after = TEXT.split("```sql\n").skip(1);
    after.map(|rest| rest.split("```").next().expect("a block ends")).collect()
}

#[tokio::test]
async fn the_sql_runs_on_postgresql_and_refuses_who_was_overtaken() {
    let client = connect(&SERVER.database("optimistic_document")).await;
    let accounts = "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL);
        INSERT INTO accounts VALUES (1, 100)";
    client.batch_execute(accounts).await.expect("a table");
    let blocks = blocks();
    let [column, save, done] = blocks[..] else { panic!("{} blocks", blocks.len()) };
    for definition in [column, done] {
        client.batch_execute(definition).await.expect("a definition");
    }
    let save = async |seen: i64| {
        let row = client.query_opt(save, &[&1_i64, &seen, &70_i64]).await.expect("a save");
        row.map(|row| row.get::<_, i64>(0))
    };
    assert_eq!((save(1).await, save(1).await, save(2).await), (Some(2), None, Some(3)));
}

#[test]
fn the_sql_is_the_librarys_own() {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let blocks: Vec<_> = blocks().into_iter().map(plain).collect();
    let save = VersionColumn::new("accounts").save_sql("balance = $3");
    assert!(blocks.contains(&format!("{save};")), "{save}\n{blocks:#?}");
    assert!(blocks.contains(&format!("{};", plain(DONE_TABLE_SQL))), "{blocks:#?}");
}
