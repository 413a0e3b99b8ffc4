//! Connections that break at every step of what strong mode does: what came of it is known once the same token asks again.

use std::time::Duration;

use leaseward::{
    ErrorKind, Fence, Locks,
    store::{Answer, Query, Reply},
};
use leaseward_testkit::{PATIENCE, Proxy, RedisServer};

use crate::help::{Bare, PATIENT, blocking, connect, is_held_at, primary_with};

/// Where replicas do not answer anyway.
const REFUSING: &str = "replica_timeout=100ms&replicas=";

/// What a refused ask sends: the script, the waiting, the question for replicas, the undo. The first two in one piece.
const REFUSED_ASK: u64 = 4;
/// What a refused renewal sends: there is nothing to undo.
const REFUSED_RENEWAL: u64 = 3;
/// What is sent where replicas answer.
const ACKNOWLEDGED: u64 = 2;

/// Where a connection breaks.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Before this request.
    Request(u64),
    /// Before this reply.
    Reply(u64),
}

impl Cut {
    fn each(steps: u64) -> impl Iterator<Item = Self> {
        (1..=steps).map(Self::Request).chain((1..=steps).map(Self::Reply))
    }

    fn inflict(self, proxy: &Proxy) {
        match self {
            Self::Request(n) => proxy.cut_at_request(n),
            Self::Reply(n) => proxy.cut_at_reply_chunk(n),
        }
    }
}

/// A primary, its replica, a client behind a bad network and one beside it.
struct Scene {
    primary: RedisServer,
    replica: RedisServer,
    proxy: Proxy,
    bare: Bare,
    near: Locks,
}

impl Scene {
    async fn new(settings: &str) -> Self {
        let (primary, mut replicas) = blocking(|| primary_with(1));
        let proxy = Proxy::start(&primary.address());
        let bare = Bare::open(&format!("redis://{}?{settings}1", proxy.address())).await;
        let near = connect(&primary.url()).await;
        // The first that may have to wait subscribes as well, whatever is answered.
        drop(bare.ask("first", &bare.token()).await);
        let replica = replicas.pop().expect("one");
        Self { primary, replica, proxy, bare, near }
    }

