//! What happens to a directory while it is measured: it is full, its file system is taken away, its permissions
//! change. With threads and with ranks of MPI, streaming and metadata: one clear error, no files left where they can
//! be removed, none of others touched.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::common::{Mount, Run, eventually, finish, program, signal, until_line};

const LIMIT: Duration = Duration::from_secs(60);
/// An account without rights; no system has files of it.
const NOBODY: u32 = 65534;

/// How ranks are started.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ranks {
    Threads,
    Mpi,
}

const BOTH: [Ranks; 2] = [Ranks::Threads, Ranks::Mpi];

/// A directory that this test may break, with a file of somebody else in it.
struct Place {
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let library = folder.path().join("libclearstream_mpi.so");
        crate::common::build_mpi_library("mpicc.openmpi", &library);
        fs::create_dir(folder.path().join("data")).unwrap();
        Self { folder, library }
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn mounted(&self, options: &str) -> Mount {
        Mount::tmpfs(self.directory(), options)
    }

    /// Two ranks, as `account`.
    fn start(&self, ranks: Ranks, account: u32, verb: &str, own: &[&str]) -> Child {
        let account = account.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &account, "--regid", &account, "--clear-groups"]);
        if ranks == Ranks::Mpi {
            command.args(["mpirun.openmpi", "-H", "localhost:2", "-np", "2"]);
        }
        command.arg(program()).args(["storage", verb]).arg(self.directory()).args(own);
        match ranks {
            Ranks::Threads => command.args(["--tasks", "2"]),
            Ranks::Mpi => command.args(["--mpi", "--mpi-library"]).arg(&self.library),
        };
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command
            .env("HOME", "/nonexistent")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Two ranks of a job, whose controller reports each phase when it is measured.
    fn job(&self, directory: &Path, verb: &str, own: &[&str]) -> Child {
        let mut command = Command::new(program());
        command.args(["storage", verb]).arg(directory).args(own).args(["--tasks", "2", "--json-stream"]);
        command
            .args(["--hosts", "localhost", "--mpirun", "mpirun.openmpi", "--mpi-library"])
            .arg(&self.library);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The folder of the test, once it works in it.
    fn eventually_works(&self, name: &str) -> PathBuf {
        let found = || {
            let all = fs::read_dir(self.directory()).unwrap().flatten();
            all.map(|entry| entry.path()).find(|path| path.join(name).exists())
        };
        eventually(Duration::from_secs(30), "the test works", || found().is_some());
        found().unwrap()
    }
}

fn entries(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().flatten();
    names.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// One line of the command with all `parts`; ranks of MPI have its launcher's lines besides.
#[track_caller]
fn assert_failed(ended: &Run, case: &str, parts: &[&str]) {
    assert_ne!(ended.code(), 0, "{case}: {}", ended.stdout);
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("clearstream:")).collect();
    assert_eq!(lines.len(), 1, "{case}: {}", ended.stderr);
    for part in parts {
        assert!(lines[0].contains(part), "{case}: \"{part}\" is not in: {}", lines[0]);
    }
}

/// The process of a rank of [`Place::job`].
fn rank(directory: &Path, rank: u32) -> Option<u32> {
    let fields = |id: u32, file: &str| {
        let found = fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
        let fields = found.split(|byte| *byte == 0).map(|field| String::from_utf8_lossy(field).into_owned());
        fields.collect::<Vec<String>>()
    };
    let (own, variable) = (program().to_str().unwrap(), format!("PMIX_RANK={rank}"));
    let ids = fs::read_dir("/proc").unwrap().flatten();
    let mut ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.find(|id| {
        let line = fields(*id, "cmdline");
        line.first().is_some_and(|first| first == own)
            && line.iter().any(|field| Path::new(field) == directory)
            && fields(*id, "environ").contains(&variable)
    })
}

/// More than the memory of the mount, in each of the phases that write.
#[test]
fn root_a_full_file_system_is_named_and_left_as_it_was() {
    let place = Place::new();
    let mount = place.mounted("size=4m,nr_inodes=60");
    fs::write(mount.0.join("thesis.tex"), "of others").unwrap();
    for ranks in BOTH {
        let cases = [
            ("stream", &["-b", "8m", "-t", "64k"][..]),
            ("stream", &["-F", "-b", "8m", "-t", "64k"]),
            ("metadata", &["-n", "100"]),
            ("metadata", &["-n", "20", "-F", "-w", "1MiB"]),
        ];
        for (verb, own) in cases {
            let case = format!("{ranks:?} {verb} {own:?}");
            let ended = finish(place.start(ranks, 0, verb, own), LIMIT);
            assert_failed(&ended, &case, &["rank", "No space left on device"]);
            let is_of_inodes = own == ["-n", "100"];
            assert_eq!(ended.stderr.contains("no inode is left"), is_of_inodes, "{case}: {}", ended.stderr);
            assert_eq!(entries(&mount.0), ["thesis.tex"], "{case}");
        }
    }
    assert_eq!(fs::read_to_string(mount.0.join("thesis.tex")).unwrap(), "of others");
}

