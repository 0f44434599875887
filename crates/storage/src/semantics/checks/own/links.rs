//! Hard links, symbolic links, special files, and renaming of one name onto another.

use std::{
    os::unix::fs::{FileExt as _, MetadataExt as _},
    time::Duration,
};

use clearstream_schema::semantics::{
    SemanticsArea, SemanticsFound,
    SemanticsVerdict::{Inconclusive, No, NotSupported, Yes},
};
use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, makedev, readlinkat, utimensat,
    },
    io::Errno,
};

use super::{Check, Result, create, exists, found, none_wrong, right, stat, within};
use crate::semantics::{
    checks::{Run, check, left_open, with_errno},
    faults::{At as _, Fault},
    folder::{Folder, raw},
    operations::Hands,
};

const fn links(
    name: &'static str,
    title: &'static str,
    standard: &'static str,
    run: fn(&Folder) -> Result<SemanticsFound>,
) -> Check {
    check(SemanticsArea::Features, name, title, standard, Run::Alone(run))
}

pub(super) const CHECKS: &[Check] = &[
    check(SemanticsArea::Features, "hard-link", "hard links", "POSIX.1-2017 link()", Run::Own(hard_link)),
    check(
        SemanticsArea::Features,
        "hard-link-count",
        "link count after unlink",
        "POSIX.1-2017 unlink()",
        Run::Own(link_count),
    ),
    check(
        SemanticsArea::Features,
        "hard-link-replaced",
        "link count after rename",
        "POSIX.1-2017 rename()",
        Run::Own(replaced_link),
    ),
    links("symbolic-link", "symbolic links", "POSIX.1-2017 symlink()", symbolic_link),
    links(
        "symbolic-link-length",
        "target of 4095 bytes",
        "POSIX.1-2017 SYMLINK_MAX: 255 at least",
        link_length,
    ),
    links("symbolic-link-times", "times of a symbolic link", "POSIX.1-2017 utimensat()", link_times),
    links("rename-links", "rename of two links", "POSIX.1-2017 rename(): does nothing", rename_links),
    links("rename-inode", "rename keeps the inode", "POSIX.1-2017 rename()", rename_inode),
    check(
        SemanticsArea::Features,
        "rename-open",
        "replaced file stays open",
        "POSIX.1-2017 rename(): as unlink()",
        Run::Own(replaced_open),
    ),
    links("rename-noreplace", "RENAME_NOREPLACE", "rename(2)", no_replace),
    links("rename-exchange", "RENAME_EXCHANGE", "rename(2)", exchange),
    links("fifo", "named pipes", "POSIX.1-2017 mkfifo()", fifo),
    links("socket", "names of sockets", "mknod(2), S_IFSOCK", socket),
    links("device", "device nodes", "mknod(2), S_IFCHR", device),
];

fn link(folder: &Folder, from: &str, to: &str) -> Result<()> {
    folder.link(from, to).at("link")
}

/// Both names are of one file: inode, count, and content that is written by one of them.
fn hard_link(hands: &mut Hands, wait: Duration) -> Result<SemanticsFound> {
    let folder = hands.folder().at("open of the folder")?;
    let file = create(folder, "hard-link")?;
    link(folder, "hard-link", "hard-link-2")?;
    if stat(folder, "hard-link")?.st_ino != stat(folder, "hard-link-2")?.st_ino {
        return found(No, "the two names have different inode numbers");
    }
    folder.store("hard-link-2", b"by the other name").at("write")?;
    let mut bytes = Vec::new();
    let counts = within(wait, || {
        bytes = folder.read("hard-link", 100).at("read")?;
        let links = file.metadata().at("fstat")?.nlink();
        Ok((links != 2).then(|| format!("link count {links}")))
    })?;
    match bytes == b"by the other name" {
        true => Ok(counts),
        false => found(No, "what is written by one name is not read by the other"),
    }
}

/// Of a file that is open: 3, and one less for each name that goes away.
fn link_count(hands: &mut Hands, wait: Duration) -> Result<SemanticsFound> {
    let folder = hands.folder().at("open of the folder")?;
    let name = |number: u64| format!("hard-link-count-{number}");
    let file = create(folder, &name(1))?;
    for number in [2, 3] {
        link(folder, &name(1), &name(number))?;
    }
    let mut worst = SemanticsFound::new(Yes);
    for left in [3, 2, 1, 0] {
        let found = within(wait, || {
            let links = file.metadata().at("fstat")?.nlink();
            Ok((links != left).then(|| format!("link count {links} instead of {left}")))
        })?;
        match found.verdict {
            No => return Ok(found),
            _ if found.stale_ns > worst.stale_ns => worst = found,
            _ => {}
        }
        if left > 0 {
            folder.remove(&name(left)).at("unlink")?;
        }
    }
    Ok(worst)
}

