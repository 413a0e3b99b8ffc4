//! Replies that never come, or come in part, and requests that come too late.
//!
//! Whatever the network does to one request: what its sender hears is done, not done or unknown, and true; asking again
//! with the same token makes it known; there are never two holders; in the end everything is free.

use std::{sync::mpsc::Receiver, time::Duration};

use leaseward::{
    ErrorKind, Fence, LostReason,
    store::{Answer, Batch, IfBusy, Operation, Push, Query, Reply, Store},
};
use leaseward_testkit::{PATIENCE, Proxy, RedisServer, eventually};

use crate::{
    help::{
        Monitor, ask, granted, healed, keys, listen, one, open, queueing, releasing, renewing,
        taking, until,
    },
    names::{name, token},
};

/// What a network does.
#[derive(Clone, Copy, Debug)]
enum Fault {
    CutAtRequest(u64),
    CutAtReplyChunk(u64),
    CutAfterReplyBytes(usize),
    DropReplies,
}

impl Fault {
    fn inflict(self, proxy: &Proxy) {
        match self {
            Self::CutAtRequest(n) => proxy.cut_at_request(n),
            Self::CutAtReplyChunk(n) => proxy.cut_at_reply_chunk(n),
            Self::CutAfterReplyBytes(n) => proxy.cut_after_reply_bytes(n),
            Self::DropReplies => proxy.drop_replies_after(1),
        }
    }
}

/// Before the request, before its reply, and within it: replies here have some fifty bytes, those of the first wait more.
fn faults() -> impl Iterator<Item = Fault> {
    let bytes = [0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 25, 30, 40, 60, 80, 120];
    [Fault::CutAtRequest(1), Fault::CutAtReplyChunk(1), Fault::DropReplies]
        .into_iter()
        .chain(bytes.map(Fault::CutAfterReplyBytes))
}

/// A server, a client of it behind a bad network, and one that is beside it.
struct Scene {
    server: RedisServer,
    proxy: Proxy,
    far: std::sync::Arc<dyn Store>,
    near: std::sync::Arc<dyn Store>,
    pushes: Receiver<Push>,
    newest: Fence,
}

impl Scene {
    async fn new() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::start(&server.address());
        let far = open(&format!("redis://{}?timeout=150ms", proxy.address())).await;
        let near = open(&server.url()).await;
        let pushes = listen(&*far);
        Self { server, proxy, far, near, pushes, newest: Fence::ZERO }
    }

    /// Sends one operation into a fault.
    async fn under(&self, fault: Fault, operation: Operation) -> Answer {
        fault.inflict(&self.proxy);
        one(&*self.far, operation).await
    }

    async fn heal(&self) {
        self.proxy.pass();
        healed(&*self.far).await;
    }

    /// Whose the name is, according to the server.
    async fn holder(&self) -> Option<(String, Fence)> {
        let views = self.near.inspect(Query::Name(name("a"))).await.expect("it answers");
        let mut holders = views.into_iter().flat_map(|view| view.holders);
        let holder = holders.next().map(|held| (held.token_prefix, held.fence));
        assert!(holders.next().is_none(), "there are two holders");
        holder
    }

    fn grew(&mut self, fence: Fence, fault: Fault) {
        assert!(fence > self.newest, "{fence} after {} with {fault:?}", self.newest);
        self.newest = fence;
    }

    fn assert_free(&self, fault: Fault) {
        assert_eq!(keys(&self.server), ["leaseward:fence"], "after {fault:?}");
    }
}

