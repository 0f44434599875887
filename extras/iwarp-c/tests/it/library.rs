//! The library as used by C programs: its symbols, and an example that is
//! compiled, linked statically and dynamically, and run.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the library that `cargo build` created beside this test; a test does
/// not build a library that it is not linked with.
fn library(name: &str) -> PathBuf {
    let beside = std::env::current_exe().unwrap().parent().unwrap().join(name);
    assert!(beside.exists(), "no {}: cargo build -p clearstream-iwarp-c makes it", beside.display());
    beside
}

/// Returns the functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(here().join("include/clearstream_iwarp.h")).unwrap();
    let mut inside = false;
    let code = header.lines().filter(|line| {
        inside = (inside || line.trim_start().starts_with("/*")) && !line.contains("*/");
        !inside && !line.contains("*/")
    });
    code.filter_map(|line| {
        let before = line.split_once('(')?.0;
        let name = before.rsplit([' ', '*']).next()?;
        name.starts_with("iwarp_").then(|| name.to_owned())
    })
    .collect()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_declared_function_is_exported_with_its_version_and_nothing_else_is() {
    let shared = library("libclearstream_iwarp.so");
    let listed =
        run(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(&shared));
    let mut exported = BTreeSet::new();
    for line in listed.lines() {
        let mut fields = line.split_whitespace().skip(1);
        let (kind, symbol) = (fields.next().unwrap(), fields.next().unwrap());
        if kind == "A" {
            continue; // the version's own name
        }
        let (name, version) = symbol.split_once("@@").unwrap_or_else(|| panic!("{symbol} has no version"));
        assert_eq!(version, "CLEARSTREAM_IWARP_1.0", "{name}");
        exported.insert(name.to_owned());
    }
    let declared = declared();
    assert!(declared.len() > 50, "{declared:?}");
    assert_eq!(exported, declared);

    let dynamic = run(Command::new("readelf").args(["-d"]).arg(&shared));
    assert!(dynamic.contains("[libclearstream_iwarp.so.1]"), "{dynamic}");
    let versions = run(Command::new("readelf").arg("-V").arg(&shared));
    assert!(versions.contains("Name: CLEARSTREAM_IWARP_1.0"), "{versions}");
}

/// Compiles a program with all warnings as errors.
fn compiled(source: &str, folder: &Path, link: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let mut command = Command::new("cc");
    command.args([
        "-std=c99",
        "-O1",
        "-pedantic-errors",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        "-o",
    ]);
    command.arg(&program).arg("-I").arg(here().join("include")).arg(here().join(source));
    run(command.args(link));
    program
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Exited before unless the test fails.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn started(program: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new(program);
    Running(command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

fn ended(mut running: Running, mut output: impl BufRead) -> String {
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    let mut errors = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(running.0.wait().unwrap().success(), "{text}{errors}");
    assert_eq!(errors, "");
    text
}

fn plays(program: &Path) {
    let mut server = started(program, &["listen", "127.0.0.1:0", "300"]);
    let mut served = BufReader::new(server.0.stdout.take().unwrap());
    let mut address = String::new();
    served.read_line(&mut address).unwrap();
    let mut client = started(program, &["connect", address.trim(), "300"]);
    let played = BufReader::new(client.0.stdout.take().unwrap());
    let played = ended(client, played);
    assert!(played.starts_with("300 rounds, "), "{played}");
    assert_eq!(ended(server, served), "served 300 rounds\n");
}

#[test]
fn the_example_plays_over_the_shared_library() {
    let folder = tempfile::tempdir().unwrap();
    // The loader finds the library by its soname.
    let shared = library("libclearstream_iwarp.so");
    std::os::unix::fs::symlink(&shared, folder.path().join("libclearstream_iwarp.so.1")).unwrap();
    std::os::unix::fs::symlink(&shared, folder.path().join("libclearstream_iwarp.so")).unwrap();
    let there = folder.path().to_str().unwrap();
    let link = ["-L", there, "-lclearstream_iwarp", &format!("-Wl,-rpath,{there}")];
    let program = compiled("examples/pingpong.c", folder.path(), &link);
    let needed = run(Command::new("nm").args(["-D", "--with-symbol-versions"]).arg(&program));
    assert!(needed.contains("iwarp_connect@CLEARSTREAM_IWARP_1.0"), "{needed}");
    plays(&program);
}

#[test]
fn the_example_plays_over_the_static_library() {
    let folder = tempfile::tempdir().unwrap();
    let archive = library("libclearstream_iwarp.a");
    let link = [archive.to_str().unwrap(), "-lpthread", "-ldl", "-lm"];
    plays(&compiled("examples/pingpong.c", folder.path(), &link));
}

/// Compiles a test program with the static library, runs it and returns its
/// output.
fn output_of(source: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let archive = library("libclearstream_iwarp.a");
    let link = [archive.to_str().unwrap(), "-lpthread", "-ldl", "-lm"];
    run(&mut Command::new(compiled(source, folder.path(), &link)))
}

#[test]
fn every_verb_works_from_c_and_errors_are_reported() {
    assert_eq!(output_of("tests/verbs.c"), "every verb\n");
}

#[test]
fn lists_are_posted_in_one_pass_up_to_a_rejected_request() {
    assert_eq!(output_of("tests/lists.c"), "lists\n");
}
