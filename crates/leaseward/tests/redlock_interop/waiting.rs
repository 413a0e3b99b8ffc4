//! We wait for a holder of another library, and are woken by the nodes.

use std::{sync::Arc, time::Duration};

use leaseward::{
    Mode, Name, Token,
    clock::SystemClock,
    store::{self, Ask, IfBusy, OpenContext, Operation, Push, Reply},
};
use leaseward_testkit::peers::Library;
use tokio::sync::mpsc;

use crate::{
    help::{LONG, Theirs, in_time, ours, with_both_versions},
    nodes::Nodes,
};

with_both_versions! {
    their_release_wakes_us
    the_nodes_push_it
}

async fn their_release_wakes_us(library: Library) {
    let nodes = Nodes::keeping();
    let (mut theirs, locks) = (Theirs::start(library, &nodes).await, ours(&nodes).await);
    assert!(theirs.acquire("a", LONG).await);
    let waiting = locks.lock("a");
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    in_time(async {
        while nodes[0].info("stats")["tracking_total_keys"] == "0" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    theirs.release().await;
    let guard = in_time(waiting).await.expect("no panic").expect("its turn");
    assert!(!theirs.acquire("a", LONG).await, "now it is ours");
    drop(guard);
}

/// At the seam, where no timer of the engine helps.
async fn the_nodes_push_it(library: Library) {
    let nodes = Nodes::keeping();
    let mut theirs = Theirs::start(library, &nodes).await;
    let context = OpenContext { clock: Arc::new(SystemClock), who: Arc::from("test:1") };
    let store = store::open(&nodes.url("prefix="), context).await.expect("they are there");
    let (sender, mut pushes) = mpsc::unbounded_channel();
    store.start(Arc::new(move |push| drop(sender.send(push))));
    assert!(theirs.acquire("a", LONG).await);
    let ask = Operation::Ask(Ask {
        name: Name::new("a").expect("a good name"),
        token: Token::new(1, Arc::from("test:1")),
        mode: Mode::Exclusive,
        ttl: LONG,
        if_busy: IfBusy::Queue,
        block: 1,
        value: None,
    });
    let answer = store.carry_out(vec![ask.clone()]).await.remove(0);
    assert!(matches!(answer, Ok(Reply::Busy(_))), "{answer:?}");
    theirs.release().await;
    let push = in_time(pushes.recv()).await.expect("the store lives");
    assert!(matches!(&push, Push::Woken { name } if name.as_str() == "a"), "{push:?}");
    let answer = store.carry_out(vec![ask]).await.remove(0);
    assert!(matches!(answer, Ok(Reply::Granted(_))), "{answer:?}");
}
