//! Times that each call has to set, and those that it has to leave. All calls are made in one go, so that a file system
//! with times of whole seconds is waited for once.

use std::{
    os::unix::fs::FileExt as _,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clearstream_schema::semantics::{SemanticsArea, SemanticsFound, SemanticsVerdict};
use rustix::{
    fs::{
        AtFlags, Dir, Mode, OFlags, StatVfsMountFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, chmodat,
        chownat, fstatvfs, utimensat,
    },
    io::Errno,
};

use super::{Check, POLL_INTERVAL, Result, create, none_wrong, stat, within};
use crate::semantics::{
    actor::in_time,
    calls::Operation,
    checks::{Run, check, left_open},
    faults::{At as _, Fault},
    folder::Folder,
    operations::Hands,
};

/// Time of access and modification before the call: in 2001.
const PAST: i64 = 1_000_000_000;
/// Longer than a step of the kernel's clock for times of files.
const STEP: Duration = Duration::from_millis(25);
/// Longer than one of file systems with seconds.
const SECOND_STEP: Duration = Duration::from_millis(1100);
/// Time of an access to a mapping.
const ACCESS_TIME: Duration = Duration::from_secs(5);

/// What the times are of: a file of a folder, or that folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    File,
    Folder,
}

use Subject::{File, Folder as Names};

/// A time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Access,
    Modification,
    Change,
}

use Mark::{Access, Change, Modification};

/// A call, and the times that it sets.
struct Act {
    check: &'static str,
    subject: Subject,
    sets: &'static [Mark],
    /// It is made in a folder with a file.
    call: fn(&Folder) -> Result<()>,
}

const WRITTEN: &[Mark] = &[Modification, Change];
const CHANGED: &[Mark] = &[Change];
const READ: &[Mark] = &[Access];

const ACTS: &[Act] = &[
    Act { check: "timestamps-write", subject: File, sets: WRITTEN, call: write },
    Act { check: "timestamps-truncate", subject: File, sets: WRITTEN, call: truncate },
    Act { check: "timestamps-open", subject: File, sets: WRITTEN, call: open_truncate },
    Act { check: "timestamps-read", subject: File, sets: READ, call: read },
    Act { check: "timestamps-readdir", subject: Names, sets: READ, call: read_names },
    Act { check: "timestamps-chmod", subject: File, sets: CHANGED, call: chmod },
    Act { check: "timestamps-chown", subject: File, sets: CHANGED, call: chown },
    Act { check: "timestamps-link", subject: File, sets: CHANGED, call: link },
    Act { check: "timestamps-unlink", subject: File, sets: CHANGED, call: unlink_one },
    Act { check: "timestamps-utimensat", subject: File, sets: CHANGED, call: set_past },
    Act { check: "timestamps-rename", subject: File, sets: CHANGED, call: rename_file },
    Act { check: "timestamps-names-create", subject: Names, sets: WRITTEN, call: create_other },
    Act { check: "timestamps-names-unlink", subject: Names, sets: WRITTEN, call: unlink_file },
    Act { check: "timestamps-names-mkdir", subject: Names, sets: WRITTEN, call: make_folder },
    Act { check: "timestamps-names-rmdir", subject: Names, sets: WRITTEN, call: remove_folder },
    Act { check: "timestamps-names-link", subject: Names, sets: WRITTEN, call: link },
    Act { check: "timestamps-names-symlink", subject: Names, sets: WRITTEN, call: symlink },
    Act { check: "timestamps-names-rename", subject: Names, sets: WRITTEN, call: rename_file },
];

macro_rules! dates {
    ($name:literal, $title:literal, $standard:literal) => {
        check(
            SemanticsArea::Timestamps,
            $name,
            $title,
            $standard,
            Run::Own(|hands, wait| of(hands, $name, wait)),
        )
    };
}

