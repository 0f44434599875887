//! Owners, groups, and what another user may do. It takes root, and a mount that is for other users.

use std::time::Duration;

use clearstream_schema::semantics::{
    SemanticsArea, SemanticsFound,
    SemanticsVerdict::{Inconclusive, No},
};
use clearstream_sys::errno::name as errno_name;
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, Uid, chmodat, chownat, fchmod},
    io::Errno,
    process::geteuid,
};

use super::{Check, Result, create, found, none_wrong, right, stat};
use crate::semantics::{
    calls::{Acted, Operation},
    checks::{Run, check, left_open},
    faults::{At as _, is_circumstance},
    folder::Folder,
    operations::Hands,
    process::Process,
};

/// The other user, and its group: nobody.
const OTHER: u32 = 65_534;
/// A group that nobody has by itself.
const GROUP: u32 = 54_321;
/// Groups of a process; NFS tells the first 16 (RFC 5531, authsys_parms).
const MANY_GROUPS: u32 = 20;
/// Time of an operation of the other user.
const OPERATION_TIME: Duration = Duration::from_secs(5);

macro_rules! owners {
    ($name:literal, $title:literal, $standard:literal, $run:ident) => {
        check(
            SemanticsArea::Permissions,
            $name,
            $title,
            $standard,
            Run::Own(|hands, _| with_other(hands, $name, $run)),
        )
    };
}

pub(super) const CHECKS: &[Check] = &[
    owners!("owner-new", "owner of new files", "POSIX.1-2017 open(): effective IDs", of_new_files),
    owners!("chown", "chown by root", "POSIX.1-2017 chown()", kept),
    owners!("chown-link", "lchown of a symbolic link", "POSIX.1-2017 lchown()", of_link),
    owners!(
        "chown-others",
        "chown, chmod by others",
        "POSIX.1-2017 chown(), chmod(): EPERM",
        changed_by_others
    ),
    owners!("mode-denies", "modes of files deny", "POSIX.1-2017 4.5 File Access Permissions", files_deny),
    owners!("mode-denies-fifo", "modes of named pipes deny", "POSIX.1-2017 4.5, mkfifo()", fifos_deny),
    owners!(
        "mode-denies-names",
        "modes of directories deny",
        "POSIX.1-2017 4.5, unlink(), rename()",
        names_deny
    ),
    owners!("mode-open-other", "open files of another user", "POSIX.1-2017 open(), O_CREAT", open_files),
    owners!("sticky", "sticky directories", "POSIX.1-2017 unlink(), S_ISVTX", sticky),
    owners!("setgid-directory", "directory passes its group", "inode(7), S_ISGID", group_of_directory),
    owners!("chown-clears", "chown clears set-user-ID", "POSIX.1-2017 chown()", cleared_by_chown),
    owners!("chmod-clears", "chmod clears set-group-ID", "POSIX.1-2017 chmod()", cleared_by_chmod),
    owners!(
        "write-clears",
        "write clears set-user-ID",
        "POSIX.1-2017 write(): \"may be cleared\"",
        cleared_by_write
    ),
    owners!("times-others", "utimensat by others", "POSIX.1-2017 utimensat(): EPERM", times_by_others),
    owners!("groups", "supplementary groups", "POSIX.1-2017 4.5 File Access Permissions", groups),
];

/// A process of the other user in a folder.
struct Other(Process);

impl Other {
    fn start(hands: &Hands, name: &str, groups: Vec<u32>) -> Result<Self> {
        let mut other = Self(hands.start(None).at("start of a process")?);
        other.act(Operation::Descend { name: name.to_owned() }).at("open(O_DIRECTORY)")?;
        other.act(Operation::Become { user: OTHER, groups }).at("setresuid")?;
        Ok(other)
    }

    fn act(&mut self, operation: Operation) -> std::result::Result<Acted, Errno> {
        let acted = self.0.act(&operation, OPERATION_TIME);
        match acted.errno {
            _ if acted.pending || acted.ended_by.is_some() => Err(Errno::TIMEDOUT),
            Some(errno) => Err(Errno::from_raw_os_error(errno)),
            None => Ok(acted),
        }
    }

    fn create(&mut self, name: &str, mode: u32) -> Result<u32> {
        let made = self.act(Operation::Create { name: name.to_owned(), mode });
        let made = made.at("open(O_CREAT|O_EXCL) by another user")?;
        Ok(u32::try_from(made.number).unwrap_or(0))
    }

