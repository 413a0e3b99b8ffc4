//! Keys of ours that a lock might have, and a fence counter that is none.

use leaseward::{
    Error, ErrorKind,
    store::{Break, Operation, Query, Reply},
};
use leaseward_testkit::RedisServer;

use crate::{
    help::{
        granted, keys, one, open, queueing, reading, releasing, renewing, something_unusual, taking,
    },
    names::{name, token},
};

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_has_a_key_of_ours() {
    let server = RedisServer::start();
    let whole = |what: &str| (String::new(), what.to_owned());
    let mut pairs = ["leaseward:fence", "leaseward:h:a", "leaseward:q:leaseward:x", "leaseward:"]
        .map(whole)
        .to_vec();
    pairs.push(("lease".to_owned(), "ward:fence".to_owned()));
    pairs.push(("leaseward:locks:".to_owned(), "a".to_owned()));
    for (prefix, what) in pairs {
        let store = open(&format!("{}?prefix={prefix}", server.url())).await;
        let refused = |failure: Error| {
            assert_eq!(failure.kind(), ErrorKind::InvalidInput, "{what}: {failure}");
            assert!(failure.hint_text().is_some(), "{failure:?}");
        };
        for operation in [
            taking(&what, 1),
            queueing(&what, 1),
            reading(&what, 1),
            renewing(&what, 1),
            releasing(&what, 1),
        ] {
            refused(one(&*store, operation).await.expect_err(&what));
        }
        refused(store.inspect(Query::Name(name(&what))).await.expect_err(&what));
        let order = Break { name: name(&what), now: true };
        refused(store.break_lease(order).await.expect_err(&what));
        assert_eq!(keys(&server), Vec::<String>::new(), "{what}");
    }
    // What is in the same batch does not suffer.
    let store = open(&format!("{}?prefix=", server.url())).await;
    let batch = vec![taking("a", 1), taking("leaseward:fence", 2), taking("z", 3)];
    let answers = store.carry_out(batch).await;
    let [Ok(Reply::Granted(_)), Err(_), Ok(Reply::Granted(_))] = &answers[..] else {
        panic!("{answers:?}")
    };
    let listed = store.inspect(Query::all()).await.expect("listed");
    assert_eq!(listed.iter().map(|view| &*view.name).collect::<Vec<_>>(), ["a", "z"]);
    // Nor is such a key listed as a lock.
    let store = open(&format!("{}?prefix=lease", server.url())).await;
    granted(one(&*store, taking("b", 1)).await);
    let listed = store.inspect(Query::all()).await.expect("listed");
    assert_eq!(listed.iter().map(|view| &*view.name).collect::<Vec<_>>(), ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_is_no_number_is_replaced_by_the_clock() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let mut newest = granted(one(&*store, taking("a", 1)).await).fence();
    let of_another = token(7).reveal();
    for nonsense in [&*of_another, "", "nan", "1e300", "-5", "99999999999999999999"] {
        let spoil = || drop(server.cli(&["set", "leaseward:fence", nonsense]));
        spoil();
        let queued = one(&*store, queueing("a", 2)).await;
        let Ok(Reply::Queued(place)) = queued else { panic!("{queued:?}") };
        assert!(place.last_fence >= newest, "an older grant would pass for its own");
        spoil();
        one(&*store, releasing("a", 1)).await.expect("handed over");
        let handed = granted(one(&*store, queueing("a", 2)).await);
        let mut grew = |fence| {
            assert!(fence > newest, "{fence} after {newest} with {nonsense:?}");
            newest = fence;
        };
        grew(handed.fence());
        let many = ["b", "c", "d", "e"];
        let takes: [Vec<Operation>; 4] = [
            vec![taking("b", 1)],
            vec![reading("b", 1)],
            many.iter().map(|what| taking(what, 1)).collect(),
            vec![taking("b", 1), something_unusual()],
        ];
        for batch in takes {
            spoil();
            for answer in store.carry_out(batch).await {
                if let Reply::Granted(grant) = answer.expect("carried out") {
                    grew(grant.fence());
                }
            }
            for what in many {
                one(&*store, releasing(what, 1)).await.expect("given back");
            }
        }
        spoil();
        one(&*store, releasing("a", 2)).await.expect("given back");
        let mine = granted(one(&*store, taking("a", 1)).await);
        grew(mine.fence());
    }
}
