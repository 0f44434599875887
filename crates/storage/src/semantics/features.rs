//! Checks of one process on one mount, carried out by the agent.

use std::{
    fs::File,
    io::{Seek as _, SeekFrom as StdSeek, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    thread,
    time::Duration,
};

use clearstream_schema::semantics::{
    SemanticsFound,
    SemanticsVerdict::{self, No, NotSupported, Yes},
};
use rustix::{
    fs::{
        AtFlags, FallocateFlags, Mode, OFlags, SeekFrom, StatxFlags, Timespec, Timestamps, XattrFlags,
        fallocate, fgetxattr, flistxattr, fsetxattr, fstatvfs, futimens, linkat, mkdirat, openat, readlinkat,
        seek, statat, statx, symlinkat,
    },
    io::Errno,
};

use super::folder::{Folder, raw};

type Result<T> = std::result::Result<T, Errno>;
/// A check.
type Feature = fn(&Folder) -> Result<SemanticsFound>;

/// Checks by identifier.
const FEATURES: [(&str, Feature); 18] = [
    ("timestamps-write", timestamps_write),
    ("timestamps-granularity", timestamps_granularity),
    ("birth-time", birth_time),
    ("xattr-user", xattr_user),
    ("acl", acl),
    ("sparse-blocks", sparse_blocks),
    ("seek-hole", seek_hole),
    ("fallocate", allocate),
    ("fallocate-keep-size", keep_size),
    ("punch-hole", punch_hole),
    ("direct-io", direct_io),
    ("tmpfile", tmpfile),
    ("hard-link", hard_link),
    ("symbolic-link", symbolic_link),
    ("name-max", name_max),
    ("case-sensitive", case_sensitive),
    ("directory", directory),
    ("truncate", truncate),
];

/// Runs a check.
pub(super) fn run(folder: &Folder, check: &str) -> Result<SemanticsFound> {
    let (_, feature) = FEATURES.iter().find(|(name, _)| *name == check).ok_or(Errno::INVAL)?;
    feature(folder)
}

fn found(verdict: SemanticsVerdict, detail: impl Into<String>) -> Result<SemanticsFound> {
    Ok(SemanticsFound::new(verdict).with(detail))
}

fn create(folder: &Folder, name: &str) -> Result<File> {
    folder.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
}

fn write(file: &File, bytes: &[u8], offset: u64) -> Result<()> {
    file.write_all_at(bytes, offset).map_err(|error| raw(&error))
}

/// Timestamp of modification and of status change, in nanoseconds.
fn times(file: &File) -> Result<(i128, i128)> {
    let of = |seconds: i64, nanoseconds: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let stat = file.metadata().map_err(|error| raw(&error))?;
    Ok((of(stat.mtime(), stat.mtime_nsec()), of(stat.ctime(), stat.ctime_nsec())))
}

fn timestamps_write(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "timestamps-write")?;
    let before = times(&file)?;
    // Longer than the granularity of most file systems; the next step is for those with seconds.
    for wait in [50, 2100] {
        thread::sleep(Duration::from_millis(wait));
        write(&file, b"x", 0)?;
        let after = times(&file)?;
        if after.0 > before.0 && after.1 > before.1 {
            return found(Yes, format!("mtime and ctime advance within {wait} ms"));
        }
    }
    let after = times(&file)?;
    let name = if after.0 > before.0 { "ctime" } else { "mtime" };
    found(No, format!("{name} does not advance"))
}

fn timestamps_granularity(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "timestamps-granularity")?;
    let time = Timespec { tv_sec: 1_234_567_890, tv_nsec: 123_456_789 };
    futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
    // Opened anew: the time is what the file system keeps, as far as the client reads it again.
    let stat = statat(folder.descriptor(), "timestamps-granularity", AtFlags::empty())?;
    if stat.st_mtime != time.tv_sec {
        return found(No, format!("mtime is {} instead of {}", stat.st_mtime, time.tv_sec));
    }
    let kept = stat.st_mtime_nsec as u64;
    let granularity =
        (0..=9).map(|power| 10_u64.pow(power)).rev().find(|unit| 123_456_789 / unit * unit == kept);
    match granularity {
        Some(1) => found(Yes, "1 ns"),
        Some(unit) => found(No, format!("{unit} ns")),
        None => found(No, format!("{kept} ns kept of 123456789 ns")),
    }
}

