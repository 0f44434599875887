//! Operations that several processes carry out at the same time.

use std::{
    io::{Read as _, Write as _},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rand::random;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use super::{
    calls::{Acted, Claim},
    folder::{Folder, raw},
};

/// Bytes of an appended record.
pub(super) const RECORD_BYTES: usize = 64;
/// Bytes of a file that is replaced: all the same.
pub(super) const FILE_BYTES: usize = 4096;
/// Second names of one file: fewer than any file system has (_POSIX_LINK_MAX; GlusterFS over ext4 has 46).
const LINKS_OF_ONE: u32 = 7;
/// Between the records of a writer.
const RECORD_INTERVAL: Duration = Duration::from_millis(1);
/// Between the names that processes race for.
const NAME_INTERVAL: Duration = Duration::from_millis(2);
/// Accuracy of sleeping.
const SPIN: Duration = Duration::from_micros(200);
/// Maximum wait for a common start: clocks of hosts may differ.
const MAX_START_DELAY: Duration = Duration::from_millis(500);

/// A record: all its bytes follow from writer and number, so a torn one is recognized.
pub(super) fn record(writer: u8, number: u32) -> Vec<u8> {
    let mut bytes = format!("{writer:03} {number:08} ").into_bytes();
    bytes.resize(RECORD_BYTES - 1, b'a' + (writer.wrapping_mul(7).wrapping_add(number as u8)) % 26);
    bytes.push(b'\n');
    bytes
}

/// Waits for the common start and returns it.
fn wait_for_start(start_at_ns: u64) -> Instant {
    let begun = Instant::now();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(u128::MAX, |time| time.as_nanos());
    while now() < u128::from(start_at_ns) && begun.elapsed() < MAX_START_DELAY {
        std::hint::spin_loop();
    }
    Instant::now()
}

/// Waits for the next turn: without turns the faster client has ended before the slower one has begun.
fn wait_for_turn(start: Instant, number: u32, interval: Duration) {
    let turn = interval * number;
    if let Some(left) = turn.checked_sub(start.elapsed()).filter(|left| *left > SPIN) {
        std::thread::sleep(left.saturating_sub(SPIN));
    }
    while start.elapsed() < turn {
        std::hint::spin_loop();
    }
}

pub(super) fn append(
    folder: &Folder,
    name: &str,
    writer: u8,
    count: u32,
    start_at_ns: u64,
) -> Result<Acted, Errno> {
    let mut file = folder.open(name, OFlags::WRONLY | OFlags::APPEND)?;
    let start = wait_for_start(start_at_ns);
    for number in 0..count {
        wait_for_turn(start, number, RECORD_INTERVAL);
        let bytes = record(writer, number);
        // One system call: what it leaves out is a torn record.
        if file.write(&bytes).map_err(|error| raw(&error))? != bytes.len() {
            return Err(Errno::IO);
        }
    }
    Ok(Acted { number: count.into(), ..Acted::default() })
}

pub(super) fn claim(
    folder: &Folder,
    prefix: &str,
    by: Claim,
    count: u32,
    start_at_ns: u64,
) -> Result<Acted, Errno> {
    let mut acted = Acted::default();
    let own = format!("{prefix}-own-{}", random::<u32>());
    let own = |number: u32| format!("{own}-{}", number / LINKS_OF_ONE);
    if by == Claim::Link {
        (0..count).step_by(LINKS_OF_ONE as usize).try_for_each(|number| folder.store(&own(number), b""))?;
    }
    let start = wait_for_start(start_at_ns);
    for number in 0..count {
        wait_for_turn(start, number, NAME_INTERVAL);
        let name = format!("{prefix}-{number}");
        let claimed = match by {
            Claim::Open => folder.open(&name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).map(drop),
            Claim::Link => folder.link(&own(number), &name),
            Claim::Folder => folder.make_folder(name.as_str(), Mode::from_raw_mode(0o700)),
        };
        match claimed {
            Ok(()) => acted.values.push(number.into()),
            Err(error) => note(&mut acted.errors, error),
        }
    }
    Ok(acted)
}

fn note(errors: &mut Vec<i32>, error: Errno) {
    if !errors.contains(&error.raw_os_error()) {
        errors.push(error.raw_os_error());
    }
}

pub(super) fn replace(folder: &Folder, name: &str, duration: Duration) -> Result<Acted, Errno> {
    let (begun, mut count) = (Instant::now(), 0_u8);
    let mut times = 0;
    let draft = format!("{name}-draft");
    while begun.elapsed() < duration {
        count = (count + 1) % 26;
        folder.store(&draft, &[b'a' + count; FILE_BYTES])?;
        folder.rename(&draft, name)?;
        times += 1;
    }
    Ok(Acted { number: times, ..Acted::default() })
}

pub(super) fn observe(folder: &Folder, name: &str, duration: Duration) -> Result<Acted, Errno> {
    let begun = Instant::now();
    let mut acted = Acted::default();
    while begun.elapsed() < duration {
        match folder.open(name, OFlags::RDONLY) {
            Err(Errno::NOENT) => acted.missing_count += 1,
            Err(error) => note(&mut acted.errors, error),
            Ok(file) => {
                let mut bytes = Vec::with_capacity(FILE_BYTES + 1);
                match file.take(FILE_BYTES as u64 + 1).read_to_end(&mut bytes) {
                    Err(error) => note(&mut acted.errors, raw(&error)),
                    Ok(length) => {
                        let is_of_one = bytes.iter().all(|byte| *byte == bytes[0]);
                        acted.short_count += u64::from(length < FILE_BYTES);
                        acted.mixed_count += u64::from(length > FILE_BYTES || !is_of_one);
                        acted.number += 1;
                    }
                }
            }
        }
    }
    Ok(acted)
}
