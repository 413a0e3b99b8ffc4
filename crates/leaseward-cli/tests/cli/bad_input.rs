//! Bad input: a clear error with a hint, exit code 2, nothing changed.

use std::fs;

use crate::support::{Place, Ran};

#[test]
fn nothing_bad_gets_through() {
    let long = "x".repeat(513);
    let value = "x".repeat(1025);
    let table: &[(&[&str], &str)] = &[
        (&["run", "", "--", "touch", "never"], "must not be empty"),
        (&["run", &long, "--", "touch", "never"], "too long"),
        (&["run", "a\nb", "--", "touch", "never"], "control character"),
        (&["run", "x", "x", "--", "touch", "never"], "named twice"),
        (&["run", "--ttl", "99ms", "x", "--", "touch", "never"], "between 100ms and 1d"),
        (&["run", "--ttl", "25h", "x", "--", "touch", "never"], "between 100ms and 1d"),
        (&["run", "--ttl", "30", "x", "--", "touch", "never"], "needs a unit"),
        (&["run", "--ttl", "soon", "x", "--", "touch", "never"], "hint"),
        (&["run", "--wait", "-5s", "x", "--", "touch", "never"], "negative"),
        (&["run", "--wait", "3000y", "x", "--", "touch", "never"], "longer than a year"),
        (&["run", "--wait", "1s", "--no-wait", "x", "--", "touch", "never"], "cannot be used with"),
        (
            &["run", "--shared", "--permits", "2", "x", "--", "touch", "never"],
            "cannot be used with",
        ),
        (&["run", "--permits", "0", "x", "--", "touch", "never"], "0"),
        (&["run", "--permits", "2", "x", "y", "--", "touch", "never"], "single name"),
        (&["run", "--grace", "16s", "x", "--", "touch", "never"], "more than half"),
        (&["run", "--busy-code", "256", "x", "--", "touch", "never"], "256"),
        (&["run", "x", "touch", "never"], "behind `--`"),
        (&["run", "--", "touch", "never"], "<NAME>"),
        (&["run", "--no-such-option", "x", "--", "touch", "never"], "--no-such-option"),
        (&["elect", "", "--", "touch", "never"], "must not be empty"),
        (&["elect", "x", "--value", &value, "--", "touch", "never"], "too long"),
        (&["acquire", "a\tb"], "control character"),
        (&["acquire", "x", "--handle", "no/such/folder/h"], "handle file"),
        (&["renew", "--handle", "missing"], "cannot read the handle"),
        (&["release", "--handle", "/dev/null"], "does not hold a handle"),
        (&["show", ""], "must not be empty"),
        (&["break", "x"], "needs a yes"),
        (&["break", "", "--yes"], "must not be empty"),
        (&["demo", "no-such-scene"], "no-such-scene"),
        (&["no-such-verb"], "no-such-verb"),
    ];
    for (arguments, says) in table {
        let place = Place::with_a_store();
        let ran = place.run(*arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{arguments:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{arguments:?}");
        assert!(!place.path("never").exists(), "{arguments:?}");
        let held = place.run(["ls", "--json"]);
        assert_eq!(held.out, "[]\n", "{arguments:?}: {}", held.err);
    }
}

#[test]
fn a_store_that_cannot_be_used_is_named() {
    let table = [
        ("nonsense:x", "`nonsense`"),
        ("nothing", "begins with its scheme"),
        ("sqlite:/", "names no file"),
        ("sqlite:x.db?durabilty=full", "`durabilty`"),
        ("", "is empty"),
        (" ", "is empty"),
        ("redis://[::1", "neither a name nor an address"),
        ("redis://%00", "neither a name nor an address"),
        ("redis://a b", "neither a name nor an address"),
        ("postgres://%zz", "neither a name nor an address"),
        ("etcd:localhost", "no `//`"),
    ];
    for (url, says) in table {
        let place = Place::new();
        let ran = place.run(["--store", url, "run", "x", "--", "touch", "never"]);
        assert_eq!(ran.code, 2, "{url}: {}", ran.err);
        assert!(ran.err.contains(says) && ran.err.contains("hint: "), "{url}: {}", ran.err);
        assert!(!place.path("never").exists());
    }
}

/// Each command is a process of its own: two would both be told that they hold the name.
#[test]
fn a_store_of_a_single_process_is_refused() {
    for command in [
        &["run", "x", "--", "touch", "never"][..],
        &["elect", "x", "--", "touch", "never"],
        &["acquire", "x"],
        &["ls"],
        &["show", "x"],
        &["break", "x", "--yes"],
        &["doctor"],
        &["health"],
        &["demo"],
        &["queue", "work", "--", "touch", "never"],
    ] {
        for store in ["memory:", "MEMORY:name"] {
            let place = Place::new();
            let ran = place.run(["--store", store].iter().chain(command));
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{command:?}: {}", ran.err);
            assert!(ran.err.contains("only tasks of one process"), "{command:?}: {}", ran.err);
            assert!(ran.err.contains("hint: ") && !place.path("never").exists(), "{}", ran.err);
        }
    }
    let ran = Place::new().run(["--store", "nothing", "ls"]);
    assert!(ran.err.contains("`sqlite:") && !ran.err.contains("memory"), "{}", ran.err);
}

#[test]
fn a_folder_where_a_file_should_be() {
    let place = Place::new();
    fs::create_dir(place.path("folder")).expect("made");
    let ran = place.run(["run", "--store", "sqlite:folder", "x", "--", "touch", "never"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("hint: "), "{}", ran.err);
    let ran = place.run(["acquire", "x", "--handle", "folder"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(place.run(["ls", "--json"]).out, "[]\n");
}

#[test]
fn without_arguments_the_help_is_shown() {
    let ran = Ran::from(Place::new().bare_tool([""; 0]).output().expect("starts"));
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("Usage: leaseward"), "{}", ran.err);
}
