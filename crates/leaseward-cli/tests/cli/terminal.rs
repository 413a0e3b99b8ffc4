//! On a terminal: the command has the foreground, and gives it back. `script` from util-linux plays the terminal.

use std::process::Command;

use crate::support::{Place, Ran, forget_settings};

/// Runs a shell line on a terminal of its own; answers what was on the screen.
fn on_a_terminal(place: &Place, line: &str) -> Ran {
    let mut command = Command::new("script");
    forget_settings(&mut command);
    command
        .args(["--quiet", "--return", "--command", line, "/dev/null"])
        .current_dir(place.path(""))
        .env("LEASEWARD_STORE", place.store())
        .env("SHELL", "/bin/sh")
        .stdin(std::process::Stdio::null());
    Ran::from(command.output().expect("`script` of util-linux is installed"))
}

#[test]
fn the_command_has_the_foreground_and_the_shell_gets_it_back() {
    let place = Place::new();
    let tool = env!("CARGO_BIN_EXE_leaseward");
    let look = r#"stat=$(cat /proc/$$/stat); set -- ${stat##*) }; echo "$3:$6""#;
    let script = place.path("look.sh");
    std::fs::write(&script, look).expect("written");
    let script = script.display();
    let ran =
        on_a_terminal(&place, &format!("sh {script}; {tool} run x -- sh {script}; sh {script}"));
    assert_eq!(ran.code, 0, "{}", ran.out);
    let seen: Vec<(&str, &str)> =
        ran.out.lines().filter_map(|line| line.trim().split_once(':')).collect();
    assert_eq!(seen.len(), 3, "{}", ran.out);
    for (group, foreground) in &seen {
        assert_eq!(group, foreground, "{}", ran.out);
    }
    assert_eq!(seen[0], seen[2], "the shell has it back");
    assert_ne!(seen[0], seen[1], "the command had a group of its own");
}

#[test]
fn without_colour_long_lines_are_still_wrapped() {
    let place = Place::with_a_store();
    let tool = env!("CARGO_BIN_EXE_leaseward");
    let ran = on_a_terminal(&place, &format!("stty cols 60; {tool} doctor"));
    assert!(ran.code == 0 && ran.out.contains('\x1b'), "{:?}", ran.out);
    let ran = on_a_terminal(&place, &format!("stty cols 60; NO_COLOR=1 {tool} doctor"));
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(!ran.out.contains('\x1b'), "{:?}", ran.out);
    // The path of the store is one word.
    let lines = ran.out.lines().filter(|line| !line.starts_with("store"));
    assert!(lines.clone().all(|line| line.chars().count() <= 60), "{}", ran.out);
    assert!(lines.clone().any(|line| line.starts_with("             ")), "{}", ran.out);
}

#[test]
fn a_terminal_of_no_known_width_gets_whole_lines() {
    let place = Place::new();
    let held = place.hold(&["deploy"], "read line");
    let tool = env!("CARGO_BIN_EXE_leaseward");
    for line in ["ls", "show deploy", "doctor"] {
        for colour in ["", "NO_COLOR=1 "] {
            let ran = on_a_terminal(&place, &format!("stty cols 0; {colour}{tool} {line}"));
            assert_eq!(ran.code, 0, "{}", ran.out);
            let longest = ran.out.lines().map(|line| line.chars().count()).max();
            assert!(longest.is_some_and(|longest| longest > 40), "{line}: {}", ran.out);
            assert!(ran.out.lines().count() < 15, "{line}: {}", ran.out);
        }
    }
    held.end();
}

#[test]
fn whom_a_wait_is_for_is_shown_and_wiped() {
    let place = Place::new();
    let held = place.hold(&["deploy"], "read line");
    let tool = env!("CARGO_BIN_EXE_leaseward");
    let ran = on_a_terminal(&place, &format!("{tool} run --wait 1s deploy -- true"));
    assert_eq!(ran.code, 75, "{}", ran.out);
    assert!(ran.out.contains("waiting for `deploy`: held by"), "{:?}", ran.out);
    held.end();
}

#[test]
fn bulk_operations_show_how_far_they_are() {
    let place = Place::new();
    let tool = env!("CARGO_BIN_EXE_leaseward");
    let line = format!(
        "yes 1 | head -n 400 | {tool} queue add -; {tool} queue cancel --all --queue default"
    );
    let ran = on_a_terminal(&place, &line);
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(ran.out.contains("cancelling") && ran.out.contains("/400"), "{:?}", ran.out);
    assert!(ran.out.contains("400 jobs of `default` were cancelled"), "{:?}", ran.out);
    // Off a terminal there is nothing to draw on.
    let ran = place.run(["queue", "cancel", "--all", "--queue", "default"]);
    assert_eq!(ran.err, "0 jobs of `default` were cancelled\n");
}
