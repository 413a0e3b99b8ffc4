//! Passwords: never printed, never passed on.

use std::fs;

use crate::support::{Place, Ran};

const SECRET: &str = "hunter2";

/// Nothing that can be seen of a run holds the password.
fn assert_silent(ran: &Ran) {
    assert!(!ran.out.contains(SECRET), "{}", ran.out);
    assert!(!ran.err.contains(SECRET), "{}", ran.err);
}

#[test]
fn a_url_with_a_password_is_not_repeated() {
    let place = Place::new();
    for url in ["nonsense://u:hunter2@host", "nonsense:hunter2?x", "hunter2"] {
        assert_silent(&place.run(["--store", url, "ls"]));
    }
    let ran = Ran::from(
        place
            .bare_tool(["--help"])
            .env("LEASEWARD_STORE", "nonsense://u:hunter2@host")
            .output()
            .expect("starts"),
    );
    assert_silent(&ran);
}

#[test]
fn the_command_gets_no_password() {
    let place = Place::new();
    let url = format!("{}?durability=normal", place.store());
    let output = place
        .bare_tool(["run", "x", "--", "sh", "-c", "env; cat /proc/self/cmdline"])
        .env("LEASEWARD_STORE", &url)
        .env("LEASEWARD_STORE_PASSWORD", SECRET)
        .output();
    let ran = Ran::from(output.expect("starts"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("LEASEWARD_STORE=sqlite:"), "{}", ran.out);
    assert_silent(&ran);
}

#[test]
fn a_password_file_is_read_but_not_shown() {
    let place = Place::new();
    fs::write(place.path("password"), format!("{SECRET}\n")).expect("written");
    let config = "store = \"nonsense://host\"\nstore_password_file = \"password\"\n";
    fs::write(place.path("c.toml"), config).expect("written");
    let output = place.bare_tool(["--config", "c.toml", "ls"]).output();
    let ran = Ran::from(output.expect("starts"));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_silent(&ran);
    fs::write(place.path("c.toml"), format!("store = [\"redis://:{SECRET}@h\"]\n"))
        .expect("written");
    let output = place.bare_tool(["--config", "c.toml", "ls"]).output();
    assert_silent(&Ran::from(output.expect("starts")));
}