/// The mount is taken away from under the ranks (umount --lazy): they notice, and clean what they still have open. A
/// second mount of the file system shows what was left in it.
#[test]
fn root_a_mount_that_vanishes_is_noticed_and_its_files_are_removed() {
    let place = Place::new();
    let second = Mount(place.folder.path().join("second"));
    fs::create_dir(&second.0).unwrap();
    for ranks in BOTH {
        let cases = [
            ("stream", &["-b", "64m", "-t", "64k", "-i", "100000"][..], "data"),
            ("stream", &["-F", "-b", "16m", "-t", "64k", "-w", "-i", "100000"], ""),
            ("metadata", &["-n", "2000", "-i", "100000"], ""),
        ];
        for (verb, own, file) in cases {
            let case = format!("{ranks:?} {verb} {own:?}");
            let mount = place.mounted("size=400m");
            fs::write(mount.0.join("thesis.tex"), "of others").unwrap();
            let bound = Command::new("mount").arg("--bind").args([&mount.0, &second.0]).status();
            assert!(bound.unwrap().success());
            let child = place.start(ranks, 0, verb, own);
            place.eventually_works(file);
            std::thread::sleep(Duration::from_millis(300));
            assert!(Command::new("umount").arg("-l").arg(&mount.0).status().unwrap().success());
            let ended = finish(child, LIMIT);
            assert_failed(&ended, &case, &["rank", "unmounted"]);
            eventually(Duration::from_secs(20), "nothing is left", || entries(&second.0) == ["thesis.tex"]);
            assert_eq!(entries(&place.directory()), Vec::<String>::new(), "{case}: below the mount");
            assert!(Command::new("umount").arg(&second.0).status().unwrap().success());
        }
    }
}

/// Permissions are taken from the folder of the test, or from a directory in it: of an account for which they hold.
#[test]
fn root_permissions_that_change_are_named_and_nothing_is_left() {
    let place = Place::new();
    let directory = place.directory();
    chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::write(directory.join("thesis.tex"), "of others").unwrap();
    for ranks in BOTH {
        let cases = [
            ("stream", &["-F", "-b", "1m", "-t", "64k", "-i", "1000000"][..], ["", ""]),
            // With a file it was looked at, whose mode tells whose it is before that.
            ("metadata", &["-F", "-n", "100000", "-i", "100000"], ["tree.0/file.0.0", "tree.0"]),
        ];
        for (verb, own, [there, inside]) in cases {
            let case = format!("{ranks:?} {verb}");
            let child = place.start(ranks, NOBODY, verb, own);
            let folder = place.eventually_works(there).join(inside);
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
            let ended = finish(child, LIMIT);
            assert_failed(&ended, &case, &["rank", "Permission denied"]);
            assert_eq!(entries(&directory), ["thesis.tex"], "{case}");
        }
    }
}

/// A file system that becomes read-only between two files: nothing can be removed, and what remains is named.
#[test]
fn root_what_cannot_be_removed_is_named() {
    let place = Place::new();
    for ranks in BOTH {
        for (verb, own) in [
            ("stream", &["-F", "-b", "1m", "-t", "64k", "-i", "1000000", "-g"][..]),
            ("metadata", &["-n", "1000", "-i", "100000"]),
        ] {
            let case = format!("{ranks:?} {verb}");
            let mount = place.mounted("size=400m");
            let child = place.start(ranks, 0, verb, own);
            let folder = place.eventually_works("");
            let mut remount = Command::new("mount");
            remount.args(["-o", "remount,ro"]).arg(&mount.0).stderr(Stdio::null());
            // Refused while a file is open for writing.
            eventually(Duration::from_secs(30), "it is read-only", || remount.status().unwrap().success());
            let ended = finish(child, LIMIT);
            let folder = folder.file_name().unwrap().to_str().unwrap();
            assert_failed(&ended, &case, &["rank", "Read-only file system", folder, "remains"]);
        }
    }
}

/// A rank that is killed, by the phase in which that happens.
struct Kill {
    verb: &'static str,
    own: &'static [&'static str],
    /// What the event of the phase before has; nothing for the first phase.
    after: &'static [&'static str],
    /// What the event of the phase itself has.
    during: &'static [&'static str],
    rank: u32,
    /// What stays of the test.
    is_kept: bool,
}

