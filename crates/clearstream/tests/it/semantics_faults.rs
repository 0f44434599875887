//! `clearstream storage semantics` where system calls fail or lie, by strace's injection, and on mounts that show changes
//! late or whose server has ended.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    net::Shutdown,
    os::{
        fd::OwnedFd,
        unix::{
            fs::{MetadataExt as _, PermissionsExt as _},
            net::UnixStream,
        },
    },
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use clearstream_schema::semantics::NOT_RUN;
use serde_json::Value;

use crate::{
    common::{alive, assert_valid, children, clearstream, eventually, finish, program, run, signal},
    semantics::{Mounted, disk, row, semantics, verdict},
};

const LIMIT: Duration = Duration::from_secs(180);

/// The document of a run in which these calls of every process fail or lie.
fn injected(faults: &[&str]) -> Value {
    let folder = disk();
    let mut command = Command::new("strace");
    let calls: Vec<&str> = faults.iter().map(|fault| fault.split(':').next().unwrap()).collect();
    command.args([
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-o",
        "/dev/null",
        "-e",
        &format!("trace={}", calls.join(",")),
    ]);
    command.args(faults.iter().flat_map(|fault| ["-e".to_owned(), format!("inject={fault}")]));
    command.arg(program()).args(["storage", "semantics", "--wait", "100ms", "--json"]).arg(folder.path());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish(child, LIMIT).json()
}

/// A code that the standard does not have there is a deviation; one by which the manual page says that the file system
/// lacks it is not.
#[test]
fn a_verdict_follows_from_the_error_code_of_the_kernel() {
    let document = injected(&[
        "linkat:error=EIO",
        "symlinkat:error=EPERM",
        "lseek:error=ENXIO",
        "fallocate:error=EOPNOTSUPP",
        "mknodat:error=EFAULT",
        "fdatasync:error=EINVAL",
        "fsync:error=EINVAL",
        "flock:error=ENOLCK",
        "copy_file_range:error=ESTALE",
        "fsetxattr:error=ENOSPC",
    ]);
    for (check, expected, errno) in [
        ("hard-link", "no", "EIO"),
        ("symbolic-link", "not-supported", "EPERM"),
        ("seek-hole", "no", "ENXIO"),
        ("fallocate", "not-supported", "EOPNOTSUPP"),
        ("fifo", "no", "EFAULT"),
        ("fsync", "no", "EINVAL"),
        ("fsync-directory", "not-supported", "EINVAL"),
        ("flock-grant", "no", "ENOLCK"),
        ("copy-range", "no", "ESTALE"),
        ("xattr-user", "inconclusive", "ENOSPC"),
    ] {
        let row = row(&document, check, "one");
        assert_eq!((&row["verdict"], &row["errno"]), (&expected.into(), &errno.into()), "{row:#}");
    }
    assert_eq!(verdict(&document, "fcntl-conflict", "one"), "yes");
    let document = injected(&["pwrite64:error=ESPIPE"]);
    for check in
        ["read-after-write", "random-write", "seek-hole", "mmap-tail", "timestamps-write", "large-file"]
    {
        let row = row(&document, check, "one");
        assert_eq!((&row["verdict"], &row["errno"]), (&"no".into(), &"ESPIPE".into()), "{row:#}");
    }
    for check in ["name-max", "path-max"] {
        assert_eq!(verdict(&document, check, "one"), "yes");
    }
}

