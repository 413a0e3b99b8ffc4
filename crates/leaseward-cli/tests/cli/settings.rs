//! Settings: where they come from, which wins.

use std::fs;

use crate::support::{Place, Ran};

#[test]
fn the_flag_wins_over_the_variable_and_that_over_the_file() {
    let place = Place::new();
    let config = place.path(".config/leaseward/config.toml");
    fs::create_dir_all(config.parent().expect("a folder")).expect("made");
    fs::write(&config, "store = \"sqlite:from-file.db\"\nttl = \"2m\"\n").expect("written");
    let print = ["run", "x", "--", "sh", "-c", "echo $LEASEWARD_STORE"];
    let from_file = Ran::from(place.bare_tool(print).output().expect("starts"));
    assert!(from_file.out.ends_with("/from-file.db\n"), "{}{}", from_file.out, from_file.err);
    let from_variable = place.run(print);
    assert!(from_variable.out.ends_with("/locks.db\n"), "{}", from_variable.out);
    for arguments in [
        ["--store", "sqlite:flag.db"].iter().chain(&print).collect::<Vec<_>>(),
        ["run", "--store", "sqlite:flag.db"].iter().chain(&print[1..]).collect(),
    ] {
        let from_flag = place.run(arguments);
        assert!(from_flag.out.ends_with("/flag.db\n"), "{}{}", from_flag.out, from_flag.err);
    }
    let ttl = place.run(["acquire", "y"]).out;
    assert!(ttl.contains("\"ttl_ms\":120000"), "{ttl}");
}

#[test]
fn variables_stand_between_options_and_the_file() {
    let place = Place::new();
    fs::write(place.path("c.toml"), "ttl = \"2m\"\n").expect("written");
    let ttl_of = |name: &str, arguments: &[&str]| {
        let acquire = [&["--config", "c.toml", "acquire", name], arguments].concat();
        let ran =
            Ran::from(place.tool(acquire).env("LEASEWARD_TTL", "3m").output().expect("starts"));
        ran.out
    };
    assert!(ttl_of("a", &[]).contains("\"ttl_ms\":180000"));
    assert!(ttl_of("b", &["--ttl", "4m"]).contains("\"ttl_ms\":240000"));

    // `LEASEWARD_WAIT` bounds the wait for a name that is held, unless an option says how long.
    for arguments in [&["run", "a"][..], &["run", "--no-wait", "a"], &["run", "a", "c"]] {
        let run = arguments.iter().chain(&["--", "true"]);
        let ran =
            Ran::from(place.tool(run).env("LEASEWARD_WAIT", "50ms").output().expect("starts"));
        assert_eq!(ran.code, 75, "{}", ran.err);
        assert_eq!(
            ran.err.contains("within 50ms"),
            !arguments.contains(&"--no-wait"),
            "{}",
            ran.err
        );
    }

    let tool = |variable: &str, value: &str| {
        let mut tool = place.tool(["run", "--ttl", "30s", "d", "--", "true"]);
        Ran::from(tool.env(variable, value).output().expect("starts"))
    };
    let ran = tool("LEASEWARD_GRACE", "16s");
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("a grace of 16s is more than half"), "{}", ran.err);
    assert_eq!(tool("LEASEWARD_GRACE", "15s").code, 0);
    for variable in ["LEASEWARD_TTL", "LEASEWARD_WAIT", "LEASEWARD_GRACE"] {
        for value in ["", "30", "soon"] {
            let ran = tool(variable, value);
            assert_eq!(ran.code, 2, "{variable}={value}: {}", ran.err);
            assert!(ran.err.contains(variable) && ran.err.contains("hint: "), "{}", ran.err);
        }
    }
}

#[test]
fn a_variable_that_means_nothing_is_warned_of_once() {
    let place = Place::new();
    let mut tool = place.tool(["run", "x", "--", "true"]);
    tool.env("LEASEWARD_STOER", "redis://host").env("LEASEWARD_TLL", "1m");
    let ran = Ran::from(tool.output().expect("starts"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let warned =
        "warning: `LEASEWARD_STOER`, `LEASEWARD_TLL` means nothing to the tool\nhint: it reads ";
    assert!(ran.err.starts_with(warned) && ran.err.lines().count() == 2, "{}", ran.err);
    // What it sets for commands is its own.
    let tool = env!("CARGO_BIN_EXE_leaseward");
    let inner = format!("{tool} run c -- true && env | grep -c ^LEASEWARD_");
    let ran = place.run(["run", "a", "b", "--", "sh", "-c", &inner]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
}

/// A variable that was forgotten is no reason to lock on each machine apart.
#[test]
fn an_empty_store_is_not_the_default_one() {
    let place = Place::new();
    fs::write(place.path("c.toml"), "store = \"\"\n").expect("written");
    let mut by_flag = place.bare_tool(["--store", "", "run", "x", "--", "touch", "never"]);
    let mut by_variable = place.bare_tool(["run", "x", "--", "touch", "never"]);
    by_variable.env("LEASEWARD_STORE", "");
    let mut by_file = place.bare_tool(["--config", "c.toml", "run", "x", "--", "touch", "never"]);
    for command in [&mut by_flag, &mut by_variable, &mut by_file] {
        let ran = Ran::from(command.output().expect("starts"));
        assert_eq!(ran.code, 2, "{command:?}: {}", ran.err);
        assert!(ran.err.contains("is empty") && ran.err.contains("hint: "), "{}", ran.err);
        assert!(!place.path("never").exists() && !place.path(".local").exists());
    }
}

#[test]
fn a_file_that_cannot_be_used_is_refused_with_its_line() {
    let place = Place::new();
    fs::write(place.path("c.toml"), "store = \"sqlite:x.db\"\ntll = \"30s\"\n").expect("written");
    let ran = place.run(["--config", "c.toml", "run", "x", "--", "true"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("line 2") && ran.err.contains("`tll`"), "{}", ran.err);
    let ran = place.run(["--config", "missing.toml", "run", "x", "--", "true"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("missing.toml"), "{}", ran.err);
    fs::write(place.path("c.toml"), "ttl = \"1ms\"\n").expect("written");
    let ran = place.run(["--config", "c.toml", "run", "x", "--", "true"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("`ttl`") && ran.err.contains("hint: "), "{}", ran.err);
}
