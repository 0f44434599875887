//! Extended attributes, and what statx(2) says of a file.

use std::os::fd::AsFd as _;

use clearstream_schema::semantics::{
    SemanticsArea, SemanticsFound,
    SemanticsVerdict::{No, NotSupported, Yes},
};
use rustix::{
    fs::{
        AtFlags, StatxFlags, Timespec, Timestamps, XattrFlags, fgetxattr, flistxattr, fremovexattr,
        fsetxattr, futimens, statx,
    },
    io::Errno,
};

use super::{Check, Result, create, found, right, stat};
use crate::semantics::{
    checks::{Run, check, left_open},
    faults::At as _,
    folder::Folder,
};

const fn attributes(
    area: SemanticsArea,
    name: &'static str,
    title: &'static str,
    standard: &'static str,
    run: fn(&Folder) -> Result<SemanticsFound>,
) -> Check {
    check(area, name, title, standard, Run::Alone(run))
}

use SemanticsArea::{Features, Timestamps as Times};

const GREATEST: &str = "POSIX.1-2017 futimens(): greatest value supported";

pub(super) const CHECKS: &[Check] = &[
    attributes(Times, "timestamps-granularity", "granularity of 1 ns", GREATEST, granularity),
    attributes(Times, "timestamps-range", "dates before 1970, after 2106", GREATEST, range),
    attributes(Times, "birth-time", "time of creation", "statx(2), STATX_BTIME", birth_time),
    attributes(Features, "xattr-user", "attributes user.*", "xattr(7)", xattr_user),
    attributes(Features, "xattr-flags", "XATTR_CREATE, XATTR_REPLACE", "setxattr(2)", xattr_flags),
    attributes(Features, "acl", "access control lists", "acl(5), POSIX.1e draft 17", acl),
];

/// A file with this time, seconds and nanoseconds of mtime that it has then.
fn kept(folder: &Folder, name: &str, seconds: i64, nanoseconds: i64) -> Result<(i64, i64)> {
    let file = create(folder, name)?;
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    futimens(&file, &Timestamps { last_access: time, last_modification: time }).at("futimens")?;
    // By its name: the time is what the file system keeps, as far as the client reads it again.
    let found = stat(folder, name)?;
    Ok((found.st_mtime, found.st_mtime_nsec as i64))
}

/// The resolution is that of the file system; a time after the one that was set is none that the standard allows.
fn granularity(folder: &Folder) -> Result<SemanticsFound> {
    const SECONDS: i64 = 1_234_567_890;
    const NANOSECONDS: i64 = 123_456_789;
    let (seconds, kept) = kept(folder, "timestamps-granularity", SECONDS, NANOSECONDS)?;
    let is_near = seconds == SECONDS || (SECONDS - 1..SECONDS).contains(&seconds) && kept == 0;
    if !is_near || seconds == SECONDS && kept > NANOSECONDS {
        return found(No, format!("mtime is {seconds}.{kept:09} instead of {SECONDS}.{NANOSECONDS:09}"));
    }
    let unit = (0..=9).map(|power| 10_i64.pow(power)).rev().find(|unit| NANOSECONDS / unit * unit == kept);
    Ok(match unit {
        _ if seconds < SECONDS => left_open(false, "2 s"),
        Some(1) => SemanticsFound::new(Yes).with("1 ns"),
        Some(unit) => left_open(false, format!("{unit} ns")),
        None => left_open(false, format!("{kept} ns kept of {NANOSECONDS} ns")),
    })
}

/// A file system keeps what it can hold, and else the nearest time that it can: not one by 32 bit of the number.
fn range(folder: &Folder) -> Result<SemanticsFound> {
    const LARGEST_OF_31_BITS: i64 = i32::MAX as i64;
    let (mut cut, mut wrong) = (Vec::new(), Vec::new());
    for (number, seconds) in [-86_400_i64, (1 << 31) + 5, (1 << 32) + 5].into_iter().enumerate() {
        let (kept, _) = kept(folder, &format!("timestamps-range-{number}"), seconds, 0)?;
        let nearest = if seconds < 0 { seconds..=0 } else { LARGEST_OF_31_BITS..=seconds };
        if !nearest.contains(&kept) {
            wrong.push(format!("{seconds} becomes {kept}"));
        } else if kept != seconds {
            cut.push(format!("{seconds} becomes {kept}"));
        }
    }
    match wrong.is_empty() {
        true => Ok(left_open(cut.is_empty(), cut.join("; "))),
        false => found(No, wrong.join("; ")),
    }
}

