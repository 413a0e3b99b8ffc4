//! The matrix of stores, cases and promises has no holes.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use leaseward_conformance::{
    Fixture, cases,
    fixture::{FIXTURES, Helpers, Time},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn case_names() -> BTreeSet<String> {
    cases::all().map(|(group, case)| format!("{group}::{}", case.name)).collect()
}

/// The names between backticks in a text that look like `group::case` and whose group exists.
fn cases_named_in(text: &str) -> BTreeSet<String> {
    let groups: BTreeSet<_> = cases::GROUPS.iter().map(|group| group.name).collect();
    let is_plain = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b"_0123456789".contains(&b))
    };
    text.split('`')
        .filter_map(|quoted| quoted.split_once("::"))
        .filter(|(group, case)| groups.contains(group) && is_plain(case))
        .map(|(group, case)| format!("{group}::{case}"))
        .collect()
}

fn missing(named: &BTreeSet<String>) -> Vec<String> {
    named.difference(&case_names()).cloned().collect()
}

#[test]
fn no_case_is_named_twice() {
    assert_eq!(case_names().len(), cases::all().count());
}

#[test]
fn every_store_has_a_fixture() {
    let fixtures: BTreeSet<_> = FIXTURES.iter().map(|fixture| fixture.scheme).collect();
    for scheme in leaseward::store::schemes() {
        let has_one = scheme.names.iter().any(|name| fixtures.contains(name));
        assert!(has_one, "the store {:?} is not in `FIXTURES`", scheme.names);
    }
    let known: BTreeSet<_> =
        leaseward::store::schemes().iter().flat_map(|scheme| scheme.names).copied().collect();
    assert!(fixtures.is_subset(&known), "a fixture of no store: {fixtures:?}");
}

/// Fails for features that were not built in too: `--all-features` finds every store there is.
#[test]
fn every_store_folder_is_built_in() {
    let folder = root().join("crates/leaseward/src/stores");
    let names: BTreeSet<_> =
        leaseward::store::schemes().iter().flat_map(|scheme| scheme.names).copied().collect();
    for entry in fs::read_dir(&folder).expect("the stores") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a plain name");
        if entry.path().is_dir() {
            assert!(names.contains(name.as_str()), "the suite is built without `{name}`");
        }
    }
}

#[tokio::test]
async fn every_need_is_met_by_some_store() {
    let helpers = Helpers { lock_taker: env!("CARGO_BIN_EXE_lock-taker").into() };
    for (group, case) in cases::all() {
        let mut is_met = false;
        for registered in FIXTURES {
            // One is enough, and some take long to start.
            if is_met {
                break;
            }
            let fixture = Fixture::new(registered, Time::Real, helpers.clone());
            is_met = fixture.lacks(case.needs).await.is_none();
        }
        assert!(is_met, "no store has what `{group}::{}` needs: {:?}", case.name, case.needs);
    }
}

fn guarantees() -> String {
    fs::read_to_string(root().join("docs/guarantees.md")).expect("docs/guarantees.md")
}

#[test]
fn every_promise_names_a_case_that_exists() {
    let page = guarantees();
    let missing = missing(&cases_named_in(&page));
    assert!(missing.is_empty(), "docs/guarantees.md names cases that do not exist: {missing:?}");
    // A promise is an item of a list, up to the next one or the end of its section.
    let promises = page.split("\n- ").skip(1).map(|item| item.split("\n\n").next().unwrap_or(item));
    for promise in promises {
        assert!(!cases_named_in(promise).is_empty(), "a promise without a case: {promise}");
    }
}

#[test]
fn every_case_shows_a_promise() {
    let page = cases_named_in(&guarantees());
    let unsaid: Vec<_> = case_names().difference(&page).cloned().collect();
    assert!(unsaid.is_empty(), "docs/guarantees.md does not say what these show: {unsaid:?}");
}

#[test]
fn every_store_stands_in_the_table_of_promises() {
    let page = guarantees();
    for fixture in FIXTURES {
        let row = format!("| {} |", fixture.scheme);
        assert!(page.lines().any(|line| line.starts_with(&row)), "`{}` has no row", fixture.scheme);
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_librarys_docs_name_cases_that_exist() {
    let mut files = Vec::new();
    sources(&root().join("crates/leaseward/src"), &mut files);
    let mut named = 0;
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        // Only in comments: paths of the same look in code are no cases.
        let comments: Vec<_> =
            text.lines().filter(|line| line.trim_start().starts_with("//")).collect();
        let cases: BTreeSet<_> = cases_named_in(&comments.join("\n"));
        named += cases.len();
        let missing = missing(&cases);
        assert!(missing.is_empty(), "{} names {missing:?}", file.display());
    }
    assert!(named >= 10, "the docs name {named} cases only: has the way to write them changed?");
}
