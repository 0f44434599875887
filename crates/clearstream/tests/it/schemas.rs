//! The published shapes: generated from the types, committed, kept.
//!
//! `UPDATE_SCHEMAS=1 cargo test -p clearstream --test it schemas` writes them again
//! after a type was changed. A change must only add what readers of older
//! documents can do without (`crates/record/tests/it/schemas.rs` proves it for
//! records), or be a new version in a folder of its own.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::common::assert_published;
use clearstream::output::{
    documents,
    schemas::{Published, kept},
};
use serde_json::Value;

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
    let all: Vec<Published> = documents::schemas().into_iter().chain(kept()).collect();
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
            "{} differs from the type: run this test with UPDATE_SCHEMAS=1 and review the difference",
            path.display()
        );
    }
    let wanted: BTreeSet<String> = all.iter().map(name).collect();
    assert_eq!(wanted.len(), all.len(), "a name that two documents have");
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
fn documents_that_carry_their_name_declare_it_in_their_schema() {
    for document in documents::schemas() {
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

fn root() -> PathBuf {
    folder().join("..")
}

/// A TOML text as the document that its schema is about.
fn document(text: &str, whence: &str) -> Value {
    toml::from_str(text).unwrap_or_else(|error| panic!("{whence}: {error}"))
}

/// Checks a document of a file against the schema that it names.
fn assert_keeps(document: &Value, path: &str) {
    let checked = std::panic::catch_unwind(|| assert_published(document));
    assert!(checked.is_ok(), "{path} does not keep to its schema, see above");
}

/// Files of a folder that end so, with their texts.
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join(folder)).unwrap().flatten().map(|entry| entry.path());
    let found = entries.filter(|path| path.extension().is_some_and(|it| it == extension));
    let named = found.map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap()));
    named.collect()
}

#[test]
fn files_of_ours_keep_to_their_schemas() {
    for (folder, kind) in [("studies", "study"), ("labs", "lab"), ("fabrics", "fabric")] {
        let found = files(folder, "toml");
        assert!(!found.is_empty(), "{folder}");
        for (path, text) in found {
            let document = document(&text, &path);
            assert_eq!(document["schema"], format!("clearstream.{kind}"), "{path}");
            assert_keeps(&document, &path);
        }
    }
}

/// The TOML blocks of a page, each as a whole document. What has no head of its own goes on with
/// the block before it, or is part of a study.
fn blocks(page: &str, whence: &str) -> Vec<Value> {
    const HEAD: &str = "schema = \"clearstream.study\"\nversion = 1\nname = \"part\"\ntitle = \"A part\"\n";
    let mut whole = document(HEAD, "the head of a study");
    let texts = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut found = Vec::new();
    for text in texts {
        let block = document(text, whence);
        if block.get("schema").is_some() {
            whole = block;
        } else {
            whole.as_object_mut().unwrap().extend(block.as_object().unwrap().clone());
        }
        found.push(whole.clone());
    }
    found
}

#[test]
fn what_guides_show_keeps_to_its_schema() {
    let mut shown = BTreeSet::new();
    for (path, page) in files("docs/guide", "md") {
        for document in blocks(&page, &path) {
            assert_keeps(&document, &path);
            shown.insert(document["schema"].as_str().unwrap().to_owned());
        }
    }
    for kind in ["study", "lab", "fabric", "hosts", "config"] {
        assert!(shown.contains(&format!("clearstream.{kind}")), "no guide shows a {kind}: {shown:?}");
    }
}
