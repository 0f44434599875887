//! The published shapes: generated from the types, committed, kept.
//!
//! `UPDATE_SCHEMAS=1 cargo test -p clearstream --test schemas` writes them anew
//! after a type was changed. A change must only add what readers of older
//! documents can do without (`crates/record/tests/schemas.rs` proves it for
//! records), or be a new version in a folder of its own.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clearstream::output::documents::{Published, kept, printed};

/// Older versions that stay for readers of old documents.
const OLDER: [&str; 2] = ["v1/run", "v1/trial"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas")
}

/// `v1/flow` of `clearstream.flow` in version 1.
fn name(document: &Published) -> String {
    let short = document.schema.strip_prefix("clearstream.").expect("a name of ours");
    format!("v{}/{short}", document.version)
}

#[test]
fn committed_schemas_are_those_of_the_types() {
    let all: Vec<Published> = printed().into_iter().chain(kept()).collect();
    for document in &all {
        // Sorted, whatever order the build of the JSON library keeps.
        let mut schema = (document.json_schema)();
        schema.sort_all_objects();
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let path = folder().join(format!("{}.schema.json", name(document)));
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "{} differs from the type: run this test with UPDATE_SCHEMAS=1 and look at the difference",
            path.display()
        );
    }
    let wanted: BTreeSet<String> = all.iter().map(name).chain(OLDER.map(str::to_owned)).collect();
    assert_eq!(wanted.len(), all.len() + OLDER.len(), "a name that two documents have");
    assert_eq!(committed_names(), wanted, "a schema without a type");
}

fn committed_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for version in fs::read_dir(folder()).unwrap().flatten() {
        for schema in fs::read_dir(version.path()).unwrap().flatten() {
            let file = schema.file_name().into_string().unwrap();
            let short = file.strip_suffix(".schema.json").expect("schemas only").to_owned();
            names.insert(format!("{}/{short}", version.file_name().into_string().unwrap()));
        }
    }
    names
}

/// A version in a document and the one in the list are the same.
#[test]
fn documents_that_carry_their_name_say_so_in_their_schema() {
    for document in printed() {
        let schema = (document.json_schema)();
        if schema["type"] == "array" {
            continue;
        }
        for key in ["schema", "version"] {
            let required = schema["required"].as_array().unwrap();
            assert!(required.iter().any(|name| name == key), "{} has no {key}", document.schema);
        }
    }
}
