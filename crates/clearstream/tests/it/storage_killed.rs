//! `clearstream storage` when its processes are killed in any order, when others put something in its folder's place,
//! and when a file system takes nothing.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::common::{alive, children, clearstream, eventually, finish, program, run, signal};

const LIMIT: Duration = Duration::from_secs(60);

/// Commands that go on for long in a directory.
fn long(verb: &str, directory: &Path) -> Child {
    let path = directory.to_str().unwrap();
    let own: &[&str] = match verb {
        "stream" => &["-b", "8MiB", "-t", "4KiB", "-i", "1000", "-F"],
        "metadata" => &["-n", "3000000"],
        _ => &[],
    };
    clearstream(&[&["storage", verb, path], own].concat()).spawn().unwrap()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// The command, its agents, and their guards, when something is in the folder.
fn processes(command: &Child, directory: &Path) -> [Vec<u32>; 3] {
    let mut found = [vec![command.id()], Vec::new(), Vec::new()];
    eventually(LIMIT, "it works, and is guarded", || {
        let agents = children(command.id());
        let guards = agents.iter().flat_map(|agent| children(*agent)).filter(|child| {
            fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.ends_with(b"storage\0guard\0"))
        });
        let guards: Vec<u32> = guards.collect();
        let has_files = entries(directory).iter().any(|folder| !entries(folder).is_empty());
        found = [vec![command.id()], agents, guards];
        has_files && !found[2].is_empty()
    });
    found
}

pub(crate) fn kill(processes: &[u32]) {
    for process in processes.iter().filter(|process| alive(**process)) {
        // It may end by itself meanwhile.
        let _ = Command::new("kill").args(["-KILL", &process.to_string()]).stderr(Stdio::null()).status();
    }
}

#[test]
fn nothing_is_left_whichever_processes_are_killed_first() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (verb, order) in
        ["stream", "metadata", "semantics"].iter().flat_map(|verb| orders.map(|order| (verb, order)))
    {
        let directory = tempfile::tempdir().unwrap();
        let mut command = long(verb, directory.path());
        let found = processes(&command, directory.path());
        order.iter().for_each(|part| kill(&found[*part]));
        command.wait().unwrap();
        eventually(LIMIT, "they have ended", || !found.iter().flatten().any(|process| alive(*process)));
        // What is left when the guard is killed, too, is removed by the next start.
        let next =
            ["storage", "stream", directory.path().to_str().unwrap(), "-b", "64KiB", "-t", "64KiB", "--json"];
        let document = run(&next).json();
        assert_eq!(entries(directory.path()), Vec::<PathBuf>::new(), "{verb} {order:?}: {document}");
    }
}

/// A user who owns the directory replaces the folder by a link to somebody else's.
#[test]
fn root_what_a_stranger_puts_in_the_folders_place_stays() {
    for verb in ["stream", "metadata", "semantics"] {
        let scratch = tempfile::tempdir().unwrap();
        let (directory, victim) = (scratch.path().join("scratch"), scratch.path().join("victim"));
        for folder in [directory.clone(), victim.join("data"), victim.join("tree")] {
            fs::create_dir_all(folder).unwrap();
        }
        let names = ["file", "data/data", "keep.txt"];
        names.iter().for_each(|name| fs::write(victim.join(name), "x").unwrap());
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        chown(&directory, Some(65_534), None).unwrap();
        let mut command = long(verb, &directory);
        let found = processes(&command, &directory);
        let made = entries(&directory).remove(0);
        let moved = directory.join("moved");
        fs::rename(&made, &moved).unwrap();
        symlink(&victim, &made).unwrap();
        found[..2].iter().for_each(|part| kill(part));
        command.wait().unwrap();
        eventually(LIMIT, "the guard has ended", || !found[2].iter().any(|process| alive(*process)));
        for name in names {
            assert!(victim.join(name).exists(), "{verb}: {name}");
        }
        assert!(victim.join("tree").exists() && !moved.exists(), "{verb}: what was made is gone");
        assert_eq!(entries(&directory), [made], "{verb}");
    }
}