    /// The answer once there is one that is no refusal: replicas may be slow to come back.
    async fn in_time<F: Future<Output = Answer>>(&self, ask: impl Fn() -> F) -> Reply {
        let again = async {
            loop {
                match self.answered(&ask).await {
                    Ok(reply) => return reply,
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, again).await.expect("replicas acknowledge")
    }

    /// How many requests something sends.
    async fn sent(&self, asked: impl Future<Output = Answer>) -> (u64, Answer) {
        let before = self.proxy.requests();
        let answer = asked.await;
        (self.proxy.requests() - before, answer)
    }

    /// The answer once the connection is there again: that of the replicas.
    async fn answered<F: Future<Output = Answer>>(&self, ask: impl Fn() -> F) -> Answer {
        self.proxy.pass();
        let again = async {
            loop {
                match ask().await {
                    Err(error) if !error.message().starts_with("only ") => {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    answer => return answer,
                }
            }
        };
        tokio::time::timeout(PATIENCE, again).await.expect("it is connected again")
    }

    /// The lease that stands at the primary.
    async fn stands(&self, name: &str) -> Option<Fence> {
        let views = self.near.inspect(Query::all()).await.expect("the primary answers");
        let mut views = views.iter().filter(|view| view.name.as_str() == name);
        let holders = &views.next()?.holders;
        assert!(holders.len() <= 1, "{holders:?}");
        holders.first().map(|held| held.fence)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_that_nobody_acknowledged_is_ended_by_asking_again() {
    let scene = Scene::new(REFUSING).await;
    blocking(|| scene.replica.pause());
    let token = scene.bare.token();
    let (sent, refused) = scene.sent(scene.bare.ask("job", &token)).await;
    assert_eq!(sent, REFUSED_ASK, "{refused:?}");
    for cut in Cut::each(REFUSED_ASK) {
        cut.inflict(&scene.proxy);
        let error = scene.bare.ask("job", &token).await.expect_err("nobody acknowledged");
        let stands = blocking(|| is_held_at(&scene.primary, "job"));
        let expected = match cut {
            // Nothing was done yet, or all was undone.
            Cut::Request(1 | 2) | Cut::Reply(4) => [(ErrorKind::Indeterminate, false); 2],
            // A new connection may be there in time for the undo.
            Cut::Request(3) | Cut::Reply(3) => {
                [(ErrorKind::Indeterminate, true), (ErrorKind::Unavailable, false)]
            }
            Cut::Request(_) | Cut::Reply(_) => [(ErrorKind::Indeterminate, true); 2],
        };
        assert!(expected.contains(&(error.kind(), stands)), "{cut:?}: {error}, stands: {stands}");
        let error = scene.answered(|| scene.bare.ask("job", &token)).await;
        let error = error.expect_err("nobody acknowledged");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{cut:?}: {error}");
        assert!(!blocking(|| is_held_at(&scene.primary, "job")), "{cut:?}");
    }
    blocking(|| scene.replica.resume());
    let reply = scene.in_time(|| scene.bare.ask("job", &token)).await;
    assert!(matches!(reply, Reply::Granted(_)), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_that_is_acknowledged_is_granted_once() {
    let scene = Scene::new(PATIENT).await;
    let (sent, _) = scene.sent(scene.bare.ask("job", &scene.bare.token())).await;
    assert_eq!(sent, ACKNOWLEDGED);
    for (at, cut) in Cut::each(ACKNOWLEDGED).enumerate() {
        let (name, token) = (format!("job{at}"), scene.bare.token());
        cut.inflict(&scene.proxy);
        let answer = scene.bare.ask(&name, &token).await;
        let stands = scene.stands(&name).await;
        assert_eq!(stands.is_some(), matches!(cut, Cut::Reply(_)), "{cut:?}");
        match answer {
            Ok(Reply::Granted(grant)) => assert_eq!(Some(grant.fence()), stands, "{cut:?}"),
            Ok(other) => panic!("{cut:?}: {other:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Indeterminate, "{cut:?}: {error}"),
        }
        let again = scene.answered(|| scene.bare.ask(&name, &token)).await;
        let Ok(Reply::Granted(grant)) = again else { panic!("{cut:?}: {again:?}") };
        assert!(stands.is_none_or(|fence| fence == grant.fence()), "{cut:?}: another lease");
        assert_eq!(scene.stands(&name).await, Some(grant.fence()), "{cut:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_nobody_acknowledged_never_counts() {
    let scene = Scene::new(REFUSING).await;
    let token = scene.bare.token();
    let reply = scene.in_time(|| scene.bare.ask("job", &token)).await;
    let Reply::Granted(grant) = reply else { panic!("{reply:?}") };
    let renew = || scene.bare.renew("job", &token);
    blocking(|| scene.replica.pause());
    let (sent, refused) = scene.sent(renew()).await;
    assert_eq!(sent, REFUSED_RENEWAL, "{refused:?}");
    for cut in Cut::each(REFUSED_RENEWAL) {
        cut.inflict(&scene.proxy);
        for answer in [renew().await, scene.answered(renew).await] {
            let error = answer.expect_err("nobody acknowledged");
            assert_eq!(error.kind(), ErrorKind::Indeterminate, "{cut:?}: {error}");
        }
    }
    blocking(|| scene.replica.resume());
    let reply = scene.in_time(renew).await;
    assert!(matches!(reply, Reply::Renewed(_)), "{reply:?}");
    assert_eq!(scene.stands("job").await, Some(grant.fence()), "the same lease all the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_acknowledged_counts_when_it_is_asked_for_again() {
    let scene = Scene::new(PATIENT).await;
    let token = scene.bare.token();
    let granted = scene.bare.ask("job", &token).await;
    let Ok(Reply::Granted(grant)) = granted else { panic!("{granted:?}") };
    let renew = || scene.bare.renew("job", &token);
    let (sent, answer) = scene.sent(renew()).await;
    assert_eq!(sent, ACKNOWLEDGED, "{answer:?}");
    for cut in Cut::each(ACKNOWLEDGED) {
        cut.inflict(&scene.proxy);
        match renew().await {
            Ok(reply) => assert!(matches!((cut, reply), (Cut::Reply(_), Reply::Renewed(_)))),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Indeterminate, "{cut:?}: {error}"),
        }
        let answer = scene.answered(renew).await;
        assert!(matches!(answer, Ok(Reply::Renewed(_))), "{cut:?}: {answer:?}");
    }
    assert_eq!(scene.stands("job").await, Some(grant.fence()), "the same lease all the time");
}
