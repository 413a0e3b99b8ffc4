//! The same within larger bounds.

use leaseward_model::redlock::{Bounds, ClientBounds, Lease, Network};

use crate::{bounds::*, explore::all};

#[test]
#[ignore = "takes minutes: part of `cargo xtask test --full`"]
fn fences_of_three_clients() {
    let mut bounds = fences();
    bounds.clients.push(one_ask());
    all("fences, three clients", bounds);
}

#[test]
#[ignore = "takes minutes: part of `cargo xtask test --full`"]
fn fences_of_five_nodes() {
    all("fences, five nodes", Bounds { nodes: 5, ..fences() });
}

#[test]
#[ignore = "takes minutes: part of `cargo xtask test --full`"]
fn fences_with_more_of_everything() {
    all("fences, asked for twice each", fences_asked_again());
    let network = Network::Wild(1);
    all(
        "fences, asked for twice each, one request arrives twice",
        Bounds { network, ..fences_asked_again() },
    );
    all("fences, two leases each", with_leases(fences(), 2));
    let lost = Bounds { ticks: 2, restarts: 2, ..fences_lost() };
    all("fences, nodes lose their memory twice", lost);
}

#[test]
#[ignore = "takes minutes: part of `cargo xtask test --full`"]
fn fences_of_leases_that_are_put_back() {
    all(
        "fences, a lease is put back, more under way",
        Bounds { in_flight: 2, ..fences_put_back() },
    );
}

#[test]
#[ignore = "takes minutes: part of `cargo xtask test --full`"]
fn holders_over_connections_that_break() {
    all(
        "holders that ask twice, a connection breaks",
        Bounds { cuts: 1, ..holders_that_asked_twice() },
    );
    all(
        "holders that come again, a connection breaks",
        Bounds { cuts: 1, ticks: 2, ..holders_that_come_again() },
    );
    all("holders that renew, a connection breaks", Bounds { cuts: 1, ..holders_that_renew() });
}

#[test]
#[ignore = "takes minutes: part of `cargo xtask test --full`"]
fn holders_while_nodes_forget() {
    let longer = Lease::Ticks(2);
    all(
        "holders for two ticks, a node loses its memory",
        Bounds { lease: longer, ticks: 3, ..holders_and_a_forgetful_node() },
    );
    all(
        "holders that renew, a node loses its memory",
        Bounds { restarts: 1, ..holders_that_renew() },
    );
}

#[test]
#[ignore = "takes minutes: part of `cargo xtask test --full`"]
fn holders_that_do_all_of_it() {
    let all_of_it = ClientBounds { asks: 2, renewals: 1, repeats: 1, ..one_ask() };
    let clients = vec![all_of_it, rival()];
    all("holders that do all of it", Bounds { clients, ..holders_that_ask() });
    all(
        "holders that hear of releases",
        Bounds { hears_releases: true, ..holders_that_come_again() },
    );
}