const KILLS: [Kill; 8] = {
    const fn of_files(after: &'static [&'static str], during: &'static [&'static str], rank: u32) -> Kill {
        Kill { verb: "metadata", own: &["-F", "-e", "1"], after, during, rank, is_kept: false }
    }
    const fn of_stream(own: &'static [&'static str], during: &'static [&'static str], rank: u32) -> Kill {
        Kill { verb: "stream", own, after: WRITE, during, rank, is_kept: false }
    }
    const TREE: &[&str] = &["\"kind\":\"tree\"", "\"operation\":\"create\""];
    const CREATE: &[&str] = &["\"kind\":\"file\"", "\"operation\":\"create\""];
    const STAT: &[&str] = &["\"operation\":\"stat\""];
    const READ: &[&str] = &["\"operation\":\"read\""];
    const RENAME: &[&str] = &["\"operation\":\"rename\""];
    const REMOVE: &[&str] = &["\"kind\":\"file\"", "\"operation\":\"remove\""];
    const WRITE: &[&str] = &["\"phase\":\"write\""];
    const BACK: &[&str] = &["\"phase\":\"read\""];
    [
        of_files(TREE, CREATE, 0),
        of_files(CREATE, STAT, 1),
        of_files(STAT, READ, 0),
        of_files(READ, RENAME, 1),
        of_files(RENAME, REMOVE, 1),
        of_stream(&["-F"], BACK, 0),
        of_stream(&["-W"], BACK, 1),
        Kill { is_kept: true, ..of_stream(&["--keep", "--name", "kept"], BACK, 1) },
    ]
};

/// With `size` items or transfers of a rank. Whether the phase was hit, and not a later one.
fn kill(place: &Place, directory: &Path, kill: &Kill, size: u64) -> bool {
    let (count, block) = (size.to_string(), format!("{}KiB", size * 4));
    let shape: &[&str] = match kill.verb {
        "metadata" => &["-n", &count],
        _ => &["-t", "4KiB", "-b", &block],
    };
    let mut child = place.job(directory, kill.verb, &[kill.own, shape].concat());
    until_line(&mut child, &[kill.after, &["\"interval\""]].concat());
    let killed = rank(directory, kill.rank);
    let begun = Instant::now();
    killed.into_iter().for_each(|rank| signal(rank, "KILL"));
    let ended = finish(child, LIMIT);
    let case = format!("{} {:?} rank {}", kill.verb, kill.during, kill.rank);
    if killed.is_none() || ended.stdout.lines().any(|line| kill.during.iter().all(|part| line.contains(part)))
    {
        // The name is used again.
        let _ = fs::remove_dir_all(directory.join("kept"));
        return false;
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{case}: {:?}", begun.elapsed());
    assert_eq!(ended.code(), 6, "{case}: {}", ended.stderr);
    assert_failed(&ended, &case, &[&format!("rank {} on ", kill.rank), "ended by signal 9"]);
    if kill.is_kept {
        let kept = directory.join("kept");
        assert_failed(&ended, &case, &["--keep", "stay in", kept.to_str().unwrap()]);
        let mut names = entries(&kept);
        names.sort();
        assert_eq!(names, ["clearstream-kept.json", "data"], "{case}");
        fs::remove_dir_all(&kept).unwrap();
    }
    eventually(Duration::from_secs(20), "nothing is left", || entries(directory) == ["thesis.tex"]);
    true
}

/// Of the phases in which ranks on several hosts are not killed (`storage_ranks.rs`): looking up, reading, renaming
/// and removing, reading back, verifying. The phase has to be hit, so it becomes longer until it is.
#[test]
fn root_a_rank_killed_in_any_phase_is_named_and_only_kept_files_stay() {
    let place = Place::new();
    let mount = place.mounted("size=2g");
    // They mostly wait for launchers.
    for (number, cases) in (0..).zip(KILLS.chunks(4)) {
        std::thread::scope(|scope| {
            for (place_number, case) in (0..).zip(cases) {
                let directory = mount.0.join(format!("{number}.{place_number}"));
                fs::create_dir(&directory).unwrap();
                fs::write(directory.join("thesis.tex"), "of others").unwrap();
                let place = &place;
                scope.spawn(move || {
                    let is_hit =
                        [10_000, 40_000, 160_000].iter().any(|size| kill(place, &directory, case, *size));
                    assert!(is_hit, "{:?} is over too soon", case.during);
                    assert_eq!(fs::read_to_string(directory.join("thesis.tex")).unwrap(), "of others");
                });
            }
        });
    }
}
