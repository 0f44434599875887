//! Every promise of docs/specification.md has its test.

use std::{fs, path::Path};

#[test]
fn every_promise_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/specification.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 15, "the table was not found");
    for row in rows {
        let quoted: Vec<&str> = row.rsplit(" | ").next().unwrap().split('`').skip(1).step_by(2).collect();
        let [file, test] = quoted[..] else { panic!("write `file` `test` in the last column: {row}") };
        let text =
            fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}: {row}"));
        assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test}: {row}");
    }
}
