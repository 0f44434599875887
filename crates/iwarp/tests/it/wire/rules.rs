//! Checks that the list of rules refers to existing files and tests.

use std::fs;
use std::path::Path;

#[test]
fn every_rule_names_files_and_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/iwarp-rules.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ") && line.contains('`')).collect();
    assert!(rows.len() >= 30, "the tables were not found");
    for row in rows {
        let columns: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [_, _, files, tests] = columns[..] else { panic!("four columns: {row}") };
        for file in quoted(files) {
            assert!(root.join("src").join(file).is_file(), "{file}: {row}");
        }
        let mut text = String::new();
        for name in quoted(tests) {
            if name.ends_with(".rs") {
                let file = root.join("tests/it").join(name);
                text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}: {row}"));
            } else {
                assert!(text.contains(&format!("fn {name}(")), "{name}: {row}");
            }
        }
    }
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}
