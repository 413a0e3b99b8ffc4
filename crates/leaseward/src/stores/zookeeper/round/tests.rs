//! What goes together, and what each is told.

use tokio::sync::oneshot;

use super::{
    super::{
        session::{Answered, Fault},
        wire::{Body, Code, Stat},
    },
    *,
};
use crate::clock::Moment;

type Told = oneshot::Receiver<Vec<Answered>>;

const MEANS: Means = Means {
    session: 7,
    witness: String::new(),
    acl: Acl::Open,
    has_witness: Some(true),
    reads: true,
};

fn flight(requests: Vec<Request>) -> (Flight, Told) {
    let (tell, told) = oneshot::channel();
    (Flight { requests, tell, asked: Moment::from_nanos(0) }, told)
}

fn enter(line: &str, data: usize) -> Vec<Request> {
    let (path, data) = (format!("/{line}/t__lock__"), vec![0; data]);
    let kind = Kind::EphemeralSequential;
    vec![
        Request::Create { path, data, acl: Acl::Open, kind },
        Request::Children { path: format!("/{line}"), watch: false },
    ]
}

fn delete(line: &str) -> Vec<Request> {
    vec![Request::Delete { path: format!("/{line}/t__lock__0"), version: None }]
}

fn look(watch: bool) -> Vec<Request> {
    vec![Request::Sync, Request::Get { path: "/a/b".into(), watch }]
}

fn gathered(flights: Vec<Vec<Request>>, means: &Means) -> (Departure, Vec<Told>) {
    let (flights, told) = flights.into_iter().map(flight).unzip();
    (gather(flights, means), told)
}

fn sizes(departure: &Departure) -> (Vec<usize>, usize) {
    (departure.rounds.iter().map(Round::len).collect(), departure.alone.len())
}

fn refused(code: Code) -> Answered {
    Err(Fault::Refused(code))
}

fn done(created: &[&str]) -> Answered {
    let created = created.iter().map(|path| (*path).to_owned()).collect();
    let set = Stat { czxid: 1, mzxid: 99, mtime_ms: 5, ..Stat::default() };
    Ok(Body::Transaction { created, set: Some(set) })
}

#[test]
fn one_round_has_one_new_node_of_a_line() {
    let flights = ["a", "b", "a", "a", "c", "b"].map(|line| enter(line, 0));
    let (departure, _told) = gathered(flights.to_vec(), &MEANS);
    assert_eq!(sizes(&departure), (vec![3, 2, 1], 0));
}

#[test]
fn a_round_is_bounded() {
    let many = (0..300).map(|at| enter(&at.to_string(), 0)).collect();
    assert_eq!(sizes(&gathered(many, &MEANS).0), (vec![128, 128, 44], 0));
    let large = (0..5).map(|at| enter(&at.to_string(), 30_000)).collect();
    assert_eq!(sizes(&gathered(large, &MEANS).0), (vec![2, 2, 1], 0));
    let larger = (0..2).map(|at| enter(&at.to_string(), 90_000)).collect();
    assert_eq!(sizes(&gathered(larger, &MEANS).0), (vec![1, 1], 0));
}

#[test]
fn watches_and_transactions_go_by_themselves() {
    let flights = vec![look(true), vec![Request::Multi(Vec::new())], look(false), delete("a")];
    assert_eq!(sizes(&gathered(flights.clone(), &MEANS).0), (vec![2], 2));
    let means = Means { has_witness: None, ..MEANS };
    let flights = vec![enter("a", 0), delete("a"), enter("b", 0)];
    assert_eq!(sizes(&gathered(flights, &means).0), (vec![1], 2), "without a witness");
}

#[test]
fn the_witness_is_made_where_it_is_first_needed() {
    let means = Means { has_witness: Some(false), ..MEANS };
    let kinds = |flights| {
        let (departure, _told) = gathered(flights, &means);
        let of = |round: &Round| round.requests(&means).iter().map(kind).collect::<String>();
        departure.rounds.iter().map(of).collect::<Vec<_>>()
    };
    fn kind(request: &Request) -> &'static str {
        match request {
            Request::Create { kind: Kind::Ephemeral, .. } => "witness ",
            Request::Create { .. } => "create ",
            Request::Delete { .. } => "delete ",
            Request::Sync => "sync ",
            Request::Multi(_) => "multi ",
            Request::Reads(_) => "reads ",
            Request::Children { .. } | Request::Get { .. } => "read ",
            _ => "? ",
        }
    }
    assert_eq!(kinds(vec![delete("a"), delete("b")]), ["multi "]);
    assert_eq!(kinds(vec![enter("a", 0), look(false)]), ["sync create reads "]);
    let flights = vec![enter("a", 0), enter("b", 0), enter("a", 0), delete("c")];
    assert_eq!(kinds(flights), ["witness multi reads ", "create read "]);
}