pub(super) const CHECKS: &[Check] = &[
    dates!("timestamps-write", "write sets mtime, ctime", "POSIX.1-2017 write(), 4.9 File Times Update"),
    dates!("timestamps-truncate", "ftruncate sets them", "POSIX.1-2017 ftruncate()"),
    dates!("timestamps-open", "O_TRUNC sets them", "POSIX.1-2017 open(), O_TRUNC"),
    check(
        SemanticsArea::Timestamps,
        "timestamps-map",
        "mapped store sets them",
        "POSIX.1-2017 mmap(), msync()",
        Run::Own(mapped_store),
    ),
    dates!("timestamps-read", "read sets atime", "POSIX.1-2017 read()"),
    dates!("timestamps-readdir", "readdir sets atime", "POSIX.1-2017 readdir()"),
    dates!("timestamps-chmod", "chmod sets ctime", "POSIX.1-2017 chmod()"),
    dates!("timestamps-chown", "chown sets ctime", "POSIX.1-2017 chown()"),
    dates!("timestamps-link", "link sets ctime", "POSIX.1-2017 link()"),
    dates!("timestamps-unlink", "unlink sets ctime of a link", "POSIX.1-2017 unlink()"),
    dates!("timestamps-utimensat", "utimensat sets ctime", "POSIX.1-2017 utimensat()"),
    dates!("timestamps-rename", "rename sets ctime of the file", "POSIX.1-2017 rename(): \"some do not\""),
    dates!("timestamps-names-create", "creation sets the folder's", "POSIX.1-2017 open(), O_CREAT"),
    dates!("timestamps-names-unlink", "unlink sets the folder's", "POSIX.1-2017 unlink()"),
    dates!("timestamps-names-mkdir", "mkdir sets the folder's", "POSIX.1-2017 mkdir()"),
    dates!("timestamps-names-rmdir", "rmdir sets the folder's", "POSIX.1-2017 rmdir()"),
    dates!("timestamps-names-link", "link sets the folder's", "POSIX.1-2017 link()"),
    dates!("timestamps-names-symlink", "symlink sets the folder's", "POSIX.1-2017 symlink()"),
    dates!("timestamps-names-rename", "rename sets the folder's", "POSIX.1-2017 rename()"),
    check(
        SemanticsArea::Timestamps,
        "timestamps-now-omit",
        "UTIME_NOW, UTIME_OMIT",
        "POSIX.1-2017 utimensat()",
        Run::Alone(now_and_omit),
    ),
];

fn write(folder: &Folder) -> Result<()> {
    folder.open("file", OFlags::RDWR).at("open")?.write_all_at(b"new", 0).at("pwrite")
}

fn truncate(folder: &Folder) -> Result<()> {
    folder.open("file", OFlags::RDWR).at("open")?.set_len(10).at("ftruncate")
}

fn open_truncate(folder: &Folder) -> Result<()> {
    folder.open("file", OFlags::WRONLY | OFlags::TRUNC).at("open(O_TRUNC)").map(drop)
}

fn read(folder: &Folder) -> Result<()> {
    folder.read("file", 100).at("read").map(drop)
}

fn read_names(folder: &Folder) -> Result<()> {
    for entry in Dir::read_from(folder.descriptor()).at("opendir")? {
        entry.at("readdir")?;
    }
    Ok(())
}

fn chmod(folder: &Folder) -> Result<()> {
    chmodat(folder.descriptor(), "file", Mode::from_raw_mode(0o640), AtFlags::empty()).at("chmod")
}

/// To the IDs that it has: POSIX excludes the call without IDs alone.
fn chown(folder: &Folder) -> Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    chownat(folder.descriptor(), "file", Some(user), Some(group), AtFlags::empty()).at("chown")
}

fn link(folder: &Folder) -> Result<()> {
    folder.link("file", "link").at("link")
}

fn unlink_one(folder: &Folder) -> Result<()> {
    folder.remove("link-2").at("unlink")
}

fn unlink_file(folder: &Folder) -> Result<()> {
    folder.remove("file").at("unlink")
}

fn set_past(folder: &Folder) -> Result<()> {
    set(folder, "file", Timespec { tv_sec: PAST, tv_nsec: 0 })
}

fn rename_file(folder: &Folder) -> Result<()> {
    folder.rename("file", "file-2").at("rename")
}

fn create_other(folder: &Folder) -> Result<()> {
    create(folder, "other").map(drop)
}

fn make_folder(folder: &Folder) -> Result<()> {
    folder.make_folder("folder-2", Mode::from_raw_mode(0o700)).at("mkdir")
}

fn remove_folder(folder: &Folder) -> Result<()> {
    folder.remove_any("folder", AtFlags::REMOVEDIR).at("rmdir")
}

fn symlink(folder: &Folder) -> Result<()> {
    folder.symlink("target", "symlink").at("symlink")
}

fn set(folder: &Folder, name: &str, time: Timespec) -> Result<()> {
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(folder.descriptor(), name, &times, AtFlags::empty()).at("utimensat")
}

/// Times in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    access: i128,
    modification: i128,
    change: i128,
}

impl Times {
    /// By paths, as programs look.
    fn of(folder: &Folder, subject: Subject) -> Result<Self> {
        let nanoseconds = |seconds: i64, part: i64| i128::from(seconds) * 1_000_000_000 + i128::from(part);
        let found = match subject {
            Names => folder.look().at("stat")?,
            // Its name after the call.
            File if super::exists(folder, "file") => stat(folder, "file")?,
            File => stat(folder, "file-2")?,
        };
        Ok(Self {
            access: nanoseconds(found.st_atime, found.st_atime_nsec as i64),
            modification: nanoseconds(found.st_mtime, found.st_mtime_nsec as i64),
            change: nanoseconds(found.st_ctime, found.st_ctime_nsec as i64),
        })
    }