fn birth_time(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "birth-time")?;
    let stat = statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME | StatxFlags::MTIME)?;
    if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME) {
        Ok(SemanticsFound::new(Yes))
    } else {
        found(NotSupported, "STATX_BTIME is not in the mask")
    }
}

fn xattr_user(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "xattr-user")?;
    fsetxattr(&file, c"user.clearstream", b"value", XattrFlags::CREATE)?;
    let mut buffer = [0_u8; 64];
    let length = fgetxattr(&file, c"user.clearstream", &mut buffer[..])?;
    let mut names = [0_u8; 4096];
    let listed = flistxattr(&file, &mut names[..])?;
    if &buffer[..length] != b"value" {
        return found(No, "the value read is not the one set");
    }
    let is_listed = names[..listed].split(|byte| *byte == 0).any(|name| name == b"user.clearstream");
    if is_listed { Ok(SemanticsFound::new(Yes)) } else { found(No, "the attribute is not listed") }
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
    fsetxattr(&file, c"system.posix_acl_access", &list, XattrFlags::empty())?;
    let mut buffer = [0_u8; 1024];
    let length = fgetxattr(&file, c"system.posix_acl_access", &mut buffer[..])?;
    if buffer[..length] == list[..] {
        Ok(SemanticsFound::new(Yes))
    } else {
        found(No, "the list read is not the one set")
    }
}

fn sparse_blocks(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "sparse-blocks")?;
    write(&file, b"x", (16 << 20) - 1)?;
    file.sync_all().map_err(|error| raw(&error))?;
    let blocks = file.metadata().map_err(|error| raw(&error))?.blocks();
    let bytes = blocks * 512;
    let verdict = if bytes < 4 << 20 { Yes } else { No };
    found(verdict, format!("{bytes} bytes allocated for 1 byte at 16 MiB"))
}

fn seek_hole(folder: &Folder) -> Result<SemanticsFound> {
    const HOLE: u64 = 4 << 20;
    let file = create(folder, "seek-hole")?;
    write(&file, &[1; 4096], HOLE)?;
    let data = seek(&file, SeekFrom::Data(0))?;
    let hole = seek(&file, SeekFrom::Hole(0))?;
    // A file system without it may treat the whole file as data (lseek(2)).
    let verdict = if data > 0 && data <= HOLE && hole == 0 { Yes } else { No };
    found(verdict, format!("hole of {HOLE} bytes: data at {data}, hole at {hole}"))
}

fn size_and_bytes(file: &File) -> Result<(u64, u64)> {
    let stat = file.metadata().map_err(|error| raw(&error))?;
    Ok((stat.size(), stat.blocks() * 512))
}

fn allocate(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "fallocate")?;
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20)?;
    let (size, bytes) = size_and_bytes(&file)?;
    let verdict = if size == 1 << 20 && bytes >= 1 << 20 { Yes } else { No };
    found(verdict, format!("size {size}, {bytes} bytes allocated"))
}

fn keep_size(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "fallocate-keep-size")?;
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20)?;
    let (size, bytes) = size_and_bytes(&file)?;
    found(if size == 0 { Yes } else { No }, format!("size {size}, {bytes} bytes allocated"))
}

fn punch_hole(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "punch-hole")?;
    write(&file, &[7; 1 << 20], 0)?;
    file.sync_all().map_err(|error| raw(&error))?;
    let (_, before) = size_and_bytes(&file)?;
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 1 << 19)?;
    let (size, after) = size_and_bytes(&file)?;
    let mut start = [7_u8; 4096];
    file.read_exact_at(&mut start, 0).map_err(|error| raw(&error))?;
    let verdict = if size == 1 << 20 && after < before && start == [0; 4096] { Yes } else { No };
    found(verdict, format!("{before} bytes allocated before, {after} after"))
}

/// The part of a buffer whose address has this alignment and no larger one.
fn aligned(buffer: &mut [u8], alignment: usize) -> Option<&mut [u8]> {
    let skip = buffer.as_ptr().align_offset(8192);
    buffer.get_mut(skip + alignment..)
}