#[test]
fn each_is_told_its_own() {
    let flights = vec![enter("a", 0), delete("b"), look(false), enter("c", 0)];
    let (mut departure, mut told) = gathered(flights, &MEANS);
    let round = departure.rounds.remove(0);
    let reads = vec![
        Ok(Body::Children(vec!["one".into()])),
        Err(Code::NoNode),
        Ok(Body::Children(vec!["two".into()])),
    ];
    let answers = vec![Ok(Body::Done), done(&["/a/1", "/c/2"]), Ok(Body::Reads(reads))];
    assert!(round.land(answers).again.is_empty());
    let created = |path: &str| {
        let (czxid, mzxid, ctime_ms, mtime_ms) = (99, 99, 5, 5);
        let stat = Stat { czxid, mzxid, ctime_ms, mtime_ms, version: 0, owner: 7 };
        Ok(Body::Created { path: path.into(), stat })
    };
    let line = |node: &str| Ok(Body::Children(vec![node.into()]));
    let expected = [
        vec![created("/a/1"), line("one")],
        vec![Ok(Body::Done)],
        vec![Ok(Body::Done), refused(Code::NoNode)],
        vec![created("/c/2"), line("two")],
    ];
    for (told, expected) in told.iter_mut().zip(expected) {
        assert_eq!(told.try_recv(), Ok(expected));
    }
}

/// What comes of a transaction of two, and of somebody who only looks.
fn outcome(multi: Answered, reads: Answered) -> (Landed, Vec<Option<Vec<Answered>>>) {
    let flights = vec![enter("a", 0), delete("b"), look(false)];
    let (mut departure, told) = gathered(flights, &MEANS);
    let landed = departure.rounds.remove(0).land(vec![Ok(Body::Done), multi, reads]);
    (landed, told.into_iter().map(|mut told| told.try_recv().ok()).collect())
}

#[test]
fn what_was_surely_not_done_is_sent_again_and_what_may_have_been_is_not() {
    let reads = || Ok(Body::Reads(vec![Err(Code::NoNode), Err(Code::NoNode)]));
    let (landed, told) = outcome(refused(Code::NodeExists), reads());
    assert_eq!((landed.again.len(), landed.has_witness), (2, None));
    assert_eq!(told[2], Some(vec![Ok(Body::Done), refused(Code::NoNode)]));
    let (landed, _) = outcome(refused(Code::NoNode), reads());
    assert_eq!((landed.again.len(), landed.has_witness), (2, Some(Some(false))));
    for fault in [Fault::Cut, Fault::Over, Fault::Refused(Code::SystemError)] {
        let (landed, told) = outcome(Err(fault), Err(Fault::Cut));
        assert!(landed.again.is_empty(), "{fault:?}");
        assert_eq!(told[0], Some(vec![Err(fault), Err(Fault::Cut)]));
        assert_eq!(told[1], Some(vec![Err(fault)]));
    }
    // Without the number of the transaction there is no fence: as if its answer was lost.
    let (_, told) =
        outcome(Ok(Body::Transaction { created: vec!["/a/1".into()], set: None }), Err(Fault::Cut));
    assert_eq!(told[0], Some(vec![Err(Fault::Cut); 2]));
}

#[test]
fn a_server_that_does_not_read_several_at_once_is_known_by_it() {
    let (landed, _) = outcome(done(&["/a/1"]), refused(Code::Unimplemented));
    assert!(landed.knows_no_reads);
    let means = Means { reads: false, ..MEANS };
    let (departure, _told) = gathered(vec![enter("a", 0), enter("b", 0)], &means);
    let requests = departure.rounds[0].requests(&means);
    assert!(matches!(
        requests[..],
        [Request::Multi(_), Request::Children { .. }, Request::Children { .. }]
    ));
}