    /// Whether the time is a later one than before the call.
    fn is_set(self, mark: Mark, before: Self) -> bool {
        match mark {
            Access => self.access > before.access,
            Modification => self.modification > before.modification,
            Change => self.change > before.change,
        }
    }
}

/// A call that was made.
struct Made {
    act: &'static Act,
    folder: Folder,
    before: Times,
    made_at: Instant,
}

/// Verdict on one call; those on all of them are kept for the other checks.
fn of(hands: &mut Hands, check: &str, wait: Duration) -> Result<SemanticsFound> {
    if hands.dates.is_empty() {
        hands.dates = all(hands.folder().at("open of the folder")?, wait)?;
    }
    let known = hands.dates.iter().find(|(name, _)| *name == check);
    known.map_or(Err(Fault { call: "check", errno: Errno::INVAL }), |(_, found)| found.clone())
}

type Dated = Vec<(&'static str, Result<SemanticsFound>)>;

fn all(folder: &Folder, wait: Duration) -> Result<Dated> {
    let (mut found, mut prepared) = (Dated::new(), Vec::new());
    for act in ACTS {
        match prepare(folder, act) {
            Ok(ready) => prepared.push(ready),
            Err(fault) => found.push((act.check, Err(fault))),
        }
    }
    let has_seconds = prepared.iter().all(|(_, _, before)| before.change % 1_000_000_000 == 0);
    thread::sleep(if has_seconds { SECOND_STEP } else { STEP });
    let mut pending = Vec::new();
    let mut keep = |made: Made, is_first, is_last| {
        let check = made.act.check;
        match judged(&made, is_first, is_last, wait) {
            Ok(None) => return Some(made),
            Ok(Some(verdict)) => found.push((check, Ok(verdict))),
            Err(fault) => found.push((check, Err(fault))),
        }
        None
    };
    let mut failed = Dated::new();
    for (act, folder, before) in prepared {
        match (act.call)(&folder) {
            // The first look is before anything else happens in the file system.
            Ok(()) => {
                pending.extend(keep(Made { act, folder, before, made_at: Instant::now() }, true, false))
            }
            Err(fault) => failed.push((act.check, Err(fault))),
        }
    }
    let begun = Instant::now();
    while !pending.is_empty() {
        thread::sleep(POLL_INTERVAL);
        let is_last = begun.elapsed() >= wait;
        pending = pending.into_iter().filter_map(|made| keep(made, false, is_last)).collect();
    }
    found.append(&mut failed);
    Ok(found)
}

/// A process that takes the place of another one begins anew.
fn folder_name(check: &str) -> String {
    format!("{check}-{}", std::process::id())
}

/// A folder with a file of a page.
fn prepared_folder(folder: &Folder, check: &str) -> Result<Folder> {
    let inner = folder.create_inner(&folder_name(check), Mode::from_raw_mode(0o700)).at("mkdir")?;
    create(&inner, "file")?.write_all_at(&[b'.'; 4096], 0).at("pwrite")?;
    Ok(inner)
}

fn prepare(folder: &Folder, act: &'static Act) -> Result<(&'static Act, Folder, Times)> {
    let inner = prepared_folder(folder, act.check)?;
    if act.check == "timestamps-unlink" {
        inner.link("file", "link-2").at("link")?;
    }
    if act.check == "timestamps-names-rmdir" {
        inner.make_folder("folder", Mode::from_raw_mode(0o700)).at("mkdir")?;
    }
    let past = Timespec { tv_sec: PAST, tv_nsec: 0 };
    match act.subject {
        File => set(&inner, "file", past)?,
        Names => set(folder, &folder_name(act.check), past)?,
    }
    let before = Times::of(&inner, act.subject)?;
    Ok((act, inner, before))
}

/// Verdict on a call; none while a time is still to be set.
fn judged(made: &Made, is_first: bool, is_last: bool, wait: Duration) -> Result<Option<SemanticsFound>> {
    let now = Times::of(&made.folder, made.act.subject)?;
    let is_kept = made.act.sets.contains(&Modification) || made.act.sets == READ;
    if !is_kept && now.is_set(Modification, made.before) {
        let text = "mtime changes, too";
        return Ok(Some(SemanticsFound::new(SemanticsVerdict::No).with(text)));
    }
    let missing: Vec<_> = made.act.sets.iter().filter(|mark| !now.is_set(**mark, made.before)).collect();
    if missing.is_empty() {
        return Ok(Some(in_time(Ok((!is_first).then(|| made.made_at.elapsed())))));
    }
    if !is_last {
        return Ok(None);
    }
    let names: Vec<_> = missing.iter().map(|mark| name_of(**mark)).collect();
    let text = format!("{} not within {} ms", names.join(", "), wait.as_millis());
    let found = SemanticsFound {
        stale_ns: in_time(Err(wait)).stale_ns,
        ..SemanticsFound::new(SemanticsVerdict::No).with(text)
    };
    Ok(Some(match made.act.check {
        "timestamps-rename" => left_open(false, "ctime stays"),
        _ if made.act.sets == READ && is_without_access_times(&made.folder)? => {
            left_open(false, "atime stays: mounted with noatime (mount(8))")
        }
        _ => found,
    }))
}

fn name_of(mark: Mark) -> &'static str {
    match mark {
        Access => "atime",
        Modification => "mtime",
        Change => "ctime",
    }
}