/// A rename over one of the names of a file takes that name away from it.
fn replaced_link(hands: &mut Hands, wait: Duration) -> Result<SemanticsFound> {
    let folder = hands.folder().at("open of the folder")?;
    let names = ["hard-link-replaced", "hard-link-replaced-2", "hard-link-replaced-3"];
    let file = create(folder, names[0])?;
    link(folder, names[0], names[1])?;
    let counted = within(wait, || {
        let links = file.metadata().at("fstat")?.nlink();
        Ok((links != 2).then(|| format!("link count {links} of two names")))
    })?;
    if counted.verdict == No {
        return Ok(SemanticsFound { verdict: Inconclusive, stale_ns: None, ..counted });
    }
    drop(create(folder, names[2])?);
    folder.rename(names[2], names[1]).at("rename")?;
    // By the open file first: a look at the name may bring a client to ask its server again.
    let open = within(wait, || {
        let links = file.metadata().at("fstat")?.nlink();
        Ok((links != 1).then(|| format!("link count {links} by fstat instead of 1")))
    })?;
    let named = within(wait, || {
        let links = stat(folder, names[0])?.st_nlink;
        Ok((links != 1).then(|| format!("link count {links} by stat instead of 1")))
    })?;
    let is_named_later = named.verdict == No || named.stale_ns > open.stale_ns;
    Ok(if open.verdict != No && is_named_later { named } else { open })
}

/// Editors and package managers replace files that programs have open.
fn replaced_open(hands: &mut Hands, wait: Duration) -> Result<SemanticsFound> {
    let folder = hands.folder().at("open of the folder")?;
    folder.store("rename-open", b"old").at("write")?;
    let old = folder.open("rename-open", OFlags::RDONLY).at("open")?;
    folder.store("rename-open-2", b"new").at("write")?;
    folder.rename("rename-open-2", "rename-open").at("rename")?;
    let mut bytes = [0; 3];
    match old.read_exact_at(&mut bytes, 0) {
        Err(error) => {
            let text = "the replaced file can no longer be read";
            return Ok(with_errno(SemanticsFound::new(No).with(text), raw(&error)));
        }
        Ok(()) if &bytes != b"old" => return found(No, "the open file reads as the new one"),
        Ok(()) => {}
    }
    if folder.read("rename-open", 10).at("read")? != b"new" {
        return found(No, "the name reads as the replaced file");
    }
    within(wait, || {
        let links = old.metadata().at("fstat")?.nlink();
        Ok((links != 0).then(|| format!("readable, but the link count is {links} instead of 0")))
    })
}

fn symbolic_link(folder: &Folder) -> Result<SemanticsFound> {
    // Nothing has these names, and none of the letters is changed.
    const TARGETS: [&str; 3] = ["target", "target of a link/\u{e4}", "../target of a link"];
    let mut wrong = Vec::new();
    for (number, target) in TARGETS.into_iter().enumerate() {
        let name = format!("symbolic-link-{number}");
        folder.symlink(target, &name).at("symlink")?;
        let read = match readlinkat(folder.descriptor(), name.as_str(), Vec::new()) {
            Err(errno) if number > 0 => {
                let text = format!("readlink fails for the target \"{target}\"");
                return Ok(with_errno(SemanticsFound::new(No).with(text), errno));
            }
            read => read.at("readlink")?,
        };
        if read.as_bytes() != target.as_bytes() {
            wrong.push(format!("the target \"{target}\" is read as \"{}\"", read.to_string_lossy()));
        }
        let stat = stat(folder, &name)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return found(No, "lstat does not report a symbolic link");
        }
        let (size, length) = (stat.st_size, target.len() as i64);
        if size != length {
            wrong.push(format!("size {size} instead of {length}, the length of \"{target}\""));
        }
    }
    none_wrong(&wrong)
}

/// Of the link, not of what it leads to: archives restore both.
fn link_times(folder: &Folder) -> Result<SemanticsFound> {
    const TIMES: [i64; 2] = [1_000_000_000, 1_100_000_000];
    // That of the access differs from that of the modification.
    const ACCESSED: i64 = 50_000_000;
    let names = ["symbolic-link-target", "symbolic-link-times"];
    drop(create(folder, names[0])?);
    folder.symlink(names[0], names[1]).at("symlink")?;
    for (name, seconds) in names.into_iter().zip(TIMES) {
        let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time(seconds + ACCESSED), last_modification: time(seconds) };
        let set = utimensat(folder.descriptor(), name, &times, AtFlags::SYMLINK_NOFOLLOW);
        set.at("utimensat(AT_SYMLINK_NOFOLLOW)")?;
    }
    let mut wrong = Vec::new();
    for ((name, what), seconds) in names.into_iter().zip(["target", "link"]).zip(TIMES) {
        let kept = stat(folder, name)?;
        for (time, kept, set) in
            [("mtime", kept.st_mtime, seconds), ("atime", kept.st_atime, seconds + ACCESSED)]
        {
            if kept != set {
                wrong.push(format!("{time} of the {what} is {kept} instead of {set}"));
            }
        }
    }
    none_wrong(&wrong)
}

