//! Names taken in opposite orders, before it deadlocks.

use leaseward::{ErrorKind, Locks, OrderCheck};

use crate::{
    Case, Fixture,
    case::case,
    support::{Logs, take, view},
};

pub(super) const CASES: &[Case] = &[
    case!(opposite_orders_are_refused),
    case!(names_of_one_pattern_are_one_class),
    case!(a_warning_only_warns).timed(),
    case!(off_by_default),
];

/// Takes names one after the other as one owner; how the last one went.
async fn in_order(locks: &Locks, owner: &str, names: &[&str]) -> Result<(), leaseward::Error> {
    let mut guards = Vec::new();
    for name in names {
        guards.push(locks.lock(name).owner(owner).acquire().await?);
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn checked(fixture: &Fixture, check: OrderCheck) -> Locks {
    fixture.client_with(|builder| builder.order_check(check)).await
}

async fn opposite_orders_are_refused(fixture: &Fixture) {
    let locks = checked(fixture, OrderCheck::Deny).await;
    in_order(&locks, "one", &["account", "ledger"]).await.expect("the first order seen");
    in_order(&locks, "other", &["account", "ledger"]).await.expect("the same order");
    let _ledger = take(&locks.lock("ledger").owner("other")).await;
    let error = locks.lock("account").owner("other").acquire().await.expect_err("reversed");
    assert_eq!(error.kind(), ErrorKind::LockOrder, "{error}");
    assert!(error.message().contains("`account`") && error.message().contains("`ledger`"));
    assert!(view(&locks, "account").await.holders.is_empty(), "nothing was taken");
    take(&locks.lock("account").owner("third")).await.release().await.expect("given back");
}

async fn names_of_one_pattern_are_one_class(fixture: &Fixture) {
    let locks = checked(fixture, OrderCheck::Deny).await;
    in_order(&locks, "one", &["order:1", "stock"]).await.expect("the first order seen");
    let error = in_order(&locks, "two", &["stock", "order:2"]).await.expect_err("reversed");
    assert_eq!(error.kind(), ErrorKind::LockOrder, "{error}");
    in_order(&locks, "three", &["order:3", "order:7"]).await.expect("ascending");
    let error = in_order(&locks, "four", &["order:7", "order:3"]).await.expect_err("descending");
    assert_eq!(error.kind(), ErrorKind::LockOrder, "{error}");
    let together = locks.all(["order:7", "order:3"]).owner("five").acquire().await;
    assert!(together.expect("together there is no order").is_held());
}

async fn a_warning_only_warns(fixture: &Fixture) {
    let logs = Logs::keep();
    let locks = checked(fixture, OrderCheck::Warn).await;
    in_order(&locks, "one", &["account", "ledger"]).await.expect("the first order seen");
    assert!(!logs.text().contains("lock order"));
    in_order(&locks, "other", &["ledger", "account"]).await.expect("only a warning");
    assert!(logs.text().contains("lock order"), "{}", logs.text());
}

async fn off_by_default(fixture: &Fixture) {
    let locks = fixture.client().await;
    in_order(&locks, "one", &["account", "ledger"]).await.expect("any order");
    in_order(&locks, "other", &["ledger", "account"]).await.expect("any order");
}