fn direct_io(folder: &Folder) -> Result<SemanticsFound> {
    folder.store("direct-io", &[3; 64 << 10])?;
    let file = folder.open("direct-io", OFlags::RDWR | OFlags::DIRECT)?;
    let mut buffer = vec![0; 64 << 10];
    for alignment in [1_usize, 4, 512, 1024, 2048, 4096] {
        let Some(part) = aligned(&mut buffer, alignment) else { continue };
        let Some(part) = part.get_mut(..alignment) else { continue };
        part.fill(4);
        let is_written = file.write_all_at(part, alignment as u64).is_ok();
        if is_written
            && file.read_exact_at(part, alignment as u64).is_ok()
            && part.iter().all(|byte| *byte == 4)
        {
            return found(Yes, format!("alignment of {alignment} bytes"));
        }
    }
    found(No, "open succeeds, but reads and writes up to an alignment of 4096 bytes fail")
}

fn tmpfile(folder: &Folder) -> Result<SemanticsFound> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mut file: File = openat(folder.descriptor(), ".", flags, Mode::from_raw_mode(0o600))?.into();
    file.write_all(b"x").map_err(|error| raw(&error))?;
    let links = file.metadata().map_err(|error| raw(&error))?.nlink();
    found(if links == 0 { Yes } else { No }, format!("link count {links}"))
}

fn hard_link(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "hard-link")?;
    linkat(folder.descriptor(), "hard-link", folder.descriptor(), "hard-link-2", AtFlags::empty())?;
    let links = file.metadata().map_err(|error| raw(&error))?.nlink();
    let inode = |name: &str| statat(folder.descriptor(), name, AtFlags::empty()).map(|stat| stat.st_ino);
    if inode("hard-link")? != inode("hard-link-2")? {
        return found(No, "the two names have different inode numbers");
    }
    found(if links == 2 { Yes } else { No }, format!("link count {links}"))
}

fn symbolic_link(folder: &Folder) -> Result<SemanticsFound> {
    symlinkat("target of a link", folder.descriptor(), "symbolic-link")?;
    let target = readlinkat(folder.descriptor(), "symbolic-link", Vec::new())?;
    let is_same = target.as_bytes() == b"target of a link";
    Ok(SemanticsFound::new(if is_same { Yes } else { No }))
}

fn name_max(folder: &Folder) -> Result<SemanticsFound> {
    let limit = usize::try_from(fstatvfs(folder.descriptor())?.f_namemax).unwrap_or(0).clamp(1, 4096);
    if let Err(error) = create(folder, &"n".repeat(limit)) {
        return Ok(SemanticsFound {
            errno: Some(error.raw_os_error()),
            ..SemanticsFound::new(No).with(format!("statvfs reports {limit} bytes, but such a name fails"))
        });
    }
    match create(folder, &"n".repeat(limit + 1)) {
        Err(Errno::NAMETOOLONG) => found(Yes, format!("{limit} bytes")),
        Err(error) => Ok(SemanticsFound {
            errno: Some(error.raw_os_error()),
            ..SemanticsFound::new(No).with(format!("{} bytes fail, but not with ENAMETOOLONG", limit + 1))
        }),
        Ok(_) => found(No, format!("statvfs reports {limit} bytes, but a longer name succeeds")),
    }
}

fn case_sensitive(folder: &Folder) -> Result<SemanticsFound> {
    drop(create(folder, "case-sensitive")?);
    match create(folder, "CASE-SENSITIVE") {
        Ok(_) => Ok(SemanticsFound::new(Yes)),
        Err(Errno::EXIST) => found(No, "names that differ in case are one"),
        Err(error) => Err(error),
    }
}

fn directory(folder: &Folder) -> Result<SemanticsFound> {
    mkdirat(folder.descriptor(), "directory", Mode::from_raw_mode(0o700))?;
    folder.rename("directory", "directory-2")?;
    Ok(SemanticsFound::new(Yes))
}

fn truncate(folder: &Folder) -> Result<SemanticsFound> {
    let mut file = create(folder, "truncate")?;
    write(&file, b"abcdef", 0)?;
    file.set_len(3).and_then(|()| file.set_len(8)).map_err(|error| raw(&error))?;
    let mut bytes = [1_u8; 8];
    file.read_exact_at(&mut bytes, 0).map_err(|error| raw(&error))?;
    let end = file.seek(StdSeek::End(0)).map_err(|error| raw(&error))?;
    found(if &bytes == b"abc\0\0\0\0\0" && end == 8 { Yes } else { No }, format!("size {end}"))
}
