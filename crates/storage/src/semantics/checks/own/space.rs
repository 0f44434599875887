//! Holes, allocation and direct access.

use std::{
    fs::File,
    os::unix::fs::{FileExt as _, MetadataExt as _},
};

use clearstream_schema::semantics::{
    SemanticsArea, SemanticsFound,
    SemanticsVerdict::{No, Yes},
};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};

use super::{Check, Result, create, found, verdict};
use crate::semantics::{
    checks::{Run, check, left_open, with_errno},
    faults::At as _,
    folder::{Folder, raw},
};

const fn space(
    name: &'static str,
    title: &'static str,
    standard: &'static str,
    run: fn(&Folder) -> Result<SemanticsFound>,
) -> Check {
    check(SemanticsArea::Features, name, title, standard, Run::Alone(run))
}

pub(super) const CHECKS: &[Check] = &[
    space("sparse-blocks", "holes take no space", "POSIX.1-2017 lseek() leaves it open", sparse_blocks),
    space("seek-hole", "SEEK_HOLE, SEEK_DATA", "POSIX.1-2024 lseek()", seek_hole),
    space("fallocate", "fallocate", "fallocate(2)", allocate),
    space("fallocate-keep-size", "FALLOC_FL_KEEP_SIZE", "fallocate(2)", keep_size),
    space("punch-hole", "FALLOC_FL_PUNCH_HOLE", "fallocate(2)", punch_hole),
    space("zero-range", "FALLOC_FL_ZERO_RANGE", "fallocate(2)", zero_range),
    space("collapse-range", "FALLOC_FL_COLLAPSE_RANGE", "fallocate(2)", collapse_range),
    space("insert-range", "FALLOC_FL_INSERT_RANGE", "fallocate(2)", insert_range),
    space("direct-io", "O_DIRECT", "open(2)", direct_io),
];

fn sparse_blocks(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "sparse-blocks")?;
    file.write_all_at(b"x", (16 << 20) - 1).at("pwrite")?;
    file.sync_all().at("fsync")?;
    let bytes = file.metadata().at("fstat")?.blocks() * 512;
    let text = format!("{bytes} bytes allocated for 1 byte at 16 MiB");
    Ok(left_open(bytes < 4 << 20, text.clone()).with(text))
}

/// Data that is reported as a hole is lost in a copy. A file system without holes may treat the whole file as data.
fn seek_hole(folder: &Folder) -> Result<SemanticsFound> {
    const HOLE: u64 = 4 << 20;
    for round in 0..5 {
        let file = create(folder, &format!("seek-hole-{round}"))?;
        file.write_all_at(&[1; 4096], HOLE).at("pwrite")?;
        let data = seek(&file, SeekFrom::Data(0)).at("lseek(SEEK_DATA)")?;
        let hole = seek(&file, SeekFrom::Hole(0)).at("lseek(SEEK_HOLE)")?;
        let text = format!("hole of {HOLE} bytes: data at {data}, hole at {hole}");
        let end = HOLE + 4096;
        // What is before the data may be called data in part: any place before it is in the hole, none within it.
        if data > HOLE || (HOLE..end).contains(&hole) || hole > end {
            return found(No, text);
        }
        if hole == end {
            return Ok(left_open(false, text));
        }
        let inside = seek(&file, SeekFrom::Data(HOLE + 1)).at("lseek(SEEK_DATA)")?;
        if inside != HOLE + 1 {
            return found(No, format!("data at {} is found at {inside}", HOLE + 1));
        }
        if round == 4 {
            return found(Yes, text);
        }
    }
    Ok(SemanticsFound::new(Yes))
}

fn size_and_bytes(file: &File) -> Result<(u64, u64)> {
    let stat = file.metadata().at("fstat")?;
    Ok((stat.size(), stat.blocks() * 512))
}

fn allocate(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "fallocate")?;
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).at("fallocate")?;
    let (size, bytes) = size_and_bytes(&file)?;
    verdict(size == 1 << 20 && bytes >= 1 << 20, format!("size {size}, {bytes} bytes allocated"))
}

fn keep_size(folder: &Folder) -> Result<SemanticsFound> {
    let file = create(folder, "fallocate-keep-size")?;
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).at("fallocate")?;
    let (size, bytes) = size_and_bytes(&file)?;
    verdict(size == 0, format!("size {size}, {bytes} bytes allocated"))
}

