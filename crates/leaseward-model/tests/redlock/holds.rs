//! With all checks in place, nothing is wrong.

use leaseward_model::redlock::{Bounds, Network};

use crate::{bounds::*, explore::all};

#[test]
fn fences_are_unique_and_in_order() {
    all("fences, one client after itself", {
        let mut bounds = fences();
        bounds.clients[1].acquisitions = 2;
        bounds
    });
    all("fences, one request arrives twice", {
        let mut bounds = Bounds { network: Network::Wild(1), ..fences() };
        bounds.clients[1].asks = 2;
        bounds
    });
}

#[test]
fn fences_outlive_what_nodes_remember() {
    all("fences, forgotten", fences_forgotten());
    all("fences, a node loses its memory", fences_lost());
    all("fences, a node finds an old snapshot", fences_of_an_old_snapshot());
}

#[test]
fn fences_outlive_leases_that_are_put_back() {
    all("fences, a lease is put back", fences_put_back());
}

#[test]
fn one_holder_at_a_time() {
    all("holders", holders());
    all("holders, a node loses its memory", holders_and_a_forgetful_node());
    all("holders that ask twice", Bounds { ticks: 1, ..holders_that_asked_twice() });
    all("holders that come again", holders_that_come_again());
}

#[test]
fn one_holder_at_a_time_while_it_is_renewed() {
    all("holders that renew", Bounds { ticks: 2, ..holders_that_renew() });
    all("holders that ask for what they hold", holders_that_ask());
}
