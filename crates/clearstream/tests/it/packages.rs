//! Packages and installations: scripts of this tree, and what an installed program does. Also for `tests/accept`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A script or make of this tree, to its end.
pub(crate) fn done(command: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(command);
    // Not those of the make that runs the tests, nor of its compiler.
    for name in [
        "MAKEFLAGS",
        "MAKELEVEL",
        "MFLAGS",
        "PREFIX",
        "DESTDIR",
        "PROGRAM",
        "RUSTC_WORKSPACE_WRAPPER",
        "CLIPPY_ARGS",
    ] {
        command.env_remove(name);
    }
    command
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

pub(crate) fn output_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Every file below a folder, as paths from there.
pub(crate) fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found
}

/// The deb of a folder is that of a program that needs no other package.
pub(crate) fn are_described(folder: &Path) {
    let deb = files(folder).into_iter().find(|file| file.ends_with(".deb")).unwrap();
    let deb = folder.join(deb).display().to_string();
    let control = done("dpkg-deb", &["--field", &deb, "Package", "Version", "Depends", "Recommends"], &[]);
    let control = output_of(&control);
    assert!(control.contains("Package: clearstream") && control.contains("openssh-client"), "{control}");
    assert!(!control.contains("Depends"), "it needs nothing: {control}");
}

/// `make install` of the program in a folder, which measures then, and `make uninstall`.
pub(crate) fn is_installed_without_a_package(folder: &Path, variables: &[(&str, String)]) {
    let place = tempfile::tempdir().unwrap();
    let destination = format!("DESTDIR={}", place.path().display());
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let installed = done("make", &["-s", "install", &destination], &variables);
    assert!(installed.status.success(), "{}", output_of(&installed));
    let program = place.path().join("usr/local/bin/clearstream");
    assert!(fs::read(&program).unwrap() == fs::read(folder.join("clearstream")).unwrap());
    let measured = done(&program.display().to_string(), &["flow", "localhost", "-t", "300ms", "--json"], &[]);
    assert!(output_of(&measured).contains("\"goodput_bps\""), "{}", output_of(&measured));
    // The program that is not static, and what this host's MPI builds by the command that errors name.
    let beside = place.path().join("usr/local/lib/clearstream");
    let loader = done(&beside.join("clearstream-bpf").display().to_string(), &[], &[]);
    assert!(
        loader.status.code() == Some(2) && output_of(&loader).contains("usage"),
        "{}",
        output_of(&loader)
    );
    let script = place.path().join("usr/local/share/clearstream/mpi/build");
    let without = ["message", "localhost", "--transport", "mpi", "--mpirun", "mpirun.openmpi"];
    let without = output_of(&done(&program.display().to_string(), &without, &[]));
    assert!(without.contains(&script.display().to_string()), "{without}");
    let ranks = done(&script.display().to_string(), &["--all", &beside.display().to_string()], &[]);
    assert!(ranks.status.success(), "{}", output_of(&ranks));
    for file in ["libclearstream_mpi.openmpi.so", "libclearstream_mpi.mpich.so", "libclearstream_mpi.so"] {
        fs::remove_file(beside.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    let removed = done("make", &["-s", "uninstall", &destination], &[]);
    assert!(removed.status.success(), "{}", output_of(&removed));
    assert_eq!(files(place.path()), BTreeSet::new());
}
