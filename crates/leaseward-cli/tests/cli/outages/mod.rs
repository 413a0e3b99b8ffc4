//! A store that goes away and comes back: everything long-lived goes on by itself.
//!
//! All long-lived verbs stand side by side on one server. Afterwards each of them does what it was started for.

mod crowd;
mod late;
mod moved;
mod servers;

use std::{
    thread,
    time::{Duration, SystemTime},
};

use self::{
    crowd::{Crowd, TTL},
    servers::{Away, Server},
};

/// Away, in each way, until everybody has noticed it and every lease has ended.
fn rides_out(server: &Server) {
    let crowds: Vec<_> = server.stores().into_iter().map(Crowd::start).collect();
    for away in [Away::Stopped, Away::Frozen] {
        let mut lines: Vec<_> = crowds.iter().map(Crowd::line_up).collect();
        server.goes(away);
        let went_away = SystemTime::now();
        crowds.iter().zip(&mut lines).for_each(|(crowd, line)| crowd.all_notice(line));
        server.comes_back(away);
        for (crowd, line) in crowds.iter().zip(lines) {
            crowd.all_say_so(went_away);
            crowd.served(line);
            crowd.all_go_on();
        }
    }
    crowds.into_iter().for_each(Crowd::end);
}

#[test]
fn every_store_goes_away_and_comes_back() {
    on_every_server(rides_out);
}

/// Side by side: most of it is waiting.
fn on_every_server(test: fn(&Server)) {
    let servers = [
        ("redis", Server::redis as fn() -> Server),
        ("redlock", Server::redlock),
        ("postgres", Server::postgres),
        ("etcd", Server::etcd),
        ("zookeeper", Server::zookeeper),
    ];
    thread::scope(|scope| {
        for (name, start) in servers {
            // What panics is named in the message.
            let named = thread::Builder::new().name(name.to_owned());
            named.spawn_scoped(scope, move || test(&start())).expect("a thread");
        }
    });
}

/// Shorter than the TTL, about as long, several times as long.
const AWAY_FOR: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_millis(2_700),
    Duration::from_millis(3_300),
    Duration::from_secs(40),
];

/// Away for every length of time, in each way.
fn rides_out_any(server: &Server) {
    let crowds: Vec<_> = server.stores().into_iter().map(Crowd::start).collect();
    for time in AWAY_FOR {
        for away in [Away::Stopped, Away::Frozen] {
            let lines: Vec<_> = crowds.iter().map(Crowd::line_up).collect();
            server.goes(away);
            // How long it lasts is what is tried out.
            thread::sleep(time);
            server.comes_back(away);
            for (crowd, line) in crowds.iter().zip(lines) {
                crowd.served(line);
                crowd.all_go_on();
            }
        }
    }
    crowds.into_iter().for_each(Crowd::end);
}

#[test]
#[ignore = "minutes: every store, away for every length of time, in each way"]
fn every_store_may_be_away_for_any_length_of_time() {
    assert!(AWAY_FOR[1] < TTL && TTL < AWAY_FOR[2]);
    on_every_server(rides_out_any);
}
