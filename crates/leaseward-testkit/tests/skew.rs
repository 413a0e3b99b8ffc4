//! A server whose wall clock is wrong.

use std::time::{SystemTime, UNIX_EPOCH};

use leaseward_testkit::{RedisServer, Skew};

/// How far the server's clock is ahead of ours, in seconds.
fn ahead(server: &RedisServer) -> f64 {
    let time = server.cli(&["time"]);
    let (seconds, micros) = time.split_once('\n').expect("two lines");
    let number = |text: &str| text.parse::<f64>().expect("a number");
    let ours = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    number(seconds) + number(micros) / 1e6 - ours.as_secs_f64()
}

#[test]
fn a_jump_forward_expires_a_key_and_one_back_lengthens_it() {
    let skew = Skew::new();
    let server = RedisServer::builder().skew(&skew).start();
    let near = |expected: f64| {
        let ahead = ahead(&server);
        assert!((ahead - expected).abs() < 5.0, "{ahead} s ahead instead of {expected}");
    };
    near(0.0);
    server.cli(&["set", "a", "1", "px", "30000"]);
    skew.set_ms(60_000);
    near(60.0);
    assert_eq!(server.cli(&["get", "a"]), "");
    server.cli(&["set", "a", "1", "px", "30000"]);
    skew.set_ms(-60_000);
    near(-60.0);
    let left: u64 = server.cli(&["pttl", "a"]).parse().expect("a number");
    assert!(left > 120_000, "{left}");
    skew.set_ms(0);
    server.restart();
    near(0.0);
}
