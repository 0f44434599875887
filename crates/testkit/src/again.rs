//! A test that starts its own executable again: with other limits, in other namespaces, or to be killed.

use std::{env, process::Output};

/// Arguments of a command that runs one test of this executable: the executable itself, and options by which it runs
/// `test` of the module `module_path` (of [`module_path!`]) and nothing else.
pub fn one_test(module_path: &str, test: &str) -> [String; 4] {
    let program = env::current_exe().unwrap().into_os_string().into_string().unwrap();
    // The test harness leaves the crate's name out.
    let name =
        module_path.split_once("::").map_or(test.to_owned(), |(_, module)| format!("{module}::{test}"));
    [program, "--exact".to_owned(), name, "--nocapture".to_owned()]
}

/// Asserts that the test ran, and passed: a harness that finds no test of that name succeeds too.
pub fn assert_passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{output:?}");
}