/// A command in a mount namespace with a file system at `directory`.
fn on(directory: &Path, mount: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{mount} && exec \"$@\""), "sh"]).arg(program());
    command.args(["storage", arguments[0], directory.to_str().unwrap()]).args(&arguments[1..]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn root_full_and_read_only_file_systems_are_exit_7() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    let full = format!("mount -t tmpfs -o size=300k none {path}");
    let few = format!("mount -t tmpfs -o nr_inodes=8 none {path}");
    let none = format!("mount -t tmpfs -o nr_inodes=1 none {path}");
    let read_only = format!("mount --bind {path} {path} && mount -o remount,ro,bind {path}");
    let cases: [(&str, &[&str]); 13] = [
        (&full, &["stream", "-b", "1MiB"]),
        (&full, &["stream", "-b", "1MiB", "-N", "2", "-F", "--fsync"]),
        (&full, &["stream", "-b", "1MiB", "--backend", "mmap"]),
        (&full, &["stream", "-b", "1MiB", "--backend", "io-uring"]),
        (&full, &["metadata", "-n", "50", "--write-bytes", "64KiB"]),
        (&few, &["metadata", "-n", "50"]),
        (&none, &["stream", "-b", "1MiB"]),
        (&none, &["metadata", "-n", "2"]),
        (&none, &["semantics"]),
        (&read_only, &["stream", "-b", "1MiB"]),
        (&read_only, &["metadata", "-n", "2"]),
        (&read_only, &["semantics"]),
        ("true", &["stream", "-b", "1MiB", "--read", "--name", "missing"]),
    ];
    for (mount, arguments) in cases {
        let ended = finish(on(directory.path(), mount, arguments), LIMIT);
        assert_eq!(ended.code(), 7, "{mount} {arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(directory.path().to_str().unwrap()), "{arguments:?}: {}", ended.stderr);
    }
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn too_little_memory_is_exit_5_and_never_a_fault() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    // A buffer, and the threads of ranks.
    for own in [["-b", "1GiB", "-t", "1GiB"], ["-b", "1MiB", "-N", "64"]] {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 150000 && exec \"$@\"", "sh"]).arg(program());
        command.args(["storage", "stream", path]).args(own);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = finish(command.spawn().unwrap(), LIMIT);
        assert_eq!(ended.code(), 5, "{own:?}: {}", ended.stderr);
    }
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

/// A second command that would write the same record.
#[test]
fn a_study_is_resumed_by_one_command_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let study = ["study", "run", "iwarp-verbs", "--to", "localhost", "--quick"];
    let first = clearstream(&[&study[..], &["--runs", runs.to_str().unwrap()]].concat()).spawn().unwrap();
    let record = || Some(fs::read_dir(&runs).ok()?.flatten().next()?.path());
    let trials = || fs::read_to_string(record()?.join("trials.jsonl")).ok();
    eventually(LIMIT, "a trial is recorded", || trials().is_some_and(|text| text.lines().count() > 1));
    let made = record().unwrap();
    let resume = [&study[..], &["--resume", made.to_str().unwrap()]].concat();
    let process = format!("process {}", first.id());
    run(&resume).refused(4, &[made.to_str().unwrap(), &process]);
    let before = trials().unwrap();
    assert!(before.lines().count() > 1);
    signal(first.id(), "INT");
    finish(first, LIMIT).refused_with(130);
    assert!(trials().unwrap().starts_with(&before), "what was recorded is kept");
    let kept = trials().unwrap().lines().count();
    let second = clearstream(&resume).spawn().unwrap();
    eventually(LIMIT, "it goes on", || trials().is_some_and(|text| text.lines().count() > kept));
    signal(second.id(), "INT");
    finish(second, LIMIT).refused_with(130);
}