/// Calls that report success and do nothing.
#[test]
fn what_a_call_only_pretends_is_found() {
    let document = injected(&[
        "flock:retval=0",
        "fchmodat:retval=0",
        "utimensat:retval=0",
        "fallocate:retval=0",
        "ftruncate:retval=0",
        "fsetxattr:retval=0",
    ]);
    for (check, expected) in [
        ("flock-grant", "yes"),
        ("flock-conflict", "no"),
        ("flock-shared", "no"),
        // Whether it ends is not to be seen where it never is in the way.
        ("flock-close", "inconclusive"),
        ("flock-wait", "inconclusive"),
        ("flock-upgrade", "inconclusive"),
        ("fcntl-conflict", "yes"),
        ("chmod", "no"),
        ("timestamps-now-omit", "no"),
        ("symbolic-link-times", "no"),
        ("fallocate", "no"),
        ("punch-hole", "no"),
        ("truncate", "no"),
        ("mmap-truncate", "no"),
        ("timestamps-truncate", "no"),
        ("xattr-user", "no"),
    ] {
        let row = row(&document, check, "one");
        assert_eq!(row["verdict"], expected, "{row:#}");
    }
    let bound = row(&document, "timestamps-truncate", "one");
    assert_eq!(
        (&bound["stale_ns"], &document["wait_ns"]),
        (&100_000_000.into(), &100_000_000.into()),
        "{bound:#}"
    );
    assert!(bound["detail"].as_str().unwrap().ends_with("not within 100 ms"), "{bound:#}");
}