/// A file of four parts of 1 to 4, each of 64 KiB: a multiple of the blocks of file systems.
fn parts(folder: &Folder, name: &str) -> Result<File> {
    let file = create(folder, name)?;
    for part in 0..4_u8 {
        file.write_all_at(&[part + 1; PART as usize], u64::from(part) * PART).at("pwrite")?;
    }
    file.sync_all().at("fsync")?;
    Ok(file)
}

const PART: u64 = 64 << 10;

/// First byte of each part; all bytes of a part are the same, or it is 255.
fn read_parts(file: &File) -> Result<Vec<u8>> {
    let count = file.metadata().at("fstat")?.size() / PART;
    let mut bytes = vec![0; PART as usize];
    (0..count)
        .map(|part| {
            file.read_exact_at(&mut bytes, part * PART).at("pread")?;
            Ok(if bytes.iter().all(|byte| *byte == bytes[0]) { bytes[0] } else { 255 })
        })
        .collect()
}

fn changed(
    folder: &Folder,
    name: &str,
    flags: FallocateFlags,
    expected: &[u8],
) -> Result<(SemanticsFound, u64, u64)> {
    let file = parts(folder, name)?;
    let (_, before) = size_and_bytes(&file)?;
    fallocate(&file, flags, PART, PART).at("fallocate")?;
    let parts = read_parts(&file)?;
    let (_, after) = size_and_bytes(&file)?;
    let found = verdict(parts == expected, format!("content of parts is {parts:?} instead of {expected:?}"))?;
    Ok((found, before, after))
}

fn punch_hole(folder: &Folder) -> Result<SemanticsFound> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let (content, before, after) = changed(folder, "punch-hole", flags, &[1, 0, 3, 4])?;
    if content.verdict == No {
        return Ok(content);
    }
    // A client may not know yet what is allocated; the content says that the range is gone.
    let is_known = before >= 4 * PART;
    verdict(after < before || !is_known, format!("{before} bytes allocated before, {after} after"))
}

fn content_alone((content, ..): (SemanticsFound, u64, u64)) -> SemanticsFound {
    if content.verdict == Yes { SemanticsFound::new(Yes) } else { content }
}

fn zero_range(folder: &Folder) -> Result<SemanticsFound> {
    changed(folder, "zero-range", FallocateFlags::ZERO_RANGE, &[1, 0, 3, 4]).map(content_alone)
}

fn collapse_range(folder: &Folder) -> Result<SemanticsFound> {
    changed(folder, "collapse-range", FallocateFlags::COLLAPSE_RANGE, &[1, 3, 4]).map(content_alone)
}

fn insert_range(folder: &Folder) -> Result<SemanticsFound> {
    changed(folder, "insert-range", FallocateFlags::INSERT_RANGE, &[1, 0, 2, 3, 4]).map(content_alone)
}

/// The part of a buffer whose address has this alignment and no larger one.
fn aligned(buffer: &mut [u8], alignment: usize) -> Option<&mut [u8]> {
    let skip = buffer.as_ptr().align_offset(8192);
    buffer.get_mut(skip + alignment..)
}

fn direct_io(folder: &Folder) -> Result<SemanticsFound> {
    folder.store("direct-io", &[3; 64 << 10]).at("write")?;
    let file = folder.open("direct-io", OFlags::RDWR | OFlags::DIRECT).at("open(O_DIRECT)")?;
    let mut buffer = vec![0; 64 << 10];
    let mut last = None;
    for alignment in [1_usize, 4, 512, 1024, 2048, 4096] {
        let Some(part) = aligned(&mut buffer, alignment) else { continue };
        let Some(part) = part.get_mut(..alignment) else { continue };
        part.fill(4);
        let written = file.write_all_at(part, alignment as u64);
        let read = written.and_then(|()| file.read_exact_at(part, alignment as u64));
        match read {
            Ok(()) if part.iter().all(|byte| *byte == 4) => {
                return found(Yes, format!("alignment of {alignment} bytes"));
            }
            Ok(()) => return found(No, "what is read is not what was written"),
            Err(error) => last = Some(raw(&error)),
        }
    }
    let text = "open succeeds, but reads and writes up to an alignment of 4096 bytes fail";
    let found = SemanticsFound::new(No).with(text);
    Ok(match last {
        Some(errno) => with_errno(found, errno),
        None => found,
    })
}