    /// What is wrong with the operation, unless it fails with one of these.
    fn refused(&mut self, what: &str, operation: Operation, expected: &[Errno]) -> Result<Option<String>> {
        Ok(match self.telling(operation)? {
            Err(errno) if expected.contains(&errno) => None,
            Err(errno) => {
                let name = |errno: &Errno| errno_name(errno.raw_os_error());
                let names: Vec<_> = expected.iter().map(name).collect();
                Some(format!("{what} fails with {} instead of {}", name(&errno), names.join(" or ")))
            }
            Ok(_) => Some(format!("{what} succeeds")),
        })
    }

    /// What is wrong with the operation, unless it succeeds.
    fn allowed(&mut self, what: &str, operation: Operation) -> Result<Option<String>> {
        let failed = self.telling(operation)?.err();
        Ok(failed.map(|errno| format!("{what} fails with {}", errno_name(errno.raw_os_error()))))
    }

    /// How an operation ended, where that tells something about the mount.
    fn telling(&mut self, operation: Operation) -> Result<std::result::Result<Acted, Errno>> {
        match self.act(operation) {
            Err(errno) if is_circumstance(errno) => Err(errno).at("a call of another user"),
            ended => Ok(ended),
        }
    }
}

/// Runs a check in a folder of its own that is open to everybody.
fn with_other(
    hands: &Hands,
    name: &str,
    run: fn(&Hands, &Folder, &mut Other) -> Result<SemanticsFound>,
) -> Result<SemanticsFound> {
    if !geteuid().is_root() {
        return found(Inconclusive, "it takes root to act as another user");
    }
    let folder = hands.folder().at("open of the folder")?;
    let inner = folder.create_inner(name, Mode::from_raw_mode(0o777)).at("mkdir")?;
    // Servers that act as the user go by the whole path.
    fchmod(folder.descriptor(), Mode::from_raw_mode(0o711)).at("fchmod")?;
    let result =
        Other::start(hands, name, Vec::new()).and_then(|mut other| match reached(&inner, &mut other)? {
            None => run(hands, &inner, &mut other),
            Some(why) => found(Inconclusive, why),
        });
    fchmod(folder.descriptor(), Mode::from_raw_mode(0o700)).at("fchmod")?;
    result
}

/// Why the other user does not come as far as what is checked, if so.
fn reached(folder: &Folder, other: &mut Other) -> Result<Option<&'static str>> {
    drop(create(folder, "reached")?);
    chmod(folder, "reached", 0o666)?;
    match other.act(Operation::List { prefix: String::new() }) {
        Err(Errno::ACCESS) => {
            return Ok(Some("the mount is for its own user only (FUSE without allow_other)"));
        }
        Err(errno) => return Err(errno).at("opendir by another user"),
        Ok(_) => {}
    }
    Ok(match other.act(Operation::Attributes { name: "reached".to_owned() }) {
        Err(Errno::ACCESS | Errno::NOENT) => {
            Some("user 65534 does not reach the folder by its path at the server")
        }
        _ => None,
    })
}

fn chmod(folder: &Folder, name: &str, mode: u32) -> Result<()> {
    chmodat(folder.descriptor(), name, Mode::from_raw_mode(mode), AtFlags::empty()).at("chmod")
}

fn chown(folder: &Folder, name: &str, user: Option<u32>, group: Option<u32>) -> Result<()> {
    let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
    chownat(folder.descriptor(), name, user, group, AtFlags::empty()).at("chown by root")
}

fn owner(folder: &Folder, name: &str) -> Result<(u32, u32)> {
    let stat = stat(folder, name)?;
    Ok((stat.st_uid, stat.st_gid))
}

fn mode(folder: &Folder, name: &str) -> Result<u32> {
    Ok(stat(folder, name)?.st_mode & 0o7777)
}

fn of_new_files(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    other.create("file", 0o644)?;
    let (user, group) = owner(folder, "file")?;
    right(
        (user, group) == (OTHER, OTHER),
        format!("user {OTHER}, group {OTHER} makes a file of user {user}, group {group}"),
    )
}

