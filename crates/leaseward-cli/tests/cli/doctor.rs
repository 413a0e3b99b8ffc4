//! `doctor`: what it finds, what a script decides by, what it does not touch.

use std::{fs, net::TcpListener};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::{Place, Ran};

fn object(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {:?}", ran.out))
}

/// A clock that was an hour ahead when the last fence was given out, and was set right since.
fn set_fences_ahead(place: &Place) {
    let held = place.hold(&["x"], "read line");
    held.end();
    let file = Connection::open(place.path("locks.db")).expect("a file");
    let moved = file.execute("UPDATE meta SET last_fence = last_fence + 3600000000", []);
    assert_eq!(moved.expect("our table"), 1);
}

#[test]
fn a_healthy_store_is_no_danger() {
    let place = Place::with_a_store();
    let ran = place.run(["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    for says in [&place.store(), "median of", "exclusion", "one machine", "note: ", "network share"]
    {
        assert!(ran.out.contains(says), "{says}: {}", ran.out);
    }
    assert!(ran.out.ends_with("\nno danger found, 1 note\n"), "{}", ran.out);
    assert!(!ran.out.contains('\x1b'), "{:?}", ran.out);
}

#[test]
fn json_is_the_documented_object() {
    let place = Place::with_a_store();
    let url = format!("{}?durability=full", place.store());
    let ran = place.run(["doctor", "--json", "--store", &url]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let mut found = object(&ran);
    let trip = found["round_trip_us"].take();
    let [min, median, max] = ["min", "median", "max"].map(|key| trip[key].as_u64());
    assert!(min.is_some() && min <= median && median <= max, "{trip}");
    let documented = json!({
        "store": url,
        "answers": true,
        "round_trip_us": null,
        "guarantee": {
            "exclusion": "holds",
            "fences": "holds",
            "reach": "machine",
            "breaks_when": ["the file is on a network share that is not recognised"],
        },
        "fence_lead_ms": 0,
        "findings": [],
        "dangers": 0,
        "error": null,
    });
    assert_eq!(found, documented);
}

#[test]
fn a_danger_comes_first_and_ends_with_1() {
    let place = Place::new();
    set_fences_ahead(&place);
    let ran = place.run(["doctor"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{}", ran.out);
    let at = |text: &str| ran.out.find(text).unwrap_or_else(|| panic!("{text}: {}", ran.out));
    assert!(at("danger: the newest fence is 3") < at("note: "), "{}", ran.out);
    assert!(at("fence lead") < at("set the clock right"), "{}", ran.out);
    assert!(ran.out.ends_with("\n1 danger found, 1 note\n"), "{}", ran.out);

    let ran = place.run(["doctor", "--json"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let found = object(&ran);
    assert_eq!((&found["dangers"], &found["error"]), (&json!(1), &Value::Null));
    assert!(found["fence_lead_ms"].as_u64().is_some_and(|ms| ms > 3_000_000), "{found}");
    let worst = &found["findings"][0];
    assert_eq!(worst["severity"], "danger", "{found}");
    for key in ["what", "meaning", "advice"] {
        assert!(worst[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {found}");
    }
    assert_eq!(found["findings"][1]["severity"], "note", "{found}");
}

#[test]
fn it_touches_no_lock() {
    let place = Place::new();
    let held = place.hold(&["deploy"], "read line; true");
    let fence = || -> Value {
        let shown = place.run(["show", "deploy", "--json"]);
        object(&shown)["holders"][0]["fence"].clone()
    };
    let before = fence();
    assert_eq!(place.run(["doctor"]).code, 0);
    assert_eq!(fence(), before);
    assert_eq!(held.end().code, 0);
}

/// It takes connections, and never says anything: as a server does that was stopped.
#[test]
fn a_store_that_stands_still_is_not_waited_for_longer_than_its_url_says() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound");
    for url in [
        format!("postgres://u:p@{address}/d?timeout=500ms"),
        format!("postgres+advisory://u:p@{address}/d?timeout=500ms"),
        format!("redis+cluster://{address}?timeout=500ms"),
        format!("etcd://{address}?timeout=500ms"),
        format!("zookeeper://{address}?timeout=500ms"),
    ] {
        let ran = Place::new().run(["doctor", "--store", &url, "--json"]);
        assert_eq!(ran.code, 69, "{url}: {}", ran.err);
        // Before the ten seconds are over that PostgreSQL may take to let a client in.
        let message = &object(&ran)["error"]["message"];
        let is_cut = message.as_str().is_some_and(|text| text.ends_with("not answer within 1.5s"));
        assert!(is_cut || !url.starts_with("postgres:"), "{url}: {message}");
    }
}

#[test]
fn a_store_that_refuses_is_reported_with_what_to_do() {
    let place = Place::new();
    fs::write(place.path("locks.db"), "this is no database, and long enough to see that")
        .expect("written");
    let ran = place.run(["doctor"]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert!(ran.out.contains(&place.store()) && ran.out.contains("not checked"), "{}", ran.out);
    assert!(ran.err.starts_with("error: ") && ran.err.contains("\nhint: "), "{}", ran.err);

    let ran = place.run(["doctor", "--json"]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    let found = object(&ran);
    assert_eq!((&found["answers"], &found["guarantee"]), (&json!(false), &Value::Null));
    assert_eq!(found["store"], place.store());
    for key in ["message", "hint"] {
        assert!(found["error"][key].as_str().is_some_and(|text| ran.err.contains(text)), "{found}");
    }
}

#[test]
fn a_url_that_means_nothing_is_bad_input() {
    for (url, says) in [("nonsense://u:hunter2@host", "`nonsense`"), ("sqlite:/", "names no file")]
    {
        let ran = Place::new().run(["doctor", "--store", url]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{url}: {}", ran.err);
        assert!(ran.err.contains(says) && ran.err.contains("hint: "), "{url}: {}", ran.err);
        assert!(!ran.err.contains("hunter2"), "{}", ran.err);
    }
}
