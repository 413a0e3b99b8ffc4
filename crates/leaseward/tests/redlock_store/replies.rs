//! Replies that never come, or come in part, from a minority and from a majority.
//!
//! What the network does to a minority nobody notices. With a majority: what its sender hears is done, not done or unknown,
//! and true; asking again with the same token makes it known; there are never two holders; in the end everything is free.

use std::sync::Arc;

use leaseward::{
    ErrorKind, Fence,
    store::{Answer, Operation, Query, Reply, Store},
};
use leaseward_testkit::{PATIENCE, Proxy, RedisServer};

use crate::{
    help::{Lines, held_at, owners, releasing, renewing, taking, until_all_vote, until_held_at},
    names::{name, token},
    nodes::Nodes,
    operations::{granted, one, open, until},
};

/// What a network does.
#[derive(Clone, Copy, Debug)]
enum Fault {
    CutAtRequest,
    CutAtReply,
    CutWithinReply(usize),
    DropReplies,
}

/// Before the request, before its reply, and within it: replies here have some thirty bytes.
const FAULTS: [Fault; 9] = [
    Fault::CutAtRequest,
    Fault::CutAtReply,
    Fault::DropReplies,
    Fault::CutWithinReply(0),
    Fault::CutWithinReply(1),
    Fault::CutWithinReply(5),
    Fault::CutWithinReply(12),
    Fault::CutWithinReply(20),
    Fault::CutWithinReply(40),
];

/// Which lines it is done to.
const WHERE: [&[usize]; 3] = [&[0, 3], &[1, 2, 4], &[0, 1, 2, 3, 4]];

impl Fault {
    fn inflict(self, line: &Proxy) {
        match self {
            Self::CutAtRequest => line.cut_at_request(1),
            Self::CutAtReply => line.cut_at_reply_chunk(1),
            Self::CutWithinReply(bytes) => line.cut_after_reply_bytes(bytes),
            Self::DropReplies => line.drop_replies_after(1),
        }
    }
}

/// Nodes, a client behind bad lines, and one that is beside them.
struct Scene {
    nodes: Nodes,
    lines: Lines,
    far: Arc<dyn Store>,
    near: Arc<dyn Store>,
    newest: Fence,
}

impl Scene {
    async fn new() -> Self {
        let nodes = Nodes::start(5, |_| RedisServer::builder());
        let lines = Lines::to(&nodes);
        let far = open(&lines.url("amnesia=trust&timeout=400ms")).await;
        let near = open(&nodes.url("amnesia=trust")).await;
        Self { nodes, lines, far, near, newest: Fence::ZERO }
    }

    /// Sends one operation into a fault; says whether it must have gone well.
    async fn under(&self, fault: Fault, at: &[usize], operation: Operation) -> (Answer, bool) {
        at.iter().for_each(|line| fault.inflict(&self.lines.0[*line]));
        (one(&*self.far, operation).await, at.len() < 3)
    }

    async fn heal(&self) {
        // A stream from which something is missing does not go on.
        self.lines.0.iter().for_each(Proxy::cut);
        self.lines.mend();
        until_all_vote(&*self.far).await;
    }

    /// Whose the name is, according to a majority.
    async fn holder(&self) -> Option<(String, Fence)> {
        let views = self.near.inspect(Query::Name(name("a"))).await.expect("they answer");
        let mut holders = views.into_iter().flat_map(|view| view.holders);
        let holder = holders.next().map(|held| (held.token_prefix, held.fence));
        assert!(holders.next().is_none(), "there are two holders");
        holder
    }

    fn grew(&mut self, fence: Fence, fault: Fault) {
        assert!(fence > self.newest, "{fence} after {} with {fault:?}", self.newest);
        self.newest = fence;
    }