fn kept(_: &Hands, folder: &Folder, _: &mut Other) -> Result<SemanticsFound> {
    drop(create(folder, "file")?);
    let mut wrong = Vec::new();
    for (user, group, expected) in [
        (Some(OTHER), Some(GROUP), (OTHER, GROUP)),
        (None, Some(OTHER), (OTHER, OTHER)),
        (Some(1), None, (1, OTHER)),
    ] {
        chown(folder, "file", user, group)?;
        let found = owner(folder, "file")?;
        if found != expected {
            wrong.push(format!("{}:{} instead of {}:{}", found.0, found.1, expected.0, expected.1));
        }
    }
    none_wrong(&wrong)
}

/// The link's, and not that of what it leads to.
fn of_link(_: &Hands, folder: &Folder, _: &mut Other) -> Result<SemanticsFound> {
    drop(create(folder, "target")?);
    folder.symlink("target", "link").at("symlink")?;
    let (user, group) = (Uid::from_raw(OTHER), Gid::from_raw(GROUP));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    chownat(folder.descriptor(), "link", Some(user), Some(group), flags).at("lchown by root")?;
    let mut wrong = Vec::new();
    for (name, expected) in [("target", (0, 0)), ("link", (OTHER, GROUP))] {
        let kept = owner(folder, name)?;
        if kept != expected {
            wrong.push(format!("the {name} has {kept:?} instead of {expected:?}"));
        }
    }
    none_wrong(&wrong)
}

fn changed_by_others(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    let name = || "file".to_owned();
    drop(create(folder, "file")?);
    chmod(folder, "file", 0o666)?;
    other.create("own", 0o600)?;
    let take = Operation::SetOwner { name: name(), user: Some(OTHER), group: None };
    let give = Operation::SetOwner { name: "own".to_owned(), user: Some(1), group: None };
    let join = Operation::SetOwner { name: "own".to_owned(), user: None, group: Some(GROUP) };
    let open = Operation::SetMode { name: name(), mode: 0o777 };
    let wrong = [
        other.refused("chown of root's file", take, &[Errno::PERM])?,
        other.refused("chown of an own file to another user", give, &[Errno::PERM])?,
        other.refused("chown to a group that it is not in", join, &[Errno::PERM])?,
        other.refused("chmod of root's file", open, &[Errno::PERM])?,
        other.allowed("chmod of an own file", Operation::SetMode { name: "own".to_owned(), mode: 0o640 })?,
    ];
    none_wrong(&wrong.into_iter().flatten().collect::<Vec<_>>())
}

/// Of the three classes the first that the user is in decides.
fn files_deny(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    let cases = [
        ("root", 0o600, false, false),
        ("root", 0o604, false, true),
        ("root", 0o604, true, false),
        ("root", 0o606, true, true),
        ("own", 0o600, true, true),
        ("own", 0o400, true, false),
        ("own", 0o066, false, false),
    ];
    for name in ["root", "own"] {
        folder.store(name, b"content").at("write")?;
    }
    chown(folder, "own", Some(OTHER), Some(OTHER))?;
    let mut wrong = Vec::new();
    for (name, mode, writing, may) in cases {
        chmod(folder, name, mode)?;
        let (whose, how) = (
            if name == "own" { "an own file" } else { "root's file" },
            if writing { "write" } else { "read" },
        );
        let what = format!("open to {how} of {whose} of mode {mode:04o}");
        let open = Operation::OpenExisting { name: name.to_owned(), writing };
        wrong.extend(match may {
            true => other.allowed(&what, open)?,
            false => other.refused(&what, open, &[Errno::ACCESS])?,
        });
    }
    none_wrong(&wrong)
}

/// A pipe that another user may open is a way into a program that reads it.
fn fifos_deny(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    let mut wrong = Vec::new();
    for (mode, may) in [(0o600, false), (0o606, true)] {
        let name = format!("fifo-{mode:o}");
        folder.node(&name, FileType::Fifo, Mode::from_raw_mode(0o600), 0).at("mknod")?;
        chmod(folder, &name, mode)?;
        let what = format!("open to read and write of root's named pipe of mode {mode:04o}");
        // For both it does not wait for another end (fifo(7)).
        let open = Operation::OpenExisting { name, writing: true };
        wrong.extend(match may {
            true => other.allowed(&what, open)?,
            false => other.refused(&what, open, &[Errno::ACCESS])?,
        });
    }
    none_wrong(&wrong)
}

