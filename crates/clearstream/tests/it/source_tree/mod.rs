//! Rules of the source tree: every test file is a module of a test, and files named by the
//! guides exist.

mod rust;
mod surface;

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Rust files of a folder and of those below it.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Cargo finds the files of `tests/` by itself, and not those of folders in it.
#[test]
fn every_test_file_in_a_folder_is_a_module() {
    let mut count = 0;
    for member in fs::read_dir(root().join("crates")).unwrap().flatten() {
        let tests = member.path().join("tests");
        let mut all = Vec::new();
        sources(&tests, &mut all);
        let texts: Vec<String> = all.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        for path in all.iter().filter(|path| path.parent() != Some(tests.as_path())) {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if stem == "main" {
                continue;
            }
            let name = if stem == "mod" {
                path.parent().unwrap().file_name().unwrap().to_str().unwrap()
            } else {
                stem
            };
            let (module, included) = (format!("mod {name};"), format!("{stem}.rs\"]"));
            let named = texts.iter().any(|text| text.contains(&module) || text.contains(&included));
            assert!(named, "{}: no file of these tests has `{module}`", path.display());
            count += 1;
        }
    }
    assert!(count > 30, "only {count} files were found");
}

/// Cargo accepts `name.rs` beside `name/` too; this tree has `name/mod.rs` only, and tests
/// of a module are in its `tests.rs`.
#[test]
fn modules_with_a_folder_are_mod_rs() {
    let mut all = Vec::new();
    for folder in ["bench", "crates", "extras"] {
        sources(&root().join(folder), &mut all);
    }
    let source = |path: &Path| path.components().any(|part| part.as_os_str() == "src");
    let beside = |path: &&PathBuf| source(path) && path.with_extension("").is_dir();
    let found: Vec<&PathBuf> = all.iter().filter(beside).collect();
    assert!(found.is_empty(), "{found:?}: move them to mod.rs of their folder");
    let apart: Vec<&PathBuf> = all.iter().filter(|path| is_tests_of_a_module_apart(path)).collect();
    assert!(apart.is_empty(), "{apart:?}: move them to tests.rs in the folder of their module");
    assert!(all.len() > 500, "only {} files were found", all.len());
}

/// `src/name_tests.rs` beside `src/name.rs`.
fn is_tests_of_a_module_apart(path: &Path) -> bool {
    let stem = path.file_stem().unwrap().to_string_lossy();
    stem.strip_suffix("_tests").is_some_and(|name| path.with_file_name(format!("{name}.rs")).exists())
}

/// A path of the tree between backticks, perhaps with `::` of an item behind it.
fn paths(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2).filter(|word| {
        let begins = ["crates/", "docs/", "studies/", "labs/", "schemas/", "bench/", "extras/", "fixtures/"];
        begins.iter().any(|begin| word.starts_with(begin))
            && !word.contains([' ', '*', '<', '{', '\n'])
            && !word.contains("NAME")
            && !word.contains("...")
    })
}

#[test]
fn files_that_the_pages_for_contributors_name_exist() {
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        for path in paths(&text) {
            let file = path.split("::").next().unwrap().split('#').next().unwrap();
            assert!(root().join(file).exists(), "{} names {path}", page.display());
            count += 1;
        }
    }
    assert!(count > 100, "only {count} paths were found");
}

/// Pages for contributors, and those of the design, relative to the root.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["docs/extending.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"]
        .map(PathBuf::from)
        .to_vec();
    pages.extend(design());
    pages
}

fn design() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("docs/design")).unwrap().flatten();
    files.map(|file| Path::new("docs/design").join(file.file_name())).collect()
}

/// Pages of the design name files of a folder without it (`loss.rs`), behind its name.
#[test]
fn files_that_the_design_names_without_a_folder_exist() {
    let mut all = Vec::new();
    ["crates", "extras"].iter().for_each(|part| sources(&root().join(part), &mut all));
    let mut count = 0;
    for page in design() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let place = text.split_once("## Where it lives").map_or("", |(_, place)| place);
        for line in place.split("\n- ") {
            let is_path = |word: &str| word.starts_with("crates/") || word.starts_with("extras/");
            let named = line.split('`').filter(|word| is_path(word));
            let folders: Vec<PathBuf> = named
                .map(|path| path.split('/').take(2).fold(root(), |folder, part| folder.join(part)))
                .collect();
            let names = line
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|word| word.ends_with(".rs") && !is_path(word) && !word.contains(' '));
            for name in names {
                let is_it = |path: &&PathBuf| {
                    path.ends_with(name) && folders.iter().any(|folder| path.starts_with(folder))
                };
                assert!(all.iter().any(|path| is_it(&path)), "{} names {name}", page.display());
                count += 1;
            }
        }
    }
    assert!(count > 40, "only {count} files were found");
}

/// A crate whose manifest excludes it from documentation tests has none: the language of each block of code in its
/// documentation is another one.
#[test]
fn documentation_tests_are_run() {
    let mut count = 0;
    for member in fs::read_dir(root().join("crates")).unwrap().flatten().map(|member| member.path()) {
        let manifest: toml::Table = fs::read_to_string(member.join("Cargo.toml")).unwrap().parse().unwrap();
        let is_run = manifest.get("lib").and_then(|lib| lib.get("doctest")?.as_bool()).unwrap_or(true);
        let mut files = Vec::new();
        sources(&member.join("src"), &mut files);
        for path in files {
            let text = fs::read_to_string(&path).unwrap();
            let fences = text.lines().filter_map(|line| {
                let line = line.trim_start();
                line.strip_prefix("///").or(line.strip_prefix("//!"))?.trim_start().strip_prefix("```")
            });
            // Every second one ends a block.
            for language in fences.step_by(2) {
                count += 1;
                let is_code = language.is_empty() || language.starts_with("rust") || language.contains(',');
                assert!(is_run || !is_code, "{}: remove `doctest = false`", path.display());
            }
        }
    }
    assert!(count >= 5, "only {count} blocks were found");
}
