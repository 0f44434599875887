//! `clearstream storage semantics` on file systems whose properties are documented, against other programs.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::common::{clearstream, finish, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A mount of the test, removed at its end.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    pub(crate) fn new(folder: &Path, name: &str, command: &mut Command) -> Self {
        let point = folder.join(name);
        fs::create_dir(&point).unwrap();
        let output = command.arg(&point).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        Self(point)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(&self.0).status();
    }
}

fn mount(options: &[&str]) -> Command {
    let mut command = Command::new("mount");
    command.args(options);
    command
}

/// Of all checks, with waits for changes that never come, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(180);

/// A folder on the disk that the sources are on.
pub(crate) fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn semantics(arguments: &[&str]) -> Value {
    let arguments = [&["storage", "semantics", "--json"], arguments].concat();
    finish(clearstream(&arguments).spawn().unwrap(), LIMIT).json()
}

/// Result of a check with these clients.
pub(crate) fn row<'a>(document: &'a Value, check: &str, clients: &str) -> &'a Value {
    let all = document["checks"].as_array().unwrap();
    let row = all.iter().find(|row| row["check"] == check && row["clients"] == clients);
    row.unwrap_or_else(|| panic!("no {check} {clients}"))
}

/// Verdict of a check with these clients.
pub(crate) fn verdict(document: &Value, check: &str, clients: &str) -> String {
    row(document, check, clients)["verdict"].as_str().unwrap().to_owned()
}

/// Checks without `yes`, as `check clients verdict`.
fn deviations(document: &Value) -> Vec<String> {
    let all = document["checks"].as_array().unwrap().iter();
    let deviating = all.filter(|row| row["verdict"] != "yes");
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    deviating.map(|row| ["check", "clients", "verdict"].map(|key| text(row, key)).join(" ")).collect()
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap_or_else(|error| panic!("{program}: {error}")).success()
}

/// Features that other programs can use in the folder are those that the checks find.
fn features_are_those_of_other_programs(folder: &str, document: &Value) {
    let file = format!("{folder}/features");
    fs::write(&file, vec![0; 8192]).unwrap();
    let of = format!("of={file}");
    let has = [
        ("xattr-user", succeeds("setfattr", &["-n", "user.test", "-v", "1", &file])),
        (
            "direct-io",
            succeeds("dd", &["if=/dev/zero", &of, "bs=4096", "count=1", "oflag=direct", "conv=notrunc"]),
        ),
        (
            "fallocate",
            succeeds("fallocate", &["--posix", "-l", "65536", &file])
                && succeeds("fallocate", &["-l", "65536", &file]),
        ),
        ("punch-hole", succeeds("fallocate", &["-p", "-o", "0", "-l", "4096", &file])),
        ("hard-link", succeeds("ln", &[&file, &format!("{file}-2")])),
        ("birth-time", birth_time(&file)),
    ];
    for (check, is_there) in has {
        assert_eq!(verdict(document, check, "one") == "yes", is_there, "{folder}: {check}: {document:#}");
    }
    fs::remove_file(&file).unwrap();
}

fn birth_time(file: &str) -> bool {
    let output = Command::new("stat").args(["-c", "%W", file]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim() != "0"
}

/// ext4 (or whatever the disk has) and tmpfs are local: all but the features that a file system may lack is as POSIX and Linux
/// have it. A wait may end late on a loaded machine, and what takes root does not run without.
fn has_all_local_semantics(document: &Value) {
    const FEATURES: [&str; 18] = [
        "acl",
        "birth-time",
        "collapse-range",
        "device",
        "direct-io",
        "fallocate",
        "fallocate-keep-size",
        "insert-range",
        "punch-hole",
        "rename-exchange",
        "rename-noreplace",
        "seek-hole",
        "sparse-blocks",
        "symbolic-link-length",
        "tmpfile",
        "tmpfile-link",
        "xattr-flags",
        "xattr-user",
    ];
    let is_root = rustix::process::geteuid().is_root();
    for row in document["checks"].as_array().unwrap() {
        let (check, verdict) = (row["check"].as_str().unwrap(), row["verdict"].as_str().unwrap());
        let is_waiting = ["-wait", "-interrupted"].iter().any(|part| check.contains(part));
        let is_right = match verdict {
            "yes" => true,
            "late" => is_waiting,
            "not-supported" | "left-open" => FEATURES.contains(&check) || check == "zero-range",
            "inconclusive" => !is_root && row["detail"].as_str().unwrap().contains("root"),
            _ => false,
        };
        assert!(is_right, "{row:#}");
    }
    assert_eq!(document["complete"], true);
}

#[test]
fn local_file_systems_have_posix_semantics_and_the_features_that_other_programs_find() {
    let shared_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    for folder in [disk(), shared_memory] {
        let path = folder.path().to_str().unwrap();
        fs::write(folder.path().join("foreign"), "untouched").unwrap();
        let document = semantics(&[path]);
        has_all_local_semantics(&document);
        features_are_those_of_other_programs(path, &document);
        let names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.iter().all(|name| *name == "foreign" || *name == "features-2"), "{names:?}");
        assert_eq!(fs::read_to_string(folder.path().join("foreign")).unwrap(), "untouched");
    }
}