/// A process with several threads has locks of a thread on some file systems.
#[test]
fn operations_are_those_of_a_process_with_one_thread() {
    let folder = disk();
    let name = ".clearstream-semantics-0123456789abcdef";
    fs::create_dir(folder.path().join(name)).unwrap();
    let (socket, other) = UnixStream::pair().unwrap();
    let journal = folder.path().join("journal");
    let mut command = Command::new(program());
    command
        .args(["storage", "operations"])
        .stdin(OwnedFd::from(other))
        .stdout(File::create(&journal).unwrap());
    let mut child = command.spawn().unwrap();
    drop(command);
    let (mut input, mut output) = (socket.try_clone().unwrap(), BufReader::new(socket));
    let directory = folder.path().to_str().unwrap();
    for operation in [
        serde_json::json!({"enter": {"directory": directory, "folder": name, "is_alone": true}}),
        serde_json::json!({"open": {"name": "file"}}),
    ] {
        writeln!(input, "{operation}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let acted: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(acted["errno"], Value::Null, "{acted}");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    assert!(status.lines().any(|line| line.split_whitespace().eq(["Threads:", "1"])), "{status}");
    // What it makes is noted, before and behind the call.
    let noted = fs::read_to_string(&journal).unwrap();
    let (begun, made) = noted.split_once('\n').unwrap();
    assert!(begun == "+0 66696c65" && made.starts_with('=') && made.ends_with(" 66696c65\n"), "{noted}");
    input.shutdown(Shutdown::Both).unwrap();
    assert!(child.wait().unwrap().success());
}

/// sshfs without a cache of its own, started without ssh, and the kernel's for these seconds.
fn sshfs(folder: &Path, data: &str, seconds: &str) -> Mounted {
    let server = folder.join("server");
    fs::write(&server, "#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n").unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let options = format!(
        "ssh_command={},dir_cache=no,attr_timeout={seconds},entry_timeout={seconds},negative_timeout={seconds}",
        server.display()
    );
    Mounted::new(folder, "projected", Command::new("sshfs").args(["-o", &options, &format!("server:{data}")]))
}

/// The kernel keeps attributes of a FUSE file system as long as that says (fuse(8), attr_timeout).
#[test]
fn root_a_change_that_comes_within_the_bound_is_late_and_has_its_time() {
    let folder = disk();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let data = data.to_str().unwrap();
    let projected = sshfs(folder.path(), data, "0.1");
    let document = semantics(&[projected.path(), "--peer", data, "--wait", "1s"]);
    for check in ["size", "mode", "create"] {
        let row = row(&document, check, "from-peer");
        assert_eq!(row["verdict"], "late", "{row:#}");
        let stale = row["stale_ns"].as_u64().unwrap();
        assert!((2_000_000..1_500_000_000).contains(&stale), "{row:#}");
        assert_eq!(verdict(&document, check, "to-peer"), "yes", "{check}");
    }
    assert_eq!(verdict(&document, "flock-conflict", "two"), "no");
}

/// The most usual state of a broken mount.
#[test]
fn root_a_mount_whose_server_has_ended_is_named_as_that() {
    let folder = disk();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let projected = sshfs(folder.path(), data.to_str().unwrap(), "1");
    let found = server(&projected);
    signal(found, "KILL");
    eventually(LIMIT, "the server is gone", || !alive(found));
    let sentence = ["cannot open the directory", "not connected", "the FUSE server of this mount has ended"];
    for verb in ["semantics", "stream", "metadata"] {
        run(&["storage", verb, projected.path()]).refused(7, &sentence);
    }
    let data = data.to_str().unwrap();
    let peer = format!("localhost:{}", projected.path());
    run(&["storage", "semantics", data, "--peer", projected.path()]).refused(7, &sentence);
    run(&["storage", "semantics", data, "--peer", &peer, "--wait", "50ms"])
        .refused(2, &["not connected", "the FUSE server of this mount has ended"]);
}

/// The process that serves a mount of sshfs.
fn server(mounted: &Mounted) -> u32 {
    let ids = fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found: Vec<u32> = ids
        .filter(|id| {
            let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let arguments: Vec<_> = command.split(|byte| *byte == 0).collect();
            arguments[0].ends_with(b"sshfs") && arguments.contains(&mounted.path().as_bytes())
        })
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

/// A server that responds no more holds a check, and neither the others before it nor the command; when it responds
/// again the guard removes what was made.
#[test]
fn root_a_server_that_hangs_in_the_middle_is_named_within_the_time() {
    let folder = disk();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let projected = sshfs(folder.path(), data.to_str().unwrap(), "1");
    let found = server(&projected);
    let child = clearstream(&["storage", "semantics", projected.path(), "--timeout", "3s"]).spawn().unwrap();
    let made = || fs::read_dir(&data).unwrap().flatten().flat_map(|folder| fs::read_dir(folder.path()));
    eventually(LIMIT, "checks are at work", || made().flatten().count() > 5);
    signal(found, "STOP");
    let ended = finish(child, LIMIT);
    assert_eq!(ended.code(), 7, "{}", ended.stderr);
    for part in ["does not respond", projected.path(), ".clearstream-semantics-"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    assert!(ended.stdout.contains("partial: "), "{}", ended.stdout);
    signal(found, "CONT");
    eventually(LIMIT, "the guard has removed it", || fs::read_dir(&data).unwrap().count() == 0);
}

/// A server that ends, early or late, ends the checks: they say so, those before have their verdicts, and no check accuses the
/// mount of what its absence did.
#[test]
fn root_a_server_that_ends_in_the_middle_is_named_and_ends_the_checks() {
    for many in [1, 40, 100] {
        let folder = disk();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let projected = sshfs(folder.path(), data.to_str().unwrap(), "1");
        let found = server(&projected);
        let child = clearstream(&["storage", "semantics", projected.path(), "--json"]).spawn().unwrap();
        let made = || fs::read_dir(&data).unwrap().flatten().flat_map(|folder| fs::read_dir(folder.path()));
        eventually(LIMIT, "checks are at work", || made().flatten().count() >= many);
        signal(found, "KILL");
        let ended = finish(child, LIMIT);
        ended.refused(7, &["cannot go on in the directory", "the FUSE server of this mount has ended"]);
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_valid("storage-semantics", &document);
        assert_eq!(document["complete"], false, "{document}");
        assert!(document["failure"]["message"].as_str().unwrap().contains("has ended"), "{document}");
        let dead = ["ENOTCONN", "ECONNABORTED"];
        for row in document["checks"].as_array().unwrap() {
            let is_of_the_end = row["errno"].as_str().is_some_and(|errno| dead.contains(&errno));
            assert!(!is_of_the_end || row["verdict"] == "inconclusive", "{row}");
            let detail = row["detail"].as_str().unwrap_or_default();
            assert!(dead.iter().all(|errno| !detail.contains(errno)), "{row}");
        }
        assert_eq!(document["checks"].as_array().unwrap().last().unwrap()["detail"], NOT_RUN, "{document}");
        // Nobody will read what processes noted for the guard.
        let made = fs::read_dir(&data).unwrap().next().unwrap().unwrap().file_name();
        let noted = Path::new("/dev/shm").join(format!("clearstream-made{}", made.to_str().unwrap()));
        eventually(LIMIT, "the guard has given up", || !noted.exists());
    }
}

/// A client with inode numbers of its own has another one for each name of a link: what was linked is removed all the same.
#[test]
fn root_links_of_a_killed_run_are_removed_where_inodes_are_a_clients_own() {
    let folder = disk();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("thesis.tex"), "of others").unwrap();
    let projected = sshfs(folder.path(), data.to_str().unwrap(), "1");
    let child = clearstream(&["storage", "semantics", projected.path()]).spawn().unwrap();
    let has_links = || {
        let folders = fs::read_dir(&data).unwrap().flatten().filter(|entry| entry.path().is_dir());
        let mut made = folders.flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten().flatten());
        made.any(|entry| entry.metadata().is_ok_and(|found| found.is_file() && found.nlink() > 3))
    };
    eventually(LIMIT, "names are linked", has_links);
    children(child.id()).iter().for_each(|agent| signal(*agent, "KILL"));
    signal(child.id(), "KILL");
    let _ = finish(child, LIMIT);
    eventually(LIMIT, "the folder is removed", || fs::read_dir(&data).unwrap().count() == 1);
    assert_eq!(fs::read_to_string(data.join("thesis.tex")).unwrap(), "of others");
}

/// Without room, whatever fails is no deviation.
#[test]
fn root_a_full_file_system_is_not_accused() {
    for options in ["size=64k", "size=1m,nr_inodes=24"] {
        let folder = disk();
        let full = Mounted::new(
            folder.path(),
            "full",
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "full"]),
        );
        let document = semantics(&[full.path()]);
        for row in document["checks"].as_array().unwrap() {
            let text = format!("{} {}", row["errno"], row["detail"]);
            assert!(row["verdict"] != "no" || !text.contains("ENOSPC"), "{options}: {row}");
        }
        let without = document["checks"].as_array().unwrap().iter().filter(|row| row["errno"] == "ENOSPC");
        assert!(without.count() > 0, "{options}: {document}");
    }
}

