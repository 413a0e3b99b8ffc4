//! The published crates list their features and contain their licences.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The crates that are published, by their folders.
fn published() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).expect("the crates");
    let folders = crates.map(|entry| entry.expect("an entry").path());
    folders.filter(|folder| !read(&folder.join("Cargo.toml")).contains("publish = false")).collect()
}

#[test]
fn every_package_has_both_licences() {
    let crates = published();
    assert!(crates.iter().any(|folder| folder.ends_with("leaseward")), "{crates:?}");
    for folder in crates {
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let (top, own) = (read(&root().join(licence)), read(&folder.join(licence)));
            assert!(top == own, "{} has another {licence}", folder.display());
        }
        let manifest = read(&folder.join("Cargo.toml"));
        let leaves_out = ["\ninclude", "\nexclude"].iter().any(|key| manifest.contains(key));
        assert!(!leaves_out, "do they still go along with {}?", folder.display());
    }
}

#[test]
fn the_librarys_page_names_every_feature() {
    let folder = root().join("crates/leaseward");
    let (manifest, page) = (read(&folder.join("Cargo.toml")), read(&folder.join("README.md")));
    let section = manifest.split("[features]\n").nth(1).expect("features");
    let lines = section.lines().take_while(|line| !line.is_empty());
    let features: BTreeSet<_> = lines
        .filter_map(|line| Some(line.split_once(" = ")?.0))
        .filter(|one| *one != "default")
        .collect();
    let table = page.split("# Features\n").nth(1).expect("a section");
    let rows = table.lines().take_while(|line| !line.starts_with('#'));
    let named: BTreeSet<_> =
        rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(named, features);
    assert!(features.len() > 5, "has the way to write them changed? {features:?}");
}