#[test]
fn root_ramfs_has_no_fallocate_as_documented() {
    let folder = disk();
    let ram = Mounted::new(folder.path(), "ram", &mut mount(&["-t", "ramfs", "none"]));
    let document = semantics(&[ram.path()]);
    assert!(document["mount"]["file_system"].as_str().unwrap().starts_with("ramfs"), "{document:#}");
    has_all_local_semantics(&document);
    features_are_those_of_other_programs(ram.path(), &document);
    // fallocate(2) lists the file systems that have it: ramfs is not among them.
    assert_eq!(verdict(&document, "fallocate", "one"), "not-supported");
    assert_eq!(verdict(&document, "punch-hole", "one"), "not-supported");
}

#[test]
fn root_two_bind_mounts_of_a_file_system_are_coherent() {
    let folder = disk();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let data = data.to_str().unwrap();
    let bound = Mounted::new(folder.path(), "bound", &mut mount(&["--bind", data]));
    for peer in [bound.path().to_owned(), format!("localhost:{}", bound.path())] {
        let document = semantics(&[data, "--peer", &peer]);
        has_all_local_semantics(&document);
        assert_eq!(verdict(&document, "write-read", "from-peer"), "yes");
        assert_eq!(document["peer"]["host"].is_string(), peer.starts_with("localhost:"));
    }
    assert_eq!(fs::read_dir(data).unwrap().count(), 0);
}

/// sshfs has no locks between its clients and keeps attributes for 20 s (sshfs(1)); the server is started
/// without ssh.
#[test]
fn root_a_projected_mount_grants_locks_twice_and_shows_old_data() {
    let folder = disk();
    let (data, server) = (folder.path().join("data"), folder.path().join("server"));
    fs::create_dir(&data).unwrap();
    fs::write(&server, "#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n").unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let (data, program) = (data.to_str().unwrap(), format!("ssh_command={}", server.display()));
    let mut sshfs = Command::new("sshfs");
    sshfs.args(["-o", &program, &format!("server:{data}")]);
    let projected = Mounted::new(folder.path(), "projected", &mut sshfs);
    let document = semantics(&[projected.path(), "--peer", data, "--wait", "500ms"]);
    assert_eq!(document["complete"], true);
    for check in ["flock-conflict", "fcntl-conflict", "ofd-conflict", "mmap-mmap"] {
        assert_eq!(verdict(&document, check, "one"), "yes", "{check}");
        assert_eq!(verdict(&document, check, "two"), "no", "{check}");
    }
    for check in ["write-read", "size", "remove"] {
        // sshfs writes behind the call (sshfs(1), sshfs_sync): on a loaded machine that is late.
        let to_peer = verdict(&document, check, "to-peer");
        assert!(to_peer == "yes" || check == "write-read" && to_peer == "late", "{check}: {to_peer}");
        assert_eq!(verdict(&document, check, "from-peer"), "no", "{check}");
    }
    // It only renames a file that is open (fuse(8), hard_remove).
    assert_eq!(verdict(&document, "directory-unlinked", "one"), "no");
    let stale = document["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["check"] == "size" && row["clients"] == "from-peer");
    assert!(stale.unwrap()["stale_ns"].as_u64().unwrap() >= 500_000_000);
    features_are_those_of_other_programs_without_links(projected.path(), &document);
    assert!(!deviations(&document).is_empty());
}

/// Names of a hard link exist with sshfs, but with inode numbers of their own.
fn features_are_those_of_other_programs_without_links(folder: &str, document: &Value) {
    let file = format!("{folder}/features");
    fs::write(&file, "x").unwrap();
    let has_attributes = succeeds("setfattr", &["-n", "user.test", "-v", "1", &file]);
    assert_eq!(verdict(document, "xattr-user", "one") == "yes", has_attributes);
    let has_space = succeeds("fallocate", &["-l", "65536", &file]);
    assert_eq!(verdict(document, "fallocate", "one") == "yes", has_space);
}

#[test]
fn directories_of_two_file_systems_are_refused() {
    let (one, two) = (disk(), tempfile::tempdir_in("/dev/shm").unwrap());
    let (one, two) = (one.path().to_str().unwrap(), two.path().to_str().unwrap());
    let ended = run(&["storage", "semantics", one, "--peer", two, "--wait", "50ms"]);
    ended.refused(2, &["does not show a folder that was created", two]);
    assert_eq!(fs::read_dir(one).unwrap().count(), 0);
    run(&["storage", "semantics", "/nosuch"]).refused(7, &["/nosuch"]);
    run(&["storage", "semantics", one, "--peer", "localhost:relative"]).refused(2, &["whole path"]);
}

#[test]
fn an_interruption_and_the_timeout_leave_nothing_behind() {
    let folder = disk();
    let path = folder.path().to_str().unwrap();
    let late = run(&["storage", "semantics", path, "--json", "--timeout", "150ms"]);
    assert_eq!(late.code(), 8, "{}", late.stderr);
    assert_eq!(fs::read_dir(path).unwrap().count(), 0);
    let child = clearstream(&["storage", "semantics", path, "--json"]).spawn().unwrap();
    let begun = Instant::now();
    while fs::read_dir(path).unwrap().count() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "no folder was created");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    let ended = finish(child, Duration::from_secs(30));
    assert_eq!(ended.code(), 130, "{}", ended.stderr);
    assert_eq!(fs::read_dir(path).unwrap().count(), 0);
}