    /// Gives the name back, and waits until no node has it.
    async fn free(&self) {
        let released = one(&*self.far, releasing("a", 1)).await;
        assert!(matches!(released, Ok(Reply::Released | Reply::NotYours(_))), "{released:?}");
        until_held_at(&self.nodes, "a", 0).await;
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
    for (fault, at) in FAULTS.into_iter().flat_map(|fault| WHERE.map(|at| (fault, at))) {
        let (answer, must) = scene.under(fault, at, taking("a", 1)).await;
        if let Ok(Reply::Granted(grant)) = &answer {
            let mine = (token(1).prefix(), grant.fence());
            assert_eq!(scene.holder().await, Some(mine), "{fault:?} at {at:?}");
        } else {
            assert!(!must, "{answer:?} with {fault:?} at {at:?}");
            if !may_have_happened(&answer, fault) {
                // It is being taken back.
                until("nobody holds it", PATIENCE, || async {
                    scene.holder().await.is_none().then_some(())
                })
                .await;
            }
        }
        scene.heal().await;
        let again = granted(one(&*scene.far, taking("a", 1)).await).fence();
        if let Ok(Reply::Granted(grant)) = answer {
            assert_eq!(again, grant.fence(), "the same lease, with {fault:?} at {at:?}");
        }
        scene.grew(again, fault);
        scene.free().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_done_not_done_or_unknown() {
    let mut scene = Scene::new().await;
    for (fault, at) in FAULTS.into_iter().flat_map(|fault| WHERE.map(|at| (fault, at))) {
        let fence = granted(one(&*scene.far, taking("a", 1)).await).fence();
        scene.grew(fence, fault);
        let (answer, must) = scene.under(fault, at, renewing("a", 1)).await;
        let is_renewed = matches!(answer, Ok(Reply::Renewed(_)));
        assert!(is_renewed || !must, "{answer:?} with {fault:?} at {at:?}");
        may_have_happened(&answer, fault);
        let mine = (token(1).prefix(), fence);
        assert_eq!(scene.holder().await, Some(mine), "{fault:?} at {at:?}");
        scene.heal().await;
        let again = one(&*scene.far, renewing("a", 1)).await;
        assert!(matches!(again, Ok(Reply::Renewed(_))), "{again:?} after {fault:?} at {at:?}");
        scene.free().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_done_not_done_or_unknown() {
    let mut scene = Scene::new().await;
    for (fault, at) in FAULTS.into_iter().flat_map(|fault| WHERE.map(|at| (fault, at))) {
        let fence = granted(one(&*scene.far, taking("a", 1)).await).fence();
        scene.grew(fence, fault);
        until_held_at(&scene.nodes, "a", 5).await;
        let (answer, must) = scene.under(fault, at, releasing("a", 1)).await;
        let is_released = matches!(answer, Ok(Reply::Released));
        assert!(is_released || !must, "{answer:?} with {fault:?} at {at:?}");
        if is_released {
            assert_eq!(scene.holder().await, None, "{fault:?} at {at:?}");
        } else if !may_have_happened(&answer, fault) {
            assert_eq!(held_at(&scene.nodes, "a"), 5, "{fault:?} at {at:?}");
        }
        scene.heal().await;
        scene.free().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_for_an_ask_that_was_forgotten_do_not_block_the_next_of_the_same_token() {
    let nodes = Nodes::keeping();
    let store = open(&nodes.url("")).await;
    let first = granted(one(&*store, taking("a", 1)).await);
    until_held_at(&nodes, "a", 5).await;
    // Two nodes heard the ask and nobody else did; one is gone. Neither two nor two are a majority of five.
    for node in &nodes[2..4] {
        node.cli(&["flushall"]);
    }
    nodes[4].kill();
    let again = until("its votes come together", PATIENCE, || async {
        match one(&*store, taking("a", 1)).await {
            Ok(Reply::Granted(grant)) => Some(grant),
            _ => None,
        }
    })
    .await;
    assert!(again.fence() > first.fence());
    let mine = token(1).reveal();
    assert!(owners(&nodes[..4], "a").iter().all(|owner| *owner == mine));
}