fn names_deny(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    let name = || "file".to_owned();
    // Each call has a file of its own: one that is wrongly granted takes nothing from the others.
    for name in ["file", "moved", "removed"] {
        folder.store(name, b"content").at("write")?;
        chmod(folder, name, 0o666)?;
    }
    let set = |mode| fchmod(folder.descriptor(), Mode::from_raw_mode(mode)).at("fchmod");
    let denied = &[Errno::ACCESS];
    let rename = |from: &str| Operation::Rename { from: from.to_owned(), to: format!("{from}-2") };
    set(0o755)?;
    let mut wrong = vec![
        other.refused(
            "a new file in 0755",
            Operation::Create { name: "new".to_owned(), mode: 0o600 },
            denied,
        )?,
        other.refused("rename in 0755", rename("moved"), denied)?,
        other.refused("unlink in 0755", Operation::Remove { name: "removed".to_owned() }, denied)?,
        other.allowed("open in 0755", Operation::OpenExisting { name: name(), writing: true })?,
    ];
    set(0o711)?;
    wrong.push(other.refused("readdir of 0711", Operation::List { prefix: String::new() }, denied)?);
    wrong.push(other.allowed("stat in 0711", Operation::Attributes { name: name() })?);
    set(0o744)?;
    wrong.push(other.refused("stat in 0744", Operation::Attributes { name: name() }, denied)?);
    set(0o777)?;
    wrong.push(other.allowed("rename in 0777", rename("file"))?);
    none_wrong(&wrong.into_iter().flatten().collect::<Vec<_>>())
}

/// A descriptor keeps what it was opened for.
fn open_files(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    let write = |file| Operation::Write { file, offset: 0, bytes: b"new".to_vec() };
    let read_only = other.create("read-only", 0o444)?;
    let own = other.create("own", 0o600)?;
    let read = || Operation::Read { file: own, offset: 0, length: 3 };
    other.act(write(own)).at("pwrite by another user")?;
    // What fails before says nothing of the change.
    other.act(read()).at("pread by another user")?;
    chown(folder, "own", Some(0), Some(0))?;
    chmod(folder, "own", 0)?;
    let wrong = [
        other.allowed("write to a new file of mode 0444", write(read_only))?,
        other.allowed("write to an open file that became root's", write(own))?,
        other.allowed("read of an open file that became root's", read())?,
    ];
    none_wrong(&wrong.into_iter().flatten().collect::<Vec<_>>())
}

fn sticky(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    // Each call has files of its own: one that is wrongly granted takes nothing from the others.
    for name in ["file", "moved", "replaced"] {
        drop(create(folder, name)?);
    }
    for name in ["own", "own-2"] {
        other.create(name, 0o600)?;
    }
    fchmod(folder.descriptor(), Mode::from_raw_mode(0o1777)).at("fchmod")?;
    let denied = &[Errno::PERM, Errno::ACCESS];
    let name = || "file".to_owned();
    let wrong = [
        other.refused(
            "rename of root's file",
            Operation::Rename { from: "moved".to_owned(), to: "mine".to_owned() },
            denied,
        )?,
        other.refused(
            "rename over root's file",
            Operation::Rename { from: "own-2".to_owned(), to: "replaced".to_owned() },
            denied,
        )?,
        other.refused("unlink of root's file", Operation::Remove { name: name() }, denied)?,
        other.allowed("unlink of an own file", Operation::Remove { name: "own".to_owned() })?,
    ];
    none_wrong(&wrong.into_iter().flatten().collect::<Vec<_>>())
}

/// Files and directories get the group of the directory, directories its bit, too.
fn group_of_directory(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    let group = |name| Ok(owner(folder, name)?.1);
    rustix::fs::fchown(folder.descriptor(), None, Some(Gid::from_raw(GROUP))).at("chown by root")?;
    fchmod(folder.descriptor(), Mode::from_raw_mode(0o2777)).at("fchmod")?;
    drop(create(folder, "file")?);
    other.create("other", 0o644)?;
    folder.make_folder("folder", Mode::from_raw_mode(0o755)).at("mkdir")?;
    let mut wrong = Vec::new();
    for name in ["file", "other", "folder"] {
        let group = group(name)?;
        if group != GROUP {
            wrong.push(format!("the group of a new {name} is {group} instead of {GROUP}"));
        }
    }
    if mode(folder, "folder")? & 0o2000 == 0 {
        wrong.push("a new folder does not have set-group-ID".to_owned());
    }
    folder.remove_any("folder", AtFlags::REMOVEDIR).at("rmdir")?;
    none_wrong(&wrong)
}

