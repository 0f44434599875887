//! The lab `native-client`: a clustered file system behind gateways, seen by the kernel and by foreign programs.

use crate::common;
use std::{fs, path::Path, process::Command, time::Duration};

use crate::common::{Lab, alive, clearstream, eventually, finish, run, signal};
use clearstream_testkit::lab::two_hosts;
use serde_json::Value;

/// A built-in lab under a name of this test's own.
fn lab(folder: &Path, text: &str, name: &str) -> Lab {
    let path = folder.join(format!("{name}.toml"));
    let own = text.lines().find(|line| line.starts_with("name = ")).unwrap();
    fs::write(&path, text.replacen(own, &format!("name = \"{name}\""), 1)).unwrap();
    Lab::up(&path, name)
}

/// A client holds the lock of a file; whether another one is refused it.
fn assert_locks_between_clients(lab: &Lab, file: &str) {
    let held = format!("flock {file} sleep 5");
    let mut holder =
        common::clearstream(&["lab", "exec", &lab.0, "compute-1", "--", "sh", "-c", &held]).spawn().unwrap();
    eventually(Duration::from_secs(5), "another client is refused the lock", || {
        let attempt = format!("flock -n {file} true || echo refused");
        inside(lab, "compute-2", &attempt).contains("refused")
    });
    holder.kill().unwrap();
    holder.wait().unwrap();
}

/// What a program prints on a host of the lab.
fn inside(lab: &Lab, host: &str, command: &str) -> String {
    run(&["lab", "exec", &lab.0, host, "--", "sh", "-c", command]).ok().to_owned()
}

fn mounts(lab: &Lab) -> String {
    format!("/run/clearstream/labs/{}/mounts", lab.0)
}

/// Processes that were started in the lab.
fn processes(lab: &str) -> Vec<u32> {
    let mark = format!("CLEARSTREAM_LAB={lab}-");
    let ids = fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_marked = |id: &u32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|item| item.starts_with(mark.as_bytes()))
    };
    ids.filter(is_marked).collect()
}

/// Semantics of both mounts with two clients of the lab, by a study, and its report.
fn semantics(lab: &Lab, folder: &Path) -> ([Value; 2], String) {
    let study = folder.join("semantics.toml");
    let text = r#"
        schema = "clearstream.study"
        version = 1
        name = "semantics"
        title = "Semantics"
        [[experiment]]
        name = "semantics"
        title = "Semantics"
        workload = "storage-semantics"
        [experiment.storage-semantics]
        hosts = "compute-1,compute-2"
        wait = "300ms"
        [experiment.factors]
        directory = ["native", "projected"]
    "#;
    fs::write(&study, text).unwrap();
    let (study, runs, report) = (study.to_str().unwrap(), folder.join("runs"), folder.join("report.html"));
    let to = ["--runs", runs.to_str().unwrap(), "--report", report.to_str().unwrap()];
    let study = clearstream(&[&["study", "run", study, "--lab", &lab.0][..], &to].concat()).spawn().unwrap();
    finish(study, Duration::from_secs(240)).ok();
    let record = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let trials = fs::read_to_string(record.join("trials.jsonl")).unwrap();
    let trials: Vec<Value> = trials.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |mount: &str| {
        let trial = trials.iter().find(|trial| trial["factors"]["directory"] == mount).unwrap();
        trial["outcome"]["measured"]["detail"]["document"].clone()
    };
    (["native", "projected"].map(of), fs::read_to_string(report).unwrap())
}

/// Of two clients, or of one where the check has no other.
fn verdict<'a>(document: &'a Value, check: &str) -> &'a str {
    let all = document["checks"].as_array().unwrap();
    let of = |clients: &str| all.iter().find(|row| row["check"] == check && row["clients"] == clients);
    let row = of("two").or_else(|| of("one"));
    row.unwrap_or_else(|| panic!("no {check}"))["verdict"].as_str().unwrap()
}

