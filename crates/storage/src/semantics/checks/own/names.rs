//! Names that a directory can have.

use std::{collections::BTreeSet, ffi::OsStr, os::unix::ffi::OsStrExt as _};

use clearstream_schema::semantics::{
    SemanticsArea, SemanticsFound,
    SemanticsVerdict::{No, Yes},
};
use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, fstatvfs, statat},
    io::Errno,
};

use super::{Check, Result, create, found, right};
use crate::semantics::{
    checks::{Run, check, with_errno},
    faults::{At as _, is_circumstance},
    folder::Folder,
};

const fn names(
    name: &'static str,
    title: &'static str,
    standard: &'static str,
    run: fn(&Folder) -> Result<SemanticsFound>,
) -> Check {
    check(SemanticsArea::Features, name, title, standard, Run::Alone(run))
}

const FILENAME: &str = "POSIX.1-2017 3.170 Filename";

pub(super) const CHECKS: &[Check] = &[
    names("name-max", "longest name", "POSIX.1-2017 NAME_MAX", name_max),
    names("path-max", "longest path", "POSIX.1-2017 PATH_MAX", path_max),
    names("case-sensitive", "names differ by case", FILENAME, case_sensitive),
    names("name-bytes", "any bytes in a name", FILENAME, name_bytes),
];

fn name_max(folder: &Folder) -> Result<SemanticsFound> {
    let limit = usize::try_from(fstatvfs(folder.descriptor()).at("fstatvfs")?.f_namemax).unwrap_or(0);
    let limit = limit.clamp(1, 4096);
    let made = |length: usize| folder.open(&"n".repeat(length), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL);
    if let Err(errno) = made(limit) {
        let text = format!("statvfs reports {limit} bytes, but such a name fails");
        return Ok(with_errno(SemanticsFound::new(No).with(text), errno));
    }
    match made(limit + 1) {
        // As for every call that takes a name: programs see by it that a name cannot exist.
        Err(Errno::NAMETOOLONG) => {
            match statat(folder.descriptor(), "n".repeat(limit + 1), AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NAMETOOLONG) => found(Yes, format!("{limit} bytes")),
                Err(errno) => {
                    let text =
                        format!("open fails with ENAMETOOLONG for {} bytes, lstat does not", limit + 1);
                    Ok(with_errno(SemanticsFound::new(No).with(text), errno))
                }
                Ok(_) => found(No, format!("lstat finds a name of {} bytes", limit + 1)),
            }
        }
        Err(errno) => {
            let text = format!("{} bytes fail, but not with ENAMETOOLONG", limit + 1);
            Ok(with_errno(SemanticsFound::new(No).with(text), errno))
        }
        Ok(_) => found(No, format!("statvfs reports {limit} bytes, but a longer name succeeds")),
    }
}

/// A path of the most bytes that the kernel takes (PATH_MAX with its end, linux/limits.h): a file system that
/// passes paths on with a prefix of its own (bindfs, unionfs) fails earlier.
fn path_max(folder: &Folder) -> Result<SemanticsFound> {
    const LONGEST: usize = 4095;
    const COMPONENT: usize = 100;
    let component = "p".repeat(COMPONENT);
    let mut directories: Vec<String> = Vec::new();
    let outcome = loop {
        let above = directories.last().map(|above| format!("{above}/")).unwrap_or_default();
        let rest = LONGEST - above.len();
        if rest > 2 * COMPONENT {
            let next = above + &component;
            match folder.make_folder(&next, Mode::from_raw_mode(0o700)) {
                Ok(()) => directories.push(next),
                Err(errno) => break Err((next.len(), errno)),
            }
            continue;
        }
        let path = above + &"f".repeat(rest);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        break match folder.open_any(&path, flags, Mode::from_raw_mode(0o600)) {
            Ok(_) => folder.remove_any(&path, AtFlags::empty()).at("unlink").map(Ok)?,
            Err(errno) => Err((path.len(), errno)),
        };
    };
    for directory in directories.iter().rev() {
        folder.remove_any(directory, AtFlags::REMOVEDIR).at("rmdir")?;
    }
    match outcome {
        Ok(()) => found(Yes, format!("{LONGEST} bytes")),
        Err((length, errno)) => {
            let text = format!("a path of {length} bytes fails, {LONGEST} are the most of the kernel");
            Ok(with_errno(SemanticsFound::new(No).with(text), errno))
        }
    }
}

fn case_sensitive(folder: &Folder) -> Result<SemanticsFound> {
    drop(create(folder, "case-sensitive")?);
    match folder.open("CASE-SENSITIVE", OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
        Ok(_) => Ok(SemanticsFound::new(Yes)),
        Err(Errno::EXIST) => found(No, "names that differ in case are one"),
        Err(errno) => Err(errno).at("open(O_CREAT|O_EXCL)"),
    }
}

/// Blanks, what other systems reserve, a newline, two ways to write a letter of Unicode, and Latin-1, which is no UTF-8:
/// each is another name, and is listed as it was made.
fn name_bytes(folder: &Folder) -> Result<SemanticsFound> {
    const NAMES: [&[u8]; 10] = [
        b" blank at both ends ",
        b"trailing dot.",
        b"a:b*c?d\"e<f>g|h",
        b"back\\slash",
        b"new\nline",
        "\u{e4}".as_bytes(),
        "a\u{308}".as_bytes(),
        b"latin-1 \xe4\xf6\xfc",
        b"\x01\x1b\x7f",
        b"aux",
    ];
    let inner = folder.create_inner("name-bytes", Mode::from_raw_mode(0o700)).at("mkdir")?;
    let mut wrong = Vec::new();
    let shown = |name: &[u8]| format!("{:?}", OsStr::from_bytes(name));
    for name in NAMES {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        if let Err(errno) = inner.open_any(name, flags, Mode::from_raw_mode(0o600)) {
            if is_circumstance(errno) {
                return Err(errno).at("open(O_CREAT|O_EXCL)");
            }
            let errno = clearstream_sys::errno::name(errno.raw_os_error());
            wrong.push(format!("{} fails with {errno}", shown(name)));
        }
    }
    let mut listed = BTreeSet::new();
    for entry in Dir::read_from(inner.descriptor()).at("opendir")? {
        listed.insert(entry.at("readdir")?.file_name().to_bytes().to_vec());
    }
    if wrong.is_empty() {
        let lost = NAMES.iter().filter(|name| !listed.contains(**name));
        wrong.extend(lost.map(|name| format!("{} is not listed", shown(name))));
    }
    for name in &listed {
        if name != b"." && name != b".." {
            let _ = inner.remove_any(name.as_slice(), AtFlags::empty());
        }
    }
    right(wrong.is_empty(), wrong.join("; "))
}
