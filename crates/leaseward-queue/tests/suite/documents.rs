//! The promises on paper and the cases that show them are the same.

use std::{collections::BTreeSet, fs, path::Path};

/// `group::case` of everything that is run, from what the programs say.
fn cases() -> BTreeSet<String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut found = BTreeSet::new();
    for folder in ["suite", "faults"] {
        for entry in fs::read_dir(tests.join(folder)).expect("a folder") {
            let path = entry.expect("a file").path();
            let group = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if group == "documents" {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source");
            let listed = text.split("cases![").nth(1).and_then(|rest| rest.split(']').next());
            let listed = listed.unwrap_or_default().split(',').map(str::trim);
            let own = text
                .split("#[tokio::test")
                .skip(1)
                .filter_map(|rest| rest.split("async fn ").nth(1)?.split('(').next());
            for case in listed.chain(own).filter(|case| !case.is_empty()) {
                found.insert(format!("{group}::{case}"));
            }
        }
    }
    found
}

/// `group::case` of everything that is promised.
fn promises() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/queue.md");
    let text = fs::read_to_string(page).expect("the page");
    let promises = text
        .split("## What is promised")
        .nth(1)
        .and_then(|rest| rest.split("## How it stays fast").next());
    let code = promises.expect("the promises").split('`').skip(1).step_by(2);
    let is_case = |code: &&str| code.contains("::") && !code.starts_with("tx::");
    code.filter(is_case).map(str::to_owned).collect()
}

#[test]
fn every_promise_has_its_case_and_every_case_its_promise() {
    let (cases, promises) = (cases(), promises());
    assert!(cases.len() > 40, "{cases:?}");
    let missing: Vec<_> = promises.difference(&cases).collect();
    assert!(missing.is_empty(), "promised, and not shown: {missing:?}");
    let silent: Vec<_> = cases.difference(&promises).collect();
    assert!(silent.is_empty(), "shown, and not promised: {silent:?}");
}
