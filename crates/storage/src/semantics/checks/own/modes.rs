//! Modes of files of the user who runs the checks.

use std::os::unix::fs::FileExt as _;

use clearstream_schema::semantics::{SemanticsArea, SemanticsFound, SemanticsVerdict::No};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, chmodat, fchmod, fstat},
    process::umask,
};

use super::{Check, Result, create, exists, found, none_wrong, right, stat};
use crate::semantics::{
    checks::{Run, check},
    faults::At as _,
    folder::Folder,
};

const fn modes(
    name: &'static str,
    title: &'static str,
    standard: &'static str,
    run: fn(&Folder) -> Result<SemanticsFound>,
) -> Check {
    check(SemanticsArea::Permissions, name, title, standard, Run::Alone(run))
}

pub(super) const CHECKS: &[Check] = &[
    modes("chmod", "chmod keeps each bit", "POSIX.1-2017 chmod()", kept),
    modes("mkdir-mode", "modes of new directories", "POSIX.1-2017 mkdir()", of_new_directories),
    modes("umask", "umask of new files", "POSIX.1-2017 umask()", of_new_files),
    modes("mode-open", "chmod leaves open files", "POSIX.1-2017 open(), chmod()", of_open_files),
];

fn mode_of(folder: &Folder, name: &str) -> Result<u32> {
    Ok(stat(folder, name)?.st_mode & 0o7777)
}

fn kept(folder: &Folder) -> Result<SemanticsFound> {
    const FILES: [u32; 8] = [0o000, 0o400, 0o222, 0o640, 0o755, 0o4755, 0o2755, 0o6711];
    const DIRECTORIES: [u32; 4] = [0o755, 0o1777, 0o2775, 0o3711];
    let file = create(folder, "chmod")?;
    folder.make_folder("chmod-folder", Mode::from_raw_mode(0o700)).at("mkdir")?;
    let cases = FILES.map(|mode| ("chmod", mode)).into_iter();
    let mut wrong = Vec::new();
    for (name, mode) in cases.chain(DIRECTORIES.map(|mode| ("chmod-folder", mode))) {
        chmodat(folder.descriptor(), name, Mode::from_raw_mode(mode), AtFlags::empty()).at("chmod")?;
        let found = mode_of(folder, name)?;
        if found != mode {
            let kind = if name == "chmod" { "file" } else { "directory" };
            wrong.push(format!("{mode:04o} of a {kind} becomes {found:04o}"));
        }
    }
    fchmod(&file, Mode::from_raw_mode(0o604)).at("fchmod")?;
    let found = fstat(&file).at("fstat")?.st_mode & 0o7777;
    if found != 0o604 {
        wrong.push(format!("fstat has {found:04o} after fchmod to 0604"));
    }
    folder.remove_any("chmod-folder", AtFlags::REMOVEDIR).at("rmdir")?;
    none_wrong(&wrong)
}

/// A directory has the bits that were asked for, also those that shut its owner out.
fn of_new_directories(folder: &Folder) -> Result<SemanticsFound> {
    let mut wrong = Vec::new();
    for asked in [0o755, 0o151, 0o077, 0o345, 0o501] {
        let name = format!("mkdir-mode-{asked:o}");
        let before = umask(Mode::empty());
        let made = folder.make_folder(name.as_str(), Mode::from_raw_mode(asked));
        umask(before);
        made.at("mkdir")?;
        // The set-group-ID bit is that of the directory above (inode(7)).
        let found = mode_of(folder, &name)? & 0o777;
        if found != asked {
            wrong.push(format!("mkdir with {asked:04o} makes {found:04o}"));
        }
        folder.remove_any(name.as_str(), AtFlags::REMOVEDIR).at("rmdir")?;
    }
    none_wrong(&wrong)
}

/// The mask is of this process, which has one thread. A server may have one of its own, so that several are tried.
fn of_new_files(folder: &Folder) -> Result<SemanticsFound> {
    let mut wrong = Vec::new();
    for mask in [0o000, 0o002, 0o027, 0o077] {
        let before = umask(Mode::from_raw_mode(mask));
        let made = made_below(folder);
        umask(before);
        made?;
        for (name, asked) in [("umask", 0o666), ("umask-folder", 0o777), ("umask-fifo", 0o666)] {
            // Where there are no named pipes, the check of them says so.
            if name == "umask-fifo" && !exists(folder, name) {
                continue;
            }
            let (expected, found) = (asked & !mask, mode_of(folder, name)?);
            if found != expected {
                wrong.push(format!("umask {mask:03o}: {name} has {found:04o} instead of {expected:04o}"));
            }
            let flags = if name == "umask-folder" { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            folder.remove_any(name, flags).at("unlink, rmdir")?;
        }
    }
    none_wrong(&wrong)
}

fn made_below(folder: &Folder) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    folder.open_with("umask", flags, Mode::from_raw_mode(0o666)).at("open(O_CREAT|O_EXCL)")?;
    folder.make_folder("umask-folder", Mode::from_raw_mode(0o777)).at("mkdir")?;
    let _ = folder.node("umask-fifo", FileType::Fifo, Mode::from_raw_mode(0o666), 0);
    Ok(())
}

/// Permissions are those of the moment of open().
fn of_open_files(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "mode-open")?;
    file.write_all_at(b"one", 0).at("pwrite")?;
    chmodat(folder.descriptor(), "mode-open", Mode::empty(), AtFlags::empty()).at("chmod")?;
    file.write_all_at(b"two", 0).at("pwrite after chmod to 0000")?;
    let mut bytes = [0; 3];
    file.read_exact_at(&mut bytes, 0).at("pread after chmod to 0000")?;
    if &bytes != b"two" {
        return found(No, "something else is read");
    }
    right(mode_of(folder, "mode-open")? == 0, "the mode is another one")
}