fn is_without_access_times(folder: &Folder) -> Result<bool> {
    Ok(fstatvfs(folder.descriptor()).at("fstatvfs")?.f_flag.contains(StatVfsMountFlags::NOATIME))
}

/// By a process of its own, which a mapping that is not served ends.
fn mapped_store(hands: &mut Hands, wait: Duration) -> Result<SemanticsFound> {
    let inner = prepared_folder(hands.folder().at("open of the folder")?, "timestamps-map")?;
    set(&inner, "file", Timespec { tv_sec: PAST, tv_nsec: 0 })?;
    let before = Times::of(&inner, File)?;
    thread::sleep(if before.change % 1_000_000_000 == 0 { SECOND_STEP } else { STEP });
    let mut process = hands.start(None).at("start of a process")?;
    let name = || "file".to_owned();
    let mut file = 0;
    for (call, operation) in [
        ("open(O_DIRECTORY)", Some(Operation::Descend { name: folder_name("timestamps-map") })),
        ("open", Some(Operation::OpenExisting { name: name(), writing: true })),
        ("mmap", None),
        ("mmap", Some(Operation::MapStore { file: 1, offset: 0, bytes: b"new".to_vec() })),
        ("msync", Some(Operation::MapSynchronize { file: 1 })),
    ] {
        let acted = process.act(&operation.unwrap_or(Operation::Map { file }), wait.max(ACCESS_TIME));
        if let Some(errno) = acted.errno {
            return Err(Fault { call, errno: Errno::from_raw_os_error(errno) });
        }
        if acted.ended_by.is_some() || acted.pending {
            return Ok(
                SemanticsFound::new(SemanticsVerdict::No).with("the access to the mapping ends the process")
            );
        }
        file = u32::try_from(acted.number).unwrap_or(0);
    }
    within(wait, || {
        let now = Times::of(&inner, File)?;
        let missing = WRITTEN.iter().filter(|mark| !now.is_set(**mark, before));
        let names: Vec<_> = missing.map(|mark| name_of(*mark)).collect();
        Ok((!names.is_empty()).then(|| format!("{} not set", names.join(", "))))
    })
}

fn now_and_omit(folder: &Folder) -> Result<SemanticsFound> {
    let name = "timestamps-now-omit";
    drop(create(folder, name)?);
    set(folder, name, Timespec { tv_sec: PAST, tv_nsec: 0 })?;
    let change = |access, modification| {
        let time = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
        let times = Timestamps { last_access: time(access), last_modification: time(modification) };
        utimensat(folder.descriptor(), name, &times, AtFlags::empty()).at("utimensat")
    };
    // Clocks of servers may differ.
    let is_now = |seconds: i64| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        i64::try_from(now).is_ok_and(|now| (seconds - now).abs() < 3600)
    };
    let mut wrong = Vec::new();
    change(UTIME_OMIT, UTIME_NOW)?;
    let one = stat(folder, name)?;
    if one.st_atime != PAST {
        wrong.push(format!("UTIME_OMIT changes atime to {}", one.st_atime));
    }
    if !is_now(one.st_mtime) {
        wrong.push(format!("UTIME_NOW sets mtime to {}", one.st_mtime));
    }
    set(folder, name, Timespec { tv_sec: PAST, tv_nsec: 0 })?;
    change(UTIME_NOW, UTIME_OMIT)?;
    let two = stat(folder, name)?;
    if two.st_mtime != PAST {
        wrong.push(format!("UTIME_OMIT changes mtime to {}", two.st_mtime));
    }
    if !is_now(two.st_atime) {
        wrong.push(format!("UTIME_NOW sets atime to {}", two.st_atime));
    }
    none_wrong(&wrong)
}
