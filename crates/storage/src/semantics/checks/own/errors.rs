//! Error codes that programs decide by.

use clearstream_schema::semantics::{SemanticsArea, SemanticsFound};
use clearstream_sys::errno::name as errno_name;
use rustix::{
    fs::{AtFlags, Mode, OFlags, linkat, mkdirat, openat, renameat, symlinkat, unlinkat},
    io::Errno,
};

use super::{Check, Result, create, none_wrong};
use crate::semantics::{
    checks::{Run, check},
    faults::{At as _, Fault, is_circumstance},
    folder::Folder,
};

pub(super) const CHECKS: &[Check] = &[
    check(
        SemanticsArea::Features,
        "errors",
        "error codes",
        "POSIX.1-2017 ERRORS of each call",
        Run::Alone(errors),
    ),
    check(
        SemanticsArea::Features,
        "errors-links",
        "error codes of links",
        "POSIX.1-2017 link(), symlink()",
        Run::Alone(links),
    ),
];

const MODE: Mode = Mode::from_raw_mode(0o700);

/// A call that has to fail, and how.
type Case<'a> = (&'static str, &'a dyn Fn() -> std::result::Result<(), Errno>, &'static [Errno]);

/// What succeeds, or fails with another code.
fn wrong(cases: &[Case<'_>]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (what, call, expected) in cases {
        let names = || expected.iter().map(|errno| errno_name(errno.raw_os_error())).collect::<Vec<_>>();
        match call() {
            Err(errno) if expected.contains(&errno) => {}
            Err(errno) if is_circumstance(errno) => return Err(Fault { call: what, errno }),
            Err(errno) => {
                let errno = errno_name(errno.raw_os_error());
                wrong.push(format!("{what}: {errno} instead of {}", names().join(" or ")));
            }
            Ok(()) => wrong.push(format!("{what} succeeds instead of {}", names().join(" or "))),
        }
    }
    Ok(wrong)
}

fn errors(folder: &Folder) -> Result<SemanticsFound> {
    let inner = folder.create_inner("errors", MODE).at("mkdir")?;
    let at = inner.descriptor();
    drop(create(&inner, "file")?);
    inner.make_folder("empty", MODE).at("mkdir")?;
    let full = inner.create_inner("full", MODE).at("mkdir")?;
    drop(create(&full, "file")?);
    let open = |name: &str, flags| openat(at, name, flags | OFlags::CLOEXEC, MODE).map(drop);
    let rename = |from: &str, to: &str| renameat(at, from, at, to);
    let removed = |name: &str, flags| unlinkat(at, name, flags);
    let cases: [Case<'_>; 14] = [
        ("open of no file", &|| open("none", OFlags::RDONLY), &[Errno::NOENT]),
        ("open(O_CREAT|O_EXCL) of a file", &|| open("file", OFlags::CREATE | OFlags::EXCL), &[Errno::EXIST]),
        ("open to write of a directory", &|| open("empty", OFlags::WRONLY), &[Errno::ISDIR]),
        ("open(O_DIRECTORY) of a file", &|| open("file", OFlags::DIRECTORY), &[Errno::NOTDIR]),
        ("open below a file", &|| open("file/below", OFlags::RDONLY), &[Errno::NOTDIR]),
        ("mkdir of a file", &|| mkdirat(at, "file", MODE), &[Errno::EXIST]),
        ("unlink of no file", &|| removed("none", AtFlags::empty()), &[Errno::NOENT]),
        // POSIX has EPERM, Linux EISDIR (unlink(2)).
        ("unlink of a directory", &|| removed("empty", AtFlags::empty()), &[Errno::ISDIR, Errno::PERM]),
        ("rmdir of a file", &|| removed("file", AtFlags::REMOVEDIR), &[Errno::NOTDIR]),
        (
            "rmdir of a full directory",
            &|| removed("full", AtFlags::REMOVEDIR),
            &[Errno::NOTEMPTY, Errno::EXIST],
        ),
        ("rename of a directory to a file", &|| rename("empty", "file"), &[Errno::NOTDIR]),
        ("rename of a file to a directory", &|| rename("file", "empty"), &[Errno::ISDIR]),
        ("rename to a full directory", &|| rename("empty", "full"), &[Errno::NOTEMPTY, Errno::EXIST]),
        ("rename of a directory into itself", &|| rename("full", "full/below"), &[Errno::INVAL]),
    ];
    none_wrong(&wrong(&cases)?)
}

fn links(folder: &Folder) -> Result<SemanticsFound> {
    let inner = folder.create_inner("errors-links", MODE).at("mkdir")?;
    let at = inner.descriptor();
    drop(create(&inner, "file")?);
    inner.make_folder("folder", MODE).at("mkdir")?;
    inner.symlink("dangling-target", "dangling").at("symlink")?;
    inner.symlink("loop", "loop").at("symlink")?;
    let open = |name: &str, flags| openat(at, name, flags | OFlags::CLOEXEC, MODE).map(drop);
    let link = |from: &str, to: &str| linkat(at, from, at, to, AtFlags::empty());
    let cases: [Case<'_>; 4] = [
        ("open of a loop of links", &|| open("loop", OFlags::RDONLY), &[Errno::LOOP]),
        ("open(O_NOFOLLOW) of a link", &|| open("dangling", OFlags::NOFOLLOW), &[Errno::LOOP]),
        (
            "open(O_CREAT|O_EXCL) of a link",
            &|| open("dangling", OFlags::CREATE | OFlags::EXCL),
            &[Errno::EXIST],
        ),
        ("symlink of a file", &|| symlinkat("target", at, "file"), &[Errno::EXIST]),
    ];
    let hard: [Case<'_>; 3] = [
        ("link to a name that is there", &|| link("file", "folder"), &[Errno::EXIST]),
        ("link of no file", &|| link("none", "file-3"), &[Errno::NOENT]),
        ("link of a directory", &|| link("folder", "folder-2"), &[Errno::PERM]),
    ];
    // Where there are no links, the check of links says so.
    let hard = if inner.link("file", "file-2").is_ok() { wrong(&hard)? } else { Vec::new() };
    none_wrong(&[wrong(&cases)?, hard].concat())
}