/// What is not an answer is `Unavailable` or `Indeterminate`; says whether it may have happened.
fn may_have_happened(answer: &Answer, fault: Fault) -> bool {
    match answer {
        Ok(_) => true,
        Err(error) => match error.kind() {
            ErrorKind::Unavailable => false,
            ErrorKind::Indeterminate => true,
            other => panic!("{fault:?} is not {other}: {error}"),
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_is_done_not_done_or_unknown() {
    let mut scene = Scene::new().await;
    let mine = token(1).prefix();
    for fault in faults() {
        let answer = scene.under(fault, taking("a", 1)).await;
        let stands = scene.holder().await;
        if let Ok(Reply::Granted(grant)) = &answer {
            assert_eq!(stands, Some((mine.clone(), grant.fence())), "{fault:?}");
        } else if !may_have_happened(&answer, fault) {
            assert_eq!(stands, None, "{fault:?}");
        }
        scene.heal().await;
        let again = granted(one(&*scene.far, taking("a", 1)).await);
        if let Some((_, fence)) = stands {
            assert_eq!(again.fence(), fence, "the same lease, with {fault:?}");
        }
        scene.grew(again.fence(), fault);
        one(&*scene.far, releasing("a", 1)).await.expect("given back");
        scene.assert_free(fault);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_done_not_done_or_unknown() {
    let mut scene = Scene::new().await;
    for fault in faults() {
        let lease = granted(one(&*scene.near, taking("a", 1)).await);
        scene.grew(lease.fence(), fault);
        scene.server.cli(&["pexpire", "lock:a", "60000"]);
        let answer = scene.under(fault, renewing("a", 1)).await;
        let left: u64 = scene.server.cli(&["pttl", "lock:a"]).parse().expect("a number");
        match &answer {
            Ok(reply) => {
                assert!(matches!(reply, Reply::Renewed(_)), "{reply:?}");
                assert!(left > 60_000, "{fault:?}");
            }
            Err(_) if may_have_happened(&answer, fault) => {}
            Err(_) => assert!(left <= 60_000, "{fault:?}"),
        }
        scene.heal().await;
        let again = one(&*scene.far, renewing("a", 1)).await;
        assert!(matches!(again, Ok(Reply::Renewed(_))), "{fault:?}: {again:?}");
        assert_eq!(scene.holder().await, Some((token(1).prefix(), lease.fence())));
        one(&*scene.far, releasing("a", 1)).await.expect("given back");
        scene.assert_free(fault);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_done_not_done_or_unknown() {
    let mut scene = Scene::new().await;
    for fault in faults() {
        let lease = granted(one(&*scene.far, taking("a", 1)).await);
        scene.grew(lease.fence(), fault);
        let answer = scene.under(fault, releasing("a", 1)).await;
        let stands = scene.holder().await;
        match &answer {
            Ok(reply) => {
                assert!(matches!(reply, Reply::Released), "{reply:?}");
                assert_eq!(stands, None, "{fault:?}");
            }
            Err(_) if may_have_happened(&answer, fault) => {}
            Err(_) => assert!(stands.is_some(), "{fault:?}"),
        }
        // Somebody else comes before it is asked again: that must not cost them anything.
        let next = one(&*scene.near, taking("a", 2)).await;
        assert_eq!(matches!(next, Ok(Reply::Granted(_))), stands.is_none(), "{fault:?}");
        scene.heal().await;
        one(&*scene.far, releasing("a", 1)).await.expect("it can be repeated");
        if let Ok(Reply::Granted(grant)) = next {
            scene.grew(grant.fence(), fault);
            assert_eq!(scene.holder().await, Some((token(2).prefix(), grant.fence())));
            one(&*scene.near, releasing("a", 2)).await.expect("given back");
        }
        scene.assert_free(fault);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_reaches_its_waiter_whatever_happens_to_the_push() {
    let mut scene = Scene::new().await;
    for fault in faults().filter(|fault| !matches!(fault, Fault::CutAtRequest(_))) {
        let before = granted(one(&*scene.near, taking("a", 1)).await);
        scene.grew(before.fence(), fault);
        let queued = one(&*scene.far, queueing("a", 2)).await.expect("queued");
        let Reply::Queued(place) = queued else { panic!("{queued:?}") };
        assert_eq!(place.last_fence, before.fence());
        match fault {
            Fault::DropReplies => scene.proxy.drop_replies_after(0),
            fault => fault.inflict(&scene.proxy),
        }
        let released = one(&*scene.near, releasing("a", 1)).await;
        assert!(matches!(released, Ok(Reply::Released)), "{released:?}");
        let (whose, fence) = scene.holder().await.expect("it was handed over");
        assert_eq!(whose, token(2).prefix());
        scene.grew(fence, fault);
        // The push, or after a loss the call to ask again; deaf, its next ask finds out.
        if !matches!(fault, Fault::DropReplies) {
            let pushed = scene.pushes.recv_timeout(PATIENCE).expect("it is told");
            match pushed {
                Push::Granted { token: to, grant, .. } => {
                    assert_eq!((to, grant.fence()), (token(2), fence));
                }
                Push::Woken { name } => assert_eq!(name.as_str(), "a"),
                other => panic!("{other:?}"),
            }
        }
        scene.heal().await;
        let mine = granted(one(&*scene.far, queueing("a", 2)).await);
        assert_eq!(mine.fence(), fence, "{fault:?}");
        one(&*scene.far, releasing("a", 2)).await.expect("given back");
        scene.assert_free(fault);
        while scene.pushes.try_recv().is_ok() {}
    }
}

/// What a holder sends who leaves while somebody waits: with an ask for its next turn behind it, or without.
fn leaving(comes_again: bool) -> Batch {
    let mut batch = vec![releasing("a", 1)];
    batch.extend(comes_again.then(|| queueing("a", 3)));
    batch
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_handed_over_once_whatever_happens_to_its_release() {
    for comes_again in [false, true] {
        let mut scene = Scene::new().await;
        let told = listen(&*scene.near);
        for fault in faults() {
            hand_over_under(fault, comes_again, &mut scene, &told).await;
        }
    }
}

async fn hand_over_under(
    fault: Fault,
    comes_again: bool,
    scene: &mut Scene,
    told: &Receiver<Push>,
) {
    let [leaves, waits] = [1, 2].map(|who| token(who).prefix());
    let before = granted(one(&*scene.far, taking("a", 1)).await);
    scene.grew(before.fence(), fault);
    one(&*scene.near, queueing("a", 2)).await.expect("queued");
    fault.inflict(&scene.proxy);
    let answers = scene.far.carry_out(leaving(comes_again)).await;
    let stands = scene.holder().await.expect("it is never free");
    match &answers[0] {
        Ok(Reply::Released) => assert_eq!(stands.0, waits, "{fault:?}"),
        answer if may_have_happened(answer, fault) => {}
        _ => assert_eq!(stands.0, leaves, "{fault:?}"),
    }
    scene.heal().await;
    let again = scene.far.carry_out(leaving(comes_again)).await;
    let is_first = matches!(again[0], Ok(Reply::Released));
    let is_second = matches!(again[0], Ok(Reply::NotYours(LostReason::NotOurs)));
    assert_eq!((is_first, is_second), (stands.0 == leaves, stands.0 == waits), "{again:?}");

    let (whose, fence) = scene.holder().await.expect("it was handed over");
    assert_eq!(whose, waits, "{fault:?}");
    assert!(is_first || fence == stands.1, "it was given out again with {fault:?}");
    scene.grew(fence, fault);
    match told.recv_timeout(PATIENCE).expect("the waiter is told") {
        Push::Granted { token: to, grant, .. } => {
            assert_eq!((to, grant.fence()), (token(2), fence), "{fault:?}");
        }
        other => panic!("{fault:?}: {other:?}"),
    }
    let mine = granted(one(&*scene.near, queueing("a", 2)).await);
    assert_eq!(mine.fence(), fence, "{fault:?}");
    one(&*scene.near, releasing("a", 2)).await.expect("given back");
    if comes_again {
        // Its next turn comes once, too.
        let (whose, fence) = scene.holder().await.expect("it was handed over");
        assert_eq!(whose, token(3).prefix(), "{fault:?}");
        scene.grew(fence, fault);
        let next = granted(one(&*scene.far, queueing("a", 3)).await);
        assert_eq!(next.fence(), fence, "{fault:?}");
        one(&*scene.far, releasing("a", 3)).await.expect("given back");
    }
    scene.assert_free(fault);
    assert!(told.try_recv().is_err(), "it was told twice, with {fault:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_taken_once_whatever_happens_to_its_answer() {
    let mut scene = Scene::new().await;
    for fault in faults() {
        let before = granted(one(&*scene.near, taking("a", 1)).await);
        scene.grew(before.fence(), fault);
        let answer = scene.under(fault, queueing("a", 2)).await;
        may_have_happened(&answer, fault);
        scene.heal().await;
        let again = one(&*scene.far, queueing("a", 2)).await.expect("queued");
        let Reply::Queued(place) = again else { panic!("{fault:?}: {again:?}") };
        assert_eq!(place.standing.ahead, 0, "{fault:?}");
        let views = scene.near.inspect(Query::Name(name("a"))).await.expect("it answers");
        assert_eq!(views[0].waiters.len(), 1, "{fault:?}");
        one(&*scene.near, releasing("a", 1)).await.expect("handed over");
        one(&*scene.far, releasing("a", 2)).await.expect("given back");
        scene.assert_free(fault);
        while scene.pushes.try_recv().is_ok() {}
    }
}

/// Asks, with the answer and the request lost on the way, and gives up; the request is still under way.
async fn ask_into_a_half_open_connection(scene: &Scene, ttl: Duration) {
    scene.proxy.strand();
    let late = Operation::Ask(ask("a", 1, IfBusy::Tell, ttl));
    let answer = one(&*scene.far, late).await;
    assert_eq!(answer.expect_err("nobody answers").kind(), ErrorKind::Indeterminate);
    healed(&*scene.far).await;
    let left = one(&*scene.far, releasing("a", 1)).await;
    assert!(matches!(left, Ok(Reply::NotYours(_))), "it has not arrived: {left:?}");
    scene.proxy.release();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_that_arrives_after_its_leave_is_not_carried_out() {
    let scene = Scene::new().await;
    let monitor = Monitor::start(&scene.server);
    ask_into_a_half_open_connection(&scene, Duration::from_secs(60)).await;
    eventually("the old connection has ended", PATIENCE, || {
        (scene.proxy.connections() == 1).then_some(())
    });
    scene.far.ping().await.expect("the new connection works");
    assert_eq!(keys(&scene.server), Vec::<String>::new());
    let heard = monitor.heard(&scene.server);
    assert!(scene.server.info("commandstats").contains_key("cmdstat_client|kill"));
    let secret = token(1).reveal();
    let is_call = |line: &&String| line.contains("\"EVALSHA\"") && line.contains(&secret);
    let named: Vec<_> = heard.iter().filter(is_call).collect();
    assert!(named.iter().all(|line| line.contains("\"r\"")), "only the leave came: {named:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_old_connections_may_not_be_ended_a_ghost_lasts_its_ttl() {
    let server = RedisServer::builder().acl("locker on >x ~* &* +@all -client|kill").start();
    let proxy = Proxy::start(&server.address());
    let far = open(&format!("redis://locker:x@{}?timeout=150ms", proxy.address())).await;
    let near = open(&server.url()).await;
    let (pushes, newest) = (listen(&*far), Fence::ZERO);
    let scene = Scene { server, proxy, far, near, pushes, newest };
    ask_into_a_half_open_connection(&scene, Duration::from_millis(1_500)).await;
    let ghost = until("the late request arrives", PATIENCE, || scene.holder()).await;
    let busy = one(&*scene.near, taking("a", 2)).await;
    assert!(matches!(busy, Ok(Reply::Busy(_))), "nobody else has it meanwhile: {busy:?}");
    let next = until("the ghost is gone", PATIENCE, || async {
        match one(&*scene.near, taking("a", 2)).await {
            Ok(Reply::Granted(grant)) => Some(grant),
            _ => None,
        }
    });
    assert!(next.await.fence() > ghost.1);
}

/// Asks have a connection of their own there, so nothing else keeps a release behind its ask.
#[tokio::test(flavor = "multi_thread")]
async fn in_strong_mode_no_release_overtakes_its_ask() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address());
    let settings = "timeout=150ms&replicas=1&replica_timeout=50ms";
    let store = open(&format!("redis://{}?{settings}", proxy.address())).await;
    // After this the connection for everything is a new one. That for asks is not, and nobody has noticed.
    proxy.strand();
    one(&*store, releasing("b", 2)).await.expect_err("nobody answers");
    healed(&*store).await;
    proxy.refuse();
    let late = one(&*store, taking("a", 1)).await;
    assert_eq!(late.expect_err("nobody answers").kind(), ErrorKind::Indeterminate);
    let early = one(&*store, releasing("a", 1)).await;
    assert!(early.is_err(), "its ask has not arrived: {early:?}");
    let other = one(&*store, releasing("b", 2)).await;
    assert!(matches!(other, Ok(Reply::NotYours(_))), "it has no such ask: {other:?}");
    proxy.accept();
    until("it is given back", PATIENCE, || async { one(&*store, releasing("a", 1)).await.ok() })
        .await;
    proxy.release();
    eventually("nothing is on its way", PATIENCE, || (proxy.held_to_server() == 0).then_some(()));
    store.ping().await.expect("it works");
    assert_eq!(keys(&server), Vec::<String>::new());
    let again = one(&*store, releasing("a", 1)).await;
    assert!(matches!(again, Ok(Reply::NotYours(_))), "{again:?}");
}