#[test]
fn root_a_native_mount_goes_through_its_gateway_and_keeps_locks_and_a_projection_loses_them() {
    let folder = tempfile::tempdir().unwrap();
    let lab = lab(folder.path(), include_str!("../../../../labs/native-client.toml"), "native-test");
    let mounts = mounts(&lab);
    // Both are mounted, and nothing of it outside of the lab.
    let types = inside(&lab, "compute-1", &format!("stat -f -c %T {mounts}/native {mounts}/projected"));
    assert_eq!(types.lines().collect::<Vec<_>>(), ["fuseblk", "fuseblk"], "{types}");
    assert!(!fs::read_to_string("/proc/self/mounts").unwrap().contains(&mounts));
    // 8 MiB that one client writes cross its own gateway, and another client reads them through another one.
    let forwarded = |gateway: &str| -> u64 {
        let file = "cat /sys/class/net/storage0/statistics/tx_bytes";
        inside(&lab, gateway, file).trim().parse().unwrap()
    };
    let before = ["gw1", "gw2"].map(forwarded);
    inside(&lab, "compute-1", &format!("head -c 8388608 /dev/urandom > {mounts}/native/file; sync"));
    let sums = ["native", "projected"]
        .map(|mount| inside(&lab, "compute-2", &format!("sha256sum < {mounts}/{mount}/file")));
    assert_eq!(sums[0], sums[1]);
    assert_eq!(sums[0], inside(&lab, "compute-1", &format!("sha256sum < {mounts}/native/file")));
    let after = ["gw1", "gw2"].map(forwarded);
    assert!(after[0] - before[0] > 8 << 20, "{before:?} {after:?}");
    assert!(after[1] - before[1] < 8 << 20, "requests of another client: {before:?} {after:?}");
    assert_locks_between_clients(&lab, &format!("{mounts}/native/file"));
    let ([native, projected], report) = semantics(&lab, folder.path());
    for check in ["flock-conflict", "fcntl-conflict", "ofd-conflict"] {
        assert_eq!(verdict(&native, check), "yes", "{check}");
        assert_eq!(verdict(&projected, check), "no", "{check}");
    }
    assert_eq!(verdict(&native, "exclusive"), "yes");
    // MooseFS reports the thread that locked; the processes of the checks have one, as most programs.
    let holder = native["checks"].as_array().unwrap().iter().find(|row| row["check"] == "fcntl-holder");
    assert_eq!(holder.unwrap()["verdict"], "yes", "{native:#}");
    // It waits in a cycle of locks, which POSIX.1 lets it, and keeps times of whole seconds.
    assert_eq!(verdict(&native, "fcntl-deadlock"), "left-open");
    // MooseFS keeps the attributes of a directory that a path leads through for a second (mfsmount(8), mfsattrcacheto).
    assert_ne!(verdict(&native, "timestamps-names-mkdir"), "yes");
    assert_eq!(verdict(&native, "directory-unlinked"), "yes");
    assert_eq!(verdict(&projected, "directory-unlinked"), "no");
    assert!(
        native["mount"]["file_system"].as_str().unwrap_or_default().contains("mfs#"),
        "{}",
        native["mount"]
    );
    assert!(report.contains("projected: no: granted to both (flock(2)"), "the report has what differs");
    // The same by the verb, as far as it comes.
    let peer = ["--client", "compute-1", "--peer", "compute-2:native", "--timeout", "1s", "--json"];
    let early = run(&[&["storage", "semantics", "native", "--lab", &lab.0][..], &peer].concat());
    assert_eq!(early.code(), 8, "{}", early.stderr);
    let early: Value = serde_json::from_str(&early.stdout).unwrap();
    assert_eq!((&early["peer"]["host"], &early["complete"]), (&"compute-2".into(), &false.into()), "{early}");
    // The folder that would be the mount point is not taken for the mount.
    run(&["storage", "stream", "native", "--lab", &lab.0, "--client", "storage-1"])
        .refused(9, &["storage-1 of the lab", "has no mount \"native\"", "compute-1, compute-2"]);
    // Servers that stand still: the command gives up at its time limit, and its files go when they are back.
    let is_server = |id: &u32| {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        ["mfsmaster", "mfschunkserver"].contains(&name.trim())
    };
    let servers: Vec<u32> = processes(&lab.0).into_iter().filter(is_server).collect();
    assert!(servers.len() >= 3, "{servers:?}");
    servers.iter().for_each(|id| signal(*id, "STOP"));
    let stream = ["storage", "stream", "native", "--lab", &lab.0, "--client", "compute-1"];
    let ended = run(&[&stream[..], &["-b", "64MiB", "-e", "--timeout", "2s"]].concat());
    servers.iter().for_each(|id| signal(*id, "CONT"));
    ended.refused(6, &["native does not respond", "storage-"]);
    // A relative DIR is a mount of the lab, and nothing stays.
    eventually(Duration::from_secs(30), "only the file of this test is there", || {
        inside(&lab, "compute-1", &format!("ls -A {mounts}/native")).trim() == "file"
    });
    // SIGKILL of the keeper ends everything, and the next start clears the folder away.
    let state = fs::read_to_string(Path::new(&mounts).with_file_name("state.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    let keeper = u32::try_from(state["keeper_pid"].as_u64().unwrap()).unwrap();
    assert!(processes(&lab.0).len() > 10);
    signal(keeper, "KILL");
    eventually(Duration::from_secs(5), "the keeper is gone", || !alive(keeper));
    let other = Lab::of_two_hosts(folder.path(), "native-test-other");
    eventually(Duration::from_secs(5), "no process is left", || processes(&lab.0).is_empty());
    assert!(!Path::new(&mounts).exists());
    drop(other);
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that is left out is reported")]
fn root_glusterfs_is_another_choice_of_the_file_system() {
    let path = std::env::var_os("PATH").unwrap();
    if !std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .any(|folder| folder.join("glusterd").exists())
    {
        eprintln!("SKIPPED: there is no glusterd here; apt-get install glusterfs-server glusterfs-client");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = include_str!("../../../../labs/native-client-gluster.toml");
    let lab = lab(folder.path(), text, "gluster-test");
    let mounts = mounts(&lab);
    let types = inside(&lab, "compute-1", &format!("findmnt -n -o FSTYPE {mounts}/native"));
    assert_eq!(types.trim(), "fuse.glusterfs");
    // What one client writes is on both servers, and another client reads it, natively and projected.
    inside(&lab, "compute-1", &format!("head -c 1048576 /dev/urandom > {mounts}/native/file; sync"));
    let sum = |host: &str, file: &str| inside(&lab, host, &format!("sha256sum < {file}"));
    let written = sum("compute-1", &format!("{mounts}/native/file"));
    for mount in ["native", "projected"] {
        assert_eq!(sum("compute-2", &format!("{mounts}/{mount}/file")), written, "{mount}");
    }
    let shared = format!("/run/clearstream/labs/{}/shared", lab.0);
    for (host, brick) in [("storage-1", "brick-1"), ("storage-2", "brick-2")] {
        assert_eq!(sum(host, &format!("{shared}/{brick}/file")), written, "{host}");
    }
    assert_locks_between_clients(&lab, &format!("{mounts}/native/file"));
    let name = lab.0.clone();
    drop(lab);
    assert!(processes(&name).is_empty() && !Path::new(&mounts).exists());
}

#[test]
fn root_a_service_that_cannot_run_is_named_and_nothing_stays() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, service: &str| {
        let host = format!("[[host.service]]\nname = \"server\"\n{service}\n\n[[host]]\nname = \"there\"");
        let text = two_hosts(name, "").replacen("[[host]]\nname = \"there\"", &host, 1);
        assert!(text.contains("host.service"), "{text}");
        let path = folder.path().join(format!("{name}.toml"));
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let refused = |name: &str, service: &str, code: i32, expected: &[&str]| {
        run(&["lab", "up", &file(name, service)]).refused(code, expected);
        assert!(!run(&["lab", "list"]).ok().contains(name));
        assert!(processes(name).is_empty());
    };
    let missing = "command = [\"no-such-program\"]\npackage = \"such-package\"";
    refused(
        "service-none",
        missing,
        5,
        &["here", "server", "no-such-program", "apt-get install such-package"],
    );
    let fails =
        "command = [\"sh\", \"-c\", \"sleep 60 & echo the disk is full >&2; exit 3\"]\nready-port = 9";
    refused("service-ends", fails, 5, &["server", "exit status: 3", "the disk is full"]);
    refused("service-wrong", "command = []", 2, &["host[0].service[0].command", "write a program"]);
    refused("service-file", "command = [\"true\"]\nfiles = { \"../x\" = \"\" }", 2, &["../x"]);
    // A service that works: its placeholders are paths, and it ends with the lab.
    let works = "command = [\"sh\", \"-c\", \"cp {folder}/greeting {shared}/copy && exec sleep 600\"]\n\
                 ready = [\"test\", \"-s\", \"{shared}/copy\"]\nfiles = { greeting = \"hello from {folder}\" }";
    let lab = Lab::up(Path::new(&file("service-works", works)), "service-works");
    let root = "/run/clearstream/labs/service-works";
    let copy = fs::read_to_string(format!("{root}/shared/copy")).unwrap();
    assert_eq!(copy, format!("hello from {root}/services/here/server"));
    let found = Command::new("nsenter")
        .args(["-u", "-t", &processes(&lab.0)[0].to_string(), "hostname"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), "here");
    drop(lab);
    assert!(processes("service-works").is_empty() && !Path::new(root).exists());
}