fn birth_time(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "birth-time")?;
    let stat = statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME | StatxFlags::MTIME).at("statx")?;
    if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME) {
        Ok(SemanticsFound::new(Yes))
    } else {
        found(NotSupported, "STATX_BTIME is not in the mask")
    }
}

fn xattr_user(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "xattr-user")?;
    let name = c"user.clearstream";
    fsetxattr(&file, name, b"value", XattrFlags::CREATE).at("fsetxattr")?;
    let mut buffer = [0_u8; 64];
    let length = fgetxattr(&file, name, &mut buffer[..]).at("fgetxattr")?;
    if &buffer[..length] != b"value" {
        return found(No, "the value read is not the one set");
    }
    let mut names = [0_u8; 4096];
    let listed = flistxattr(&file, &mut names[..]).at("flistxattr")?;
    if !names[..listed].split(|byte| *byte == 0).any(|listed| listed == name.to_bytes()) {
        return found(No, "the attribute is not listed");
    }
    fremovexattr(&file, name).at("fremovexattr")?;
    match fgetxattr(&file, name, &mut buffer[..]) {
        Err(Errno::NODATA) => Ok(SemanticsFound::new(Yes)),
        Err(errno) => Err(errno).at("fgetxattr of a removed attribute"),
        Ok(_) => found(No, "a removed attribute can still be read"),
    }
}

fn xattr_flags(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "xattr-flags")?;
    let name = c"user.clearstream";
    let set = |flags| fsetxattr(file.as_fd(), name, b"value", flags);
    match set(XattrFlags::REPLACE) {
        Err(Errno::NODATA) => {}
        Ok(()) => return found(No, "XATTR_REPLACE creates an attribute"),
        other => other.at("fsetxattr(XATTR_REPLACE)")?,
    }
    set(XattrFlags::CREATE).at("fsetxattr")?;
    match set(XattrFlags::CREATE) {
        Err(Errno::EXIST) => {}
        Ok(()) => return found(No, "XATTR_CREATE replaces an attribute"),
        other => other.at("fsetxattr(XATTR_CREATE)")?,
    }
    set(XattrFlags::REPLACE).at("fsetxattr(XATTR_REPLACE)")?;
    Ok(SemanticsFound::new(Yes))
}

/// Sets an ACL with an entry for user 1 and reads it: a client without ACLs may still report that there is none.
fn acl(folder: &Folder) -> Result<SemanticsFound> {
    // Version, then tag, permissions and id of each entry (linux/posix_acl_xattr.h).
    const NO_ID: u32 = u32::MAX;
    const ENTRIES: [(u16, u16, u32); 5] =
        [(0x01, 6, NO_ID), (0x02, 4, 1), (0x04, 0, NO_ID), (0x10, 4, NO_ID), (0x20, 0, NO_ID)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in ENTRIES {
        list.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain(id.to_le_bytes()));
    }
    let file = create(folder, "acl")?;
    fsetxattr(&file, c"system.posix_acl_access", &list, XattrFlags::empty()).at("fsetxattr")?;
    let mut buffer = [0_u8; 1024];
    let length = fgetxattr(&file, c"system.posix_acl_access", &mut buffer[..]).at("fgetxattr")?;
    if buffer[..length] != list[..] {
        return found(No, "the list read is not the one set");
    }
    // acl(5): the mask is in place of the group's permissions.
    let mode = stat(folder, "acl")?.st_mode & 0o777;
    right(mode == 0o640, format!("mode {mode:o} with a mask of r--"))
}
