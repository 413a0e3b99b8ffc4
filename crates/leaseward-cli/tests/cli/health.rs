//! `health`: one line for probes, soon, and a code.

use std::net::TcpListener;

use serde_json::Value;

use crate::support::Place;

#[test]
fn a_store_that_answers_is_healthy() {
    let place = Place::new();
    let ran = place.run(["health"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.starts_with(&place.store()) && ran.out.contains(" answers in "), "{}", ran.out);
    assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
    let ran = place.run(["health", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let report: Value = serde_json::from_str(&ran.out).expect("an object");
    assert_eq!((&report["healthy"], &report["error"]), (&Value::Bool(true), &Value::Null));
    assert!(report["round_trip_us"].is_u64() && report["store"] == place.store(), "{report}");
}

#[test]
fn a_store_that_is_not_there_or_stands_still_is_not() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound");
    let within = "no answer within 200ms";
    for (url, says) in [
        ("redis://u:hunter2@127.0.0.1:1".to_owned(), "was not reached"),
        (format!("redis://{address}"), within),
        (format!("redlock://{address}"), within),
        (format!("postgres://u:hunter2@{address}/d"), within),
        (format!("postgres+advisory://u:hunter2@{address}/d"), within),
        (format!("etcd://{address}"), within),
        (format!("zookeeper://{address}"), within),
    ] {
        let place = Place::new();
        let ask = ["health", "--timeout", "200ms", "--store", &url];
        let ran = place.run(ask);
        assert_eq!((ran.code, ran.err.as_str()), (69, ""), "{url}: {}", ran.out);
        assert!(ran.out.contains(says) && ran.out.lines().count() == 1, "{url}: {}", ran.out);
        let ran = place.run(ask.iter().chain(&["--json"]));
        assert_eq!((ran.code, ran.err.as_str()), (69, ""), "{url}: {}", ran.out);
        let report: Value = serde_json::from_str(&ran.out).expect("an object");
        assert_eq!(report["healthy"], false);
        assert!(report["error"]["message"].as_str().is_some_and(|text| text.contains(says)));
        assert!(!ran.out.contains("hunter2"), "{}", ran.out);
    }
}

#[test]
fn a_url_that_means_nothing_is_bad_input() {
    let ran = Place::new().run(["health", "--store", "redis://a b"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
}
