//! Runs beside somebody who puts something of theirs in the place of what a run has made.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::AtomicBool,
};

use clearstream_schema::storage::metadata::MetadataKind;

use super::*;

/// By path: inode, mode and content.
type Inventory = BTreeMap<PathBuf, (u64, u32, Option<String>)>;

fn inventory(directory: &Path) -> Inventory {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()) {
        let (path, known) = (entry.path(), entry.metadata().unwrap());
        if known.is_dir() {
            found.extend(inventory(&path));
        }
        let content = if known.is_file() { fs::read_to_string(&path).ok() } else { None };
        found.insert(path, (known.ino(), known.mode(), content));
    }
    found
}

#[derive(Debug, Clone, Copy)]
enum By {
    File,
    Directory,
    Link,
    HardLink,
    /// To a directory that has the names of all items.
    LinkToTree,
    /// The run's own thing, elsewhere, with another in its place of the same mode.
    Moved,
}

const ALL: [By; 6] = [By::File, By::Directory, By::Link, By::HardLink, By::LinkToTree, By::Moved];

/// Puts something of others in the place of something.
fn replace(place: &Path, by: By, mine: &Path) {
    let is_directory = place.is_dir();
    match by {
        By::Moved => fs::rename(place, mine.join("moved")).unwrap(),
        _ if is_directory => fs::remove_dir_all(place).unwrap(),
        _ => fs::remove_file(place).unwrap(),
    }
    match by {
        By::Moved if is_directory => fs::create_dir(place).unwrap(),
        By::File => fs::write(place, "of others").unwrap(),
        By::Directory => fs::create_dir(place).unwrap(),
        By::Link => symlink(mine.join("thesis"), place).unwrap(),
        By::HardLink => fs::hard_link(mine.join("thesis"), place).unwrap(),
        By::LinkToTree => symlink(mine.join("tree"), place).unwrap(),
        By::Moved => fs::write(place, "").unwrap(),
    }
    if matches!(by, By::Moved) {
        fs::set_permissions(place, fs::metadata(mine.join("moved")).unwrap().permissions()).unwrap();
    }
}

/// What others have beside the run.
fn mine(directory: &Path) -> PathBuf {
    let mine = directory.join("mine");
    fs::create_dir_all(mine.join("tree")).unwrap();
    fs::write(mine.join("thesis"), "of others").unwrap();
    for name in ["file.0.0", "file.1.1", "file.1.1.renamed", "directory.0.0", "directory.1.1"] {
        fs::write(mine.join("tree").join(name), name).unwrap();
    }
    mine
}

/// The first thing below a folder whose name begins so.
fn first(folder: &Path, begin: &str) -> Option<PathBuf> {
    let is_so = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(begin);
    inventory(folder).into_keys().find(is_so)
}

struct Case {
    /// Behind this phase.
    moment: (MetadataKind, MetadataOperation),
    begin: &'static str,
    by: By,
    shape: MetadataConfig,
    is_interrupted: bool,
}

/// Runs it: what others put there, and how it ended.
fn run_beside(case: &Case, directory: &Path) -> (PathBuf, StorageEnded) {
    let mine = mine(directory);
    let (folder, place) = (directory.join("x"), Mutex::new(None));
    let config = MetadataConfig {
        directory: directory.to_str().unwrap().to_owned(),
        name: Some("x".to_owned()),
        tasks: 2,
        items: 3,
        depth: 1,
        branching: 2,
        ..case.shape.clone()
    };
    let before = Mutex::new(Inventory::new());
    let stop = AtomicBool::new(false);
    let mut guard = Guard::start(Command::new("true")).unwrap();
    let ended = run_threads(&config, &stop, &mut guard, &Live::new(2), &|phase| {
        if (phase.kind, phase.operation) != case.moment || phase.iteration > 0 {
            return;
        }
        let found = first(&folder, case.begin).unwrap_or_else(|| {
            // It is removed: the name is free.
            let free = first(&folder, "level.1").unwrap().join("file.0.0");
            fs::write(&free, "").unwrap();
            free
        });
        replace(&found, case.by, &mine);
        before.lock().unwrap().extend(
            inventory(directory).into_iter().filter(|(path, _)| path.starts_with(&mine) || path == &found),
        );
        *place.lock().unwrap() = Some(found);
        stop.store(case.is_interrupted, std::sync::atomic::Ordering::Relaxed);
    });
    guard.release();
    let place = place.into_inner().unwrap().unwrap_or_else(|| panic!("{:?}", case.moment));
    let what = format!("{:?} {} {:?} {}: {ended:?}", case.moment, case.begin, case.by, case.is_interrupted);
    let after = inventory(directory);
    for (path, known) in before.into_inner().unwrap() {
        assert_eq!(after.get(&path), Some(&known), "{what}: {}", path.display());
    }
    for path in after.keys().filter(|path| !path.starts_with(&mine)) {
        assert!(place.starts_with(path), "{what}: {} is left", path.display());
    }
    (place, ended)
}

const FILES: [MetadataOperation; 5] = MetadataOperation::ALL;

/// Each phase of each kind, each kind of thing, and each thing of others in its place: that is there afterwards, and
/// nothing else, however the run ends.
#[test]
fn what_others_put_in_the_place_of_an_item_stays_in_every_phase() {
    use MetadataKind::{Directory, File, Tree};
    let plain = MetadataConfig::default();
    let shapes = [
        plain.clone(),
        MetadataConfig {
            unique_directory: true,
            stride: 1,
            leaves_only: true,
            iterations: 2,
            ..plain.clone()
        },
        MetadataConfig {
            phases: vec![MetadataOperation::Create, MetadataOperation::Rename],
            write_bytes: clearstream_schema::ByteCount(9),
            ..plain
        },
    ];
    let items = FILES.iter().flat_map(|operation| {
        [(File, "file.1.1"), (Directory, "directory.1.1"), (File, "level.1"), (Directory, "tree.0")]
            .map(|(kind, begin)| ((kind, *operation), begin))
    });
    let moments: Vec<_> = items.chain([((Tree, MetadataOperation::Create), "level.2")]).collect();
    // Each with another shape and end: all of them together take long.
    for (number, (moment, begin)) in moments.into_iter().enumerate() {
        for (turn, by) in ALL.into_iter().enumerate() {
            let shape = &shapes[(number + turn) % shapes.len()];
            let is_interrupted = (number + turn / 3) % 2 == 1;
            if moment.0 != Tree && !shape.has_phase(moment.1) {
                continue;
            }
            if matches!(by, By::Moved) && moment.1 == MetadataOperation::Create {
                // Nobody has looked at it yet.
                continue;
            }
            let directory =
                tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "." }).unwrap();
            let case = Case { moment, begin, by, shape: shape.clone(), is_interrupted };
            let (place, ended) = run_beside(&case, directory.path());
            let notices = format!("{:?}", ended.notices);
            let failure = ended.failure.map(|failure| failure.message).unwrap_or_default();
            assert!(!failure.contains("of this run"), "{moment:?} {by:?}: {failure}");
            // Named by its notice, or where the run fails.
            let name = place.file_name().unwrap().to_str().unwrap();
            let is_named = notices.contains(name) || failure.contains(name);
            assert!(is_named || failure.contains("tree.0"), "{moment:?} {begin} {by:?}: {notices} {failure}");
        }
    }
}
