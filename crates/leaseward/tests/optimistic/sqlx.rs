//! PostgreSQL with `sqlx`.

use leaseward::optimistic::{
    Conflict, Once, Retry, Versioned, Work,
    sqlx::{Statement, create_table, load, save, save_many, transact, transact_once},
};
use sqlx::{Error, PgConnection, PgPool, Row as _};

use crate::help::{COUNTERS, database, version};

async fn pool(name: &str) -> PgPool {
    let (url, _) = database(name).await;
    PgPool::connect(&url).await.expect("a server")
}

async fn read(connection: &mut PgConnection, id: i64) -> Result<Versioned<i64>, Error> {
    let found = load(connection, &COUNTERS, id, "count", |row| row.try_get(0)).await?;
    Ok(found.expect("a row"))
}

#[tokio::test]
async fn saves_what_is_still_as_it_was_read_and_nothing_else() {
    let pool = pool("opt_sqlx_save").await;
    let mut connection = pool.acquire().await.expect("a connection");
    let counter = read(&mut connection, 1).await.expect("it");
    let set = async |connection: &mut PgConnection, to: i64| {
        save(connection, &COUNTERS, 1_i64, &counter, "count = $3", |query| query.bind(to)).await
    };
    assert_eq!(set(&mut connection, 11).await.expect("saved"), version(2));
    let late = set(&mut connection, 99).await.expect_err("a conflict");
    assert_eq!(late.conflict(), Some(Conflict::Changed { current: version(2) }));
    let delete = sqlx::query("DELETE FROM counters WHERE id = 1");
    delete.execute(&mut *connection).await.expect("deleted");
    let late = set(&mut connection, 99).await.expect_err("a conflict");
    assert_eq!(late.conflict(), Some(Conflict::Gone));
}

#[tokio::test]
async fn a_batch_tells_the_outcome_of_each_row() {
    let pool = pool("opt_sqlx_batch").await;
    let mut connection = pool.acquire().await.expect("a connection");
    let seven = |query: Statement<'static>| query.bind(7_i64);
    let changes = [(1_i64, 1), (2, 9), (8, 1)].map(|(id, seen)| (id, version(seen), seven));
    let outcomes = save_many(&mut connection, &COUNTERS, "count = $3", changes).await;
    let expected =
        [Ok(version(2)), Err(Conflict::Changed { current: version(1) }), Err(Conflict::Gone)];
    assert_eq!(outcomes.expect("answers"), expected);
}

#[tokio::test]
async fn the_whole_transaction_is_done_again_after_a_conflict() {
    let pool = pool("opt_sqlx_again").await;
    let rival = pool.clone();
    let own = pool.clone();
    let tries = tokio::spawn(async move {
        let rival = &rival;
        transact(&own, &Retry::new(), |tx, this| {
            Work::new(async move {
                sqlx::query("UPDATE counters SET count = count + 1 WHERE id = 3")
                    .execute(&mut *tx)
                    .await?;
                let counter = read(&mut *tx, 1).await?;
                if this.number() <= 2 {
                    let change =
                        sqlx::query("UPDATE counters SET version = version + 1 WHERE id = 1");
                    change.execute(rival).await?;
                }
                let new = counter.value() + 1;
                save(&mut *tx, &COUNTERS, 1_i64, &counter, "count = $3", |query| query.bind(new))
                    .await?;
                Ok(this.number())
            })
        })
        .await
    });
    assert_eq!(tries.await.expect("no panic").expect("the third"), 3);
    let all = sqlx::query_scalar::<_, i64>("SELECT count FROM counters ORDER BY id");
    assert_eq!(all.fetch_all(&pool).await.expect("rows"), [11, 20, 31]);
}

#[tokio::test]
async fn a_key_is_used_once() {
    let pool = pool("opt_sqlx_once").await;
    create_table(&mut pool.acquire().await.expect("a connection")).await.expect("a table");
    let (retry, mut outcomes) = (Retry::new(), Vec::new());
    for key in ["a", "a", "b"] {
        let add = transact_once(&pool, &retry, key, |tx, _| {
            Work::new(async move {
                let add = sqlx::query("UPDATE counters SET count = count + 1 WHERE id = 1");
                Ok(add.execute(&mut *tx).await?.rows_affected())
            })
        });
        outcomes.push(add.await.expect("done"));
    }
    assert_eq!(outcomes, [Once::Now(1), Once::Before, Once::Now(1)]);
}
