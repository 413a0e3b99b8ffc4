//! `demo`: every claim holds.

use crate::support::{Place, Ran};

#[test]
fn every_scene_holds_what_it_claims() {
    let place = Place::new();
    let ran = Ran::from(place.bare_tool(["demo"]).output().expect("starts"));
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("every claim held") && !ran.out.contains("✗  "), "{}", ran.out);
}

#[test]
fn one_scene_on_a_store_of_ones_own_leaves_nothing_behind() {
    let place = Place::new();
    let ran = place.run(["demo", "paused"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("the late write was refused"), "{}", ran.out);
    assert_eq!(place.run(["ls", "--json"]).out, "[]\n");
}
