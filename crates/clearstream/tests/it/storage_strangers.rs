//! `clearstream storage` beside programs that put files of theirs in the place of a run's own, while it works: they are there
//! afterwards, and nothing of the run is, however it ends.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{
    common::{alive, children, clearstream, descendants, eventually, finish, inventory, run, signal},
    storage_killed::kill,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Commands that go on for long in a directory.
fn long(verb: &str, directory: &Path) -> Child {
    let path = directory.to_str().unwrap();
    let own: &[&str] = match verb {
        "stream" => &["-b", "8MiB", "-t", "4KiB", "-i", "1000", "-F"],
        "metadata" => &["-n", "3000", "-i", "1000"],
        _ => &[],
    };
    clearstream(&[&["storage", verb, path], own].concat()).spawn().unwrap()
}

/// Files and folders below a folder of the run, which may go away meanwhile.
fn below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(below(&entry.path()));
        }
    }
    found
}

/// The run is at work, and its guard has the folder.
fn at_work(command: &Child, directory: &Path) -> PathBuf {
    let mut file = None;
    eventually(LIMIT, "it works, and is guarded", || {
        let is_guard = |id: &u32| {
            fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| line.ends_with(b"storage\0guard\0"))
        };
        let is_guarded = children(command.id()).into_iter().flat_map(children).any(|id| is_guard(&id));
        let folder =
            fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()).find(|path| path.is_dir());
        let mut files = folder.iter().flat_map(|folder| below(folder));
        file = files.find(|path| path.is_file() && !path.ends_with("probe.0"));
        is_guarded && file.is_some()
    });
    file.unwrap()
}

/// Processes of the run that are there.
fn to_all(command: &Child, name: &str) {
    for process in descendants(command.id()).into_iter().filter(|process| alive(*process)) {
        // It may end by itself meanwhile.
        let kill = ["-s", name, &process.to_string()].map(str::to_owned);
        let _ = Command::new("kill").args(kill).stderr(Stdio::null()).status();
    }
}

/// A file of the run, which does nothing while others do something to it: between a look at a file and its removal there is
/// a moment that a loaded machine makes long.
fn stopped(command: &Child, directory: &Path) -> PathBuf {
    loop {
        let file = at_work(command, directory);
        to_all(command, "STOP");
        if file.exists() {
            return file;
        }
        to_all(command, "CONT");
    }
}

#[test]
fn what_others_put_in_the_place_of_a_file_stays_however_the_run_ends() {
    let ends = ["interrupted", "its processes are killed", "its guard, too"];
    std::thread::scope(|scope| {
        for (verb, end) in
            ["stream", "metadata", "semantics"].iter().flat_map(|verb| ends.map(|end| (verb, end)))
        {
            scope.spawn(move || beside(verb, end));
        }
    });
}

fn beside(verb: &str, end: &str) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path();
    let mut command = long(verb, path);
    let place = stopped(&command, path);
    // As editors and archives do it.
    let mine = [(path.join("new"), place.clone()), (path.join("note"), place.with_file_name("note.txt"))];
    for (new, place) in &mine {
        fs::write(new, "of others").unwrap();
        fs::rename(new, place).unwrap();
    }
    let inodes = mine.each_ref().map(|(_, place)| fs::metadata(place).map(|found| found.ino()).ok());
    let found = descendants(command.id());
    to_all(&command, "CONT");
    match end {
        "interrupted" => signal(command.id(), "INT"),
        "its guard, too" => kill(&found),
        _ => kill(&[&[command.id()], &children(command.id())[..]].concat()),
    }
    let ended = match end {
        "interrupted" => Some(finish(command, LIMIT)),
        _ => {
            command.wait().unwrap();
            None
        }
    };
    eventually(LIMIT, "they have ended", || !found.iter().any(|process| alive(*process)));
    // What is left when the guard is killed, too, is removed by the next start.
    let next = run(&["storage", "stream", path.to_str().unwrap(), "-b", "64KiB", "-t", "64KiB", "--json"]);
    let text = ended.iter().chain([&next]).flat_map(|ended| [ended.stdout.as_str(), ended.stderr.as_str()]);
    let case = format!("{verb}, {end}: {place:?} {}", text.collect::<String>());
    for ((_, place), inode) in mine.iter().zip(inodes) {
        assert_eq!(fs::read_to_string(place).ok().as_deref(), Some("of others"), "{case}");
        assert_eq!(fs::metadata(place).map(|found| found.ino()).ok(), inode, "{case}");
    }
    let left = inventory(path);
    let of_others = |left: &PathBuf| mine.iter().any(|(_, place)| place.starts_with(path.join(left)));
    let own: Vec<_> = left.keys().filter(|left| !of_others(left)).collect();
    assert!(own.is_empty(), "{case}: {own:?} of the run stay");
    if let Some(ended) = ended {
        // It may read what is others' meanwhile, and say so.
        assert!([7, 130].contains(&ended.code()), "{case}");
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = [ended.stdout.as_str(), ended.stderr.as_str()].concat();
        let is_named = mine.iter().any(|(_, place)| text.contains(&name(place)));
        // Where removal takes longer than the command waits, the guard goes on.
        assert!(is_named || text.contains("still being removed"), "{case}: named");
    }
}