/// What was found until then is printed, and marked as a part.
#[test]
fn checks_before_the_loss_of_an_agent_stay() {
    for own in [&["--json"][..], &[]] {
        let folder = disk();
        let arguments = [&["storage", "semantics", folder.path().to_str().unwrap()], own].concat();
        let child = clearstream(&arguments).spawn().unwrap();
        let is_begun = || {
            let mut folders = fs::read_dir(folder.path()).unwrap().flatten();
            // Files have the number of their check.
            folders.any(|entry| {
                let files = fs::read_dir(entry.path()).map(|files| files.flatten().count());
                files.is_ok_and(|count| count >= 5)
            })
        };
        eventually(LIMIT, "some checks are done", is_begun);
        children(child.id()).iter().for_each(|agent| signal(*agent, "KILL"));
        let ended = finish(child, LIMIT);
        assert_eq!(ended.code(), 6, "{}", ended.stderr);
        if own.is_empty() {
            assert!(
                ended.stdout.contains("\npartial: ") && !ended.stdout.contains("\n0 yes"),
                "{}",
                ended.stdout
            );
        } else {
            let document: Value = serde_json::from_str(&ended.stdout).unwrap();
            assert_valid("storage-semantics", &document);
            assert_eq!(document["complete"], false);
            assert!(document["failure"]["message"].as_str().unwrap().contains("was lost"), "{document}");
            let all = document["checks"].as_array().unwrap();
            let with = |verdict: &str| all.iter().filter(|row| row["verdict"] == verdict).count();
            assert!(with("yes") > 0 && with("inconclusive") > 1, "{document}");
        }
        eventually(LIMIT, "the folder is removed", || fs::read_dir(folder.path()).unwrap().count() == 0);
    }
}
