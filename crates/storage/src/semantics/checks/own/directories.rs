//! Directories: reading them during changes, and working in them by descriptor.

use std::{
    collections::BTreeMap,
    os::unix::fs::FileExt as _,
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::semantics::{SemanticsArea, SemanticsFound, SemanticsVerdict::No};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};

use super::{Check, Result, create, exists, found, none_wrong, right, stat};
use crate::semantics::{
    checks::{Run, check, left_open, with_errno},
    faults::At as _,
    folder::Folder,
    operations::Hands,
};

const fn directories(
    name: &'static str,
    title: &'static str,
    standard: &'static str,
    run: fn(&Folder) -> Result<SemanticsFound>,
) -> Check {
    check(SemanticsArea::Features, name, title, standard, Run::Alone(run))
}

pub(super) const CHECKS: &[Check] = &[
    directories("directory", "renamed directory", "POSIX.1-2017 rename()", renamed),
    directories("directory-open", "directory by descriptor", "POSIX.1-2017 openat(), rmdir()", by_descriptor),
    directories("directory-links", "links of a directory", "not in POSIX: find -noleaf (find(1))", counted),
    directories(
        "directory-unlinked",
        "a removed open file leaves it",
        "POSIX.1-2017 unlink(), rmdir()",
        unlinked,
    ),
    check(
        SemanticsArea::Features,
        "unlink-close",
        "a removed file stays away",
        "POSIX.1-2017 unlink()",
        Run::Own(stays_removed),
    ),
    directories("readdir-remove", "readdir during removal", "POSIX.1-2017 readdir()", removal),
    directories("readdir-create", "readdir during creation", "POSIX.1-2017 readdir()", creation),
    directories("seekdir", "seekdir, rewinddir", "POSIX.1-2017 seekdir(), rewinddir()", seek),
    directories("readdir-inode", "inode, type of readdir", "POSIX.1-2017 readdir(), d_ino", inode),
];

/// Entries that take more than one request of a client (FUSE: 4096 bytes).
const ENTRIES: usize = 240;
const MODE: Mode = Mode::from_raw_mode(0o700);
/// Time in which a removed file is looked for after its close.
const COMES_BACK: Duration = Duration::from_millis(250);

fn renamed(folder: &Folder) -> Result<SemanticsFound> {
    let inner = folder.create_inner("directory", MODE).at("mkdir")?;
    drop(create(&inner, "file")?);
    folder.rename("directory", "directory-2").at("rename of a directory")?;
    let again = folder.inner("directory-2").at("open(O_DIRECTORY)")?;
    right(exists(&again, "file") && !exists(folder, "directory"), "its file is not there by the new name")
}

/// A descriptor leads to the directory after it was renamed; in a removed one nothing can be made.
fn by_descriptor(folder: &Folder) -> Result<SemanticsFound> {
    let inner = folder.create_inner("directory-open", MODE).at("mkdir")?;
    folder.rename("directory-open", "directory-open-2").at("rename of a directory")?;
    drop(create(&inner, "file")?);
    if !exists(&folder.inner("directory-open-2").at("open(O_DIRECTORY)")?, "file") {
        return found(No, "a file made by the descriptor is not there");
    }
    inner.remove("file").at("unlink")?;
    folder.remove_any("directory-open-2", AtFlags::REMOVEDIR).at("rmdir")?;
    match inner.open("late", OFlags::WRONLY | OFlags::CREATE) {
        Err(Errno::NOENT) => right(true, ""),
        Err(errno) => Err(errno).at("open(O_CREAT) in a removed directory"),
        Ok(_) => found(No, "a file can be made in a removed directory"),
    }
}

/// Its own two, and one of each directory in it; programs that count on it do not look for the others.
fn counted(folder: &Folder) -> Result<SemanticsFound> {
    let inner = folder.create_inner("directory-links", MODE).at("mkdir")?;
    for name in ["below", "below-2"] {
        inner.make_folder(name, MODE).at("mkdir")?;
    }
    let links = inner.look().at("stat")?.st_nlink;
    Ok(left_open(links == 4, format!("{links} instead of 4")))
}

/// A removed file does not come back when the last program closes it, as from a client that writes it to its server then.
fn stays_removed(hands: &mut Hands, wait: Duration) -> Result<SemanticsFound> {
    let folder = hands.folder().at("open of the folder")?;
    let file = create(folder, "unlink-close")?;
    // Where that fails, the checks of content say so.
    let _ = file.write_all_at(b"content", 0);
    folder.remove("unlink-close").at("unlink")?;
    drop(file);
    let begun = Instant::now();
    while begun.elapsed() < wait.min(COMES_BACK) {
        if exists(folder, "unlink-close") {
            return found(No, "the removed file is there again after its close");
        }
        thread::sleep(Duration::from_millis(5));
    }
    right(true, "")
}