/// The longest target of a path, PATH_MAX with its end; file systems may have a shorter limit.
fn link_length(folder: &Folder) -> Result<SemanticsFound> {
    let mut longest = 0;
    for length in [255, 1023, 4095] {
        let (name, target) = (format!("symbolic-link-{length}"), "t".repeat(length));
        match folder.symlink(&target, &name) {
            Err(Errno::NAMETOOLONG) if longest >= 255 => {
                let text = format!("{length} bytes fail, {longest} succeed");
                return Ok(with_errno(left_open(false, text), Errno::NAMETOOLONG));
            }
            Err(errno) if longest >= 255 => {
                let text = format!("{length} bytes fail, {longest} succeed");
                return Ok(with_errno(SemanticsFound::new(No).with(text), errno));
            }
            made => made.at("symlink")?,
        }
        let read = readlinkat(folder.descriptor(), name.as_str(), Vec::new()).at("readlink")?;
        if read.as_bytes() != target.as_bytes() {
            return found(No, format!("{length} bytes are read as {}", read.as_bytes().len()));
        }
        longest = length;
    }
    Ok(SemanticsFound::new(Yes))
}

/// git and mail programs rely on the old name being there.
fn rename_links(folder: &Folder) -> Result<SemanticsFound> {
    drop(create(folder, "rename-links")?);
    link(folder, "rename-links", "rename-links-2")?;
    folder.rename("rename-links", "rename-links-2").at("rename of two links of a file")?;
    right(exists(folder, "rename-links") && exists(folder, "rename-links-2"), "one of the names is gone")
}

fn rename_inode(folder: &Folder) -> Result<SemanticsFound> {
    drop(create(folder, "rename-inode")?);
    let before = stat(folder, "rename-inode")?.st_ino;
    folder.rename("rename-inode", "rename-inode-2").at("rename")?;
    let after = stat(folder, "rename-inode-2")?.st_ino;
    if exists(folder, "rename-inode") {
        return found(No, "the old name is still there");
    }
    right(before == after, format!("inode {before} becomes {after}"))
}

fn no_replace(folder: &Folder) -> Result<SemanticsFound> {
    folder.store("rename-noreplace", b"one").at("write")?;
    folder.store("rename-noreplace-2", b"two").at("write")?;
    match folder.rename_with("rename-noreplace", "rename-noreplace-2", RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => {}
        Ok(()) => return found(No, "an existing file is replaced"),
        other => other.at("renameat2")?,
    }
    folder.rename_with("rename-noreplace", "rename-noreplace-3", RenameFlags::NOREPLACE).at("renameat2")?;
    let is_right = folder.read("rename-noreplace-3", 10).at("read")? == b"one"
        && folder.read("rename-noreplace-2", 10).at("read")? == b"two";
    right(is_right, "the content is that of the other file")
}

fn exchange(folder: &Folder) -> Result<SemanticsFound> {
    folder.store("rename-exchange", b"one").at("write")?;
    folder.store("rename-exchange-2", b"two").at("write")?;
    folder.rename_with("rename-exchange", "rename-exchange-2", RenameFlags::EXCHANGE).at("renameat2")?;
    let is_right = exists(folder, "rename-exchange")
        && folder.read("rename-exchange", 10).at("read")? == b"two"
        && folder.read("rename-exchange-2", 10).at("read")? == b"one";
    right(is_right, "the names are not exchanged")
}

/// A node by mknod(2), which lstat reports as what it is.
fn node(folder: &Folder, name: &str, kind: FileType, device: u64) -> Result<SemanticsFound> {
    folder.node(name, kind, Mode::from_raw_mode(0o600), device).at("mknod")?;
    let stat = stat(folder, name)?;
    let is_right = FileType::from_raw_mode(stat.st_mode) == kind && stat.st_rdev as u64 == device;
    folder.remove(name).at("unlink")?;
    right(is_right, "stat reports another type or number")
}

fn fifo(folder: &Folder) -> Result<SemanticsFound> {
    node(folder, "fifo", FileType::Fifo, 0)
}

fn socket(folder: &Folder) -> Result<SemanticsFound> {
    node(folder, "socket", FileType::Socket, 0)
}

/// The number of /dev/null. It takes CAP_MKNOD, which without it is EPERM as where the file system has no such nodes.
fn device(folder: &Folder) -> Result<SemanticsFound> {
    if !rustix::process::geteuid().is_root() {
        return found(Inconclusive, "only root makes devices");
    }
    match node(folder, "device", FileType::CharacterDevice, makedev(1, 3)) {
        Err(Fault { errno: errno @ (Errno::ACCESS | Errno::PERM), .. }) => {
            Ok(with_errno(SemanticsFound::new(NotSupported).with("mknod fails"), errno))
        }
        result => result,
    }
}
