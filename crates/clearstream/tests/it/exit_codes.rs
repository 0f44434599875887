//! What happened decides the exit code, whichever verb it happened in (docs/guide/exit-codes.md).

use std::process::Command;

use crate::common::{program, run};

/// Names of runs, studies, experiments, labs, interfaces, congestion controls and programs.
const NO_SUCH_NAME: [&str; 17] = [
    "report /nonexistent",
    "runs list /nonexistent",
    "runs show /nonexistent",
    "runs trend /nonexistent",
    "study check /nonexistent",
    "study compare /nonexistent /nonexistent",
    "diagnose --from /nonexistent",
    "study run nonesuch --dry-run",
    "study run clearstream-40ge localhost --dry-run --experiment nonesuch",
    "lab up nonesuch",
    "lab exec nonesuch a -- true",
    "lab down nonesuch",
    "flow --lab nonesuch",
    "flow localhost --bind-interface nonesuch -t 1s",
    "place rank nonesuch",
    "cc load nonesuch",
    "rdma run /nonexistent",
];

#[test]
fn a_name_that_does_not_exist_has_one_code() {
    for line in NO_SUCH_NAME {
        let ended = run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(ended.code(), 9, "{line}: {}{}", ended.stdout, ended.stderr);
    }
}

/// A folder without a run is another answer than no folder, with the same code.
#[test]
fn a_folder_without_a_run_has_no_such_name_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    for verb in ["report", "runs show", "runs trend", "study check"] {
        let line: Vec<&str> = verb.split(' ').chain([path]).collect();
        let ended = run(&line);
        assert_eq!(ended.code(), 9, "{verb}: {}{}", ended.stdout, ended.stderr);
    }
}

/// Ports below 1024 need CAP_NET_BIND_SERVICE (capabilities(7)).
#[test]
fn root_a_port_that_is_not_permitted_has_one_code() {
    let lines = [
        "serve --listen 127.0.0.1:80",
        "rdma serve --listen 127.0.0.1 --port 80",
        "live localhost --metrics 127.0.0.1:80",
    ];
    for line in lines {
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "--",
            "sh",
            "-c",
            "ip link set lo up; exec setpriv --reuid 65534 --clear-groups \"$@\"",
            "sh",
        ]);
        let ended = command.arg(program()).args(line.split(' ')).env("HOME", "/tmp").output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(5), "{line}: {errors}");
    }
}