/// The name of a file goes away when it is removed, whoever has it open: then the directory is empty. Clients that only
/// rename such a file (".nfs...", ".fuse_hidden...") cannot remove its directory, as rm(1) does with trees.
fn unlinked(folder: &Folder) -> Result<SemanticsFound> {
    let name = "directory-unlinked";
    let inner = folder.create_inner(name, MODE).at("mkdir")?;
    let open = create(&inner, "file")?;
    inner.remove("file").at("unlink")?;
    let mut left = Vec::new();
    for entry in Dir::read_from(inner.descriptor()).at("opendir")? {
        let entry = entry.at("readdir")?.file_name().to_string_lossy().into_owned();
        if entry != "." && entry != ".." {
            left.push(entry);
        }
    }
    let removed = folder.remove_any(name, AtFlags::REMOVEDIR);
    drop(open);
    match (removed, left.first()) {
        (Ok(()), None) => right(true, ""),
        (Ok(()), Some(left)) => found(No, format!("readdir still reads {left}, as long as the file is open")),
        (Err(errno), left) => {
            let holds = left.map_or("it".to_owned(), |left| format!("it with {left}"));
            let text = format!("rmdir refuses {holds}, as long as the file is open");
            Ok(with_errno(SemanticsFound::new(No).with(text), errno))
        }
    }
}

fn filled(folder: &Folder, name: &str) -> Result<Folder> {
    let inner = folder.create_inner(name, MODE).at("mkdir")?;
    for number in 0..ENTRIES {
        drop(create(&inner, &format!("entry-{number:04}"))?);
    }
    Ok(inner)
}

/// Removes all that these checks make: what a client's list of the directory lacks is not to stay.
fn emptied(folder: &Folder) {
    for number in 0..ENTRIES {
        let _ = folder.remove(&format!("entry-{number:04}"));
        if number % 10 == 0 {
            let _ = folder.remove(&format!("other-{number:04}"));
        }
    }
    let _ = folder.remove("late");
}

/// What rm(1) does: each entry is removed when it is read, and the others are all read, once.
fn removal(folder: &Folder) -> Result<SemanticsFound> {
    let inner = filled(folder, "readdir-remove")?;
    let mut twice = 0;
    for entry in Dir::read_from(inner.descriptor()).at("opendir")? {
        let name = entry.at("readdir")?.file_name().to_string_lossy().into_owned();
        if name.starts_with("entry-") {
            match inner.remove(&name) {
                Err(Errno::NOENT) => twice += 1,
                removed => removed.at("unlink")?,
            }
        }
    }
    let left = inner.list("entry-").at("readdir")?.len();
    emptied(&inner);
    right(left == 0 && twice == 0, format!("of {ENTRIES} entries {left} are not read, and {twice} twice"))
}

/// Entries that are there all the time are read once each, whatever is made meanwhile.
fn creation(folder: &Folder) -> Result<SemanticsFound> {
    let inner = filled(folder, "readdir-create")?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (number, entry) in Dir::read_from(inner.descriptor()).at("opendir")?.enumerate() {
        let name = entry.at("readdir")?.file_name().to_string_lossy().into_owned();
        *counts.entry(name).or_default() += 1;
        if number % 10 == 0 && number < ENTRIES {
            drop(create(&inner, &format!("other-{number:04}"))?);
        }
    }
    emptied(&inner);
    let read = counts.keys().filter(|name| name.starts_with("entry-")).count();
    let twice = counts.iter().filter(|(name, count)| name.starts_with("entry-") && **count > 1).count();
    right(
        read == ENTRIES && twice == 0,
        format!("of {ENTRIES} entries {} are not read, and {twice} twice", ENTRIES - read),
    )
}

fn seek(folder: &Folder) -> Result<SemanticsFound> {
    let inner = filled(folder, "seekdir")?;
    let mut directory = Dir::read_from(inner.descriptor()).at("opendir")?;
    let mut read = Vec::new();
    while let Some(entry) = directory.read() {
        let entry = entry.at("readdir")?;
        read.push((entry.file_name().to_owned(), entry.offset()));
    }
    let mut wrong = Vec::new();
    for place in [ENTRIES / 3, 1, ENTRIES * 2 / 3] {
        let (Some((_, offset)), Some((expected, _))) = (read.get(place), read.get(place + 1)) else {
            continue;
        };
        directory.seek(*offset).at("seekdir")?;
        match directory.read() {
            Some(Ok(entry)) if entry.file_name() == expected.as_c_str() => {}
            Some(Err(errno)) => return Err(errno).at("readdir after seekdir"),
            _ => wrong.push(format!("seekdir to entry {place} does not lead to the next one")),
        }
    }
    drop(create(&inner, "late")?);
    directory.rewind();
    let mut has_late = false;
    while let Some(entry) = directory.read() {
        has_late |= entry.at("readdir")?.file_name().to_bytes() == b"late";
    }
    if !has_late {
        wrong.push("after rewinddir a new entry is not read".to_owned());
    }
    emptied(&inner);
    none_wrong(&wrong)
}

/// Programs that walk through trees take type and inode from here.
fn inode(folder: &Folder) -> Result<SemanticsFound> {
    let inner = folder.create_inner("readdir-inode", MODE).at("mkdir")?;
    drop(create(&inner, "file")?);
    inner.make_folder("folder", MODE).at("mkdir")?;
    let mut wrong = Vec::new();
    for entry in Dir::read_from(inner.descriptor()).at("opendir")? {
        let entry = entry.at("readdir")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "." || name == ".." {
            continue;
        }
        let stat = stat(&inner, &name)?;
        if entry.ino() != stat.st_ino {
            wrong.push(format!(
                "the inode of a {name} is {} by readdir, {} by stat",
                entry.ino(),
                stat.st_ino
            ));
        }
        // readdir(3): programs have to expect DT_UNKNOWN.
        let kind = entry.file_type();
        if kind != FileType::Unknown && kind != FileType::from_raw_mode(stat.st_mode) {
            wrong.push(format!("readdir has another type of a {name}"));
        }
    }
    none_wrong(&wrong)
}