/// A program of the other user, with set-user-ID and set-group-ID.
/// A file with this owner and these bits; what is found where the mount does not keep them: then nothing can clear them.
fn program(folder: &Folder, user: u32, group: u32, asked: u32) -> Result<Option<SemanticsFound>> {
    folder.store("program", b"content").at("write")?;
    chown(folder, "program", Some(user), Some(group))?;
    chmod(folder, "program", asked)?;
    let kept = mode(folder, "program")?;
    let why = || SemanticsFound::new(Inconclusive).with(format!("chmod to {asked:04o} leaves {kept:04o}"));
    Ok((kept != asked).then(why))
}

fn cleared_by_chown(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    if let Some(unknown) = program(folder, OTHER, OTHER, 0o6755)? {
        return Ok(unknown);
    }
    let change = Operation::SetOwner { name: "program".to_owned(), user: None, group: Some(OTHER) };
    other.act(change).at("chown by the owner to its group")?;
    let mode = mode(folder, "program")?;
    right(mode == 0o755, format!("the mode is {mode:04o} instead of 0755"))
}

fn cleared_by_chmod(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    if let Some(unknown) = program(folder, OTHER, GROUP, 0o755)? {
        return Ok(unknown);
    }
    let change = Operation::SetMode { name: "program".to_owned(), mode: 0o2755 };
    other.act(change).at("chmod by the owner")?;
    let mode = mode(folder, "program")?;
    right(mode == 0o755, format!("the mode is {mode:04o} instead of 0755: the owner is not in the group"))
}

fn cleared_by_write(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    if let Some(unknown) = program(folder, 0, 0, 0o6777)? {
        return Ok(unknown);
    }
    let opened = other.act(Operation::OpenExisting { name: "program".to_owned(), writing: true });
    let file = u32::try_from(opened.at("open by another user")?.number).unwrap_or(0);
    other.act(Operation::Write { file, offset: 0, bytes: b"other".to_vec() }).at("pwrite")?;
    let mode = mode(folder, "program")?;
    if mode & 0o777 != 0o777 {
        return found(No, format!("the mode is {mode:04o}"));
    }
    Ok(left_open(
        mode == 0o777,
        format!("the mode stays {mode:04o}: whoever may write gets the owner's rights"),
    ))
}

/// Who may write sets the times to now; another time is for the owner.
fn times_by_others(_: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    for (name, mode) in [("writable", 0o666), ("readable", 0o644)] {
        drop(create(folder, name)?);
        chmod(folder, name, mode)?;
    }
    let set = |name: &str, second| Operation::SetTimes { name: name.to_owned(), second };
    let wrong = [
        other.refused(
            "a time of root's writable file",
            set("writable", Some(1_000_000_000)),
            &[Errno::PERM],
        )?,
        other.refused(
            "a time of root's readable file",
            set("readable", Some(1_000_000_000)),
            &[Errno::PERM],
        )?,
        other.refused("UTIME_NOW of a readable file", set("readable", None), &[Errno::ACCESS])?,
        other.allowed("UTIME_NOW of a writable file", set("writable", None))?,
    ];
    none_wrong(&wrong.into_iter().flatten().collect::<Vec<_>>())
}

fn groups(hands: &Hands, folder: &Folder, other: &mut Other) -> Result<SemanticsFound> {
    folder.store("file", b"content").at("write")?;
    chown(folder, "file", Some(0), Some(GROUP))?;
    chmod(folder, "file", 0o640)?;
    let open = || Operation::OpenExisting { name: "file".to_owned(), writing: false };
    let mut wrong: Vec<String> =
        other.refused("open without the group", open(), &[Errno::ACCESS])?.into_iter().collect();
    for count in [1, MANY_GROUPS] {
        let groups = (1..count).map(|number| GROUP + number).chain([GROUP]).collect();
        let mut member = Other::start(hands, "groups", groups)?;
        wrong.extend(member.allowed(&format!("open by the last of {count} groups"), open())?);
    }
    none_wrong(&wrong)
}
