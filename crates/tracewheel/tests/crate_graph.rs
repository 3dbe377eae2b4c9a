//! The crate graph is the table in `docs/architecture.md`, read from that page itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The allowed edges, read from the rooms table: crate name to the names it may depend on.
fn allowed(page: &str) -> Graph {
    let rows: Vec<Vec<String>> = page
        .lines()
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .filter(|row: &Vec<String>| row.len() == 4 && row[1].starts_with("`tracewheel"))
        .collect();
    let floor_of: BTreeMap<String, u32> = rows
        .iter()
        .map(|row| (row[1].trim_matches('`').to_owned(), row[0].parse().expect("a floor number")))
        .collect();
    let by_floor = |highest: u32| -> BTreeSet<String> {
        floor_of.iter().filter(|(_, floor)| **floor <= highest).map(|(name, _)| name.clone()).collect()
    };
    rows.iter()
        .map(|row| {
            let name = row[1].trim_matches('`').to_owned();
            let set = match row[3].as_str() {
                "–" => BTreeSet::new(),
                "all" => by_floor(4),
                "floors 0 to 2 but ingest and mock" => by_floor(2)
                    .into_iter()
                    .filter(|dep| !dep.ends_with("-ingest") && !dep.ends_with("-mock"))
                    .collect(),
                list => list.split(',').map(|dep| format!("tracewheel-{}", dep.trim())).collect(),
            };
            (name, set)
        })
        .collect()
}

/// The normal and build dependencies between the workspace's own packages.
fn actual(manifest: &Path) -> Graph {
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec().expect("cargo metadata");
    let names: BTreeSet<String> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    metadata
        .packages
        .iter()
        .filter(|package| package.name.as_str() != "benches")
        .map(|package| {
            let deps = package
                .dependencies
                .iter()
                .filter(|dep| dep.kind != DependencyKind::Development && names.contains(&dep.name))
                .map(|dep| dep.name.clone())
                .collect();
            (package.name.to_string(), deps)
        })
        .collect()
}

#[test]
fn every_crate_depends_only_on_what_the_architecture_page_allows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/architecture.md")).expect("the architecture page");
    let allowed = allowed(&page);
    let actual = actual(&root.join("Cargo.toml"));
    assert_eq!(
        allowed.keys().collect::<Vec<_>>(),
        actual.keys().collect::<Vec<_>>(),
        "the page's rooms and the workspace's crates differ"
    );
    for (name, deps) in &actual {
        let extra: Vec<_> = deps.difference(&allowed[name]).collect();
        assert!(extra.is_empty(), "{name} depends on {extra:?}, which the architecture page does not allow");
    }
}

#[test]
fn package_names_are_their_folder_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in std::fs::read_dir(root).expect("the crates folder") {
        let folder = entry.expect("an entry").path();
        let text = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(text.contains(&format!("name = \"{name}\"\n")), "{name} holds a package of another name");
    }
}
