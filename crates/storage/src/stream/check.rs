//! Validation of options, before any side effect.

use clearstream_schema::{
    DataKind,
    control::{Failure, FailureKind},
    storage::{StreamBackend, StreamConfig, StreamReorder},
};

/// Maximum number of ranks of one process.
const TASKS_MAX: u32 = 1024;
/// Maximum bytes of a transfer, of which each rank holds one, or one per place of the queue.
const TRANSFER_MAX: u64 = 1 << 30;
const QUEUE_MAX: u32 = 4096;
/// Of O_DIRECT (open(2)), and of the pages of a mapping.
const SECTOR_BYTES: u64 = 512;
const PAGE_BYTES: u64 = 4096;

/// Rejects invalid options, with a suggested correction.
pub(crate) fn check(config: &StreamConfig) -> Result<(), Failure> {
    match problem(config) {
        Some(message) => Err(Failure { kind: FailureKind::Invalid, message }),
        None => Ok(()),
    }
}

fn problem(config: &StreamConfig) -> Option<String> {
    let (transfer, block) = (config.transfer.0, config.block.0);
    if !(1..=TASKS_MAX).contains(&config.tasks) {
        return Some(format!("tasks must be 1 to {TASKS_MAX}, not {}", config.tasks));
    }
    if !(1..=TRANSFER_MAX).contains(&transfer) {
        return Some("a transfer must have 1B to 1GiB".to_owned());
    }
    if block == 0 || !block.is_multiple_of(transfer) {
        return Some(format!(
            "a block must be a multiple of the transfer of {}, not {}",
            config.transfer, config.block
        ));
    }
    if config.segments == 0 || config.iterations == 0 {
        return Some("segments and iterations must be at least 1".to_owned());
    }
    let whole = u128::from(config.segments) * u128::from(block) * u128::from(config.tasks);
    if whole > i64::MAX as u128 {
        return Some("files must be smaller than 8 EiB: choose fewer segments, or smaller blocks".to_owned());
    }
    if !(1..=QUEUE_MAX).contains(&config.queue_depth) {
        return Some(format!("queue-depth must be 1 to {QUEUE_MAX}, not {}", config.queue_depth));
    }
    if config.backend == StreamBackend::IoUring && transfer * u64::from(config.queue_depth) > TRANSFER_MAX {
        return Some(
            "a queue of transfers must have at most 1GiB: choose a smaller queue-depth or transfer"
                .to_owned(),
        );
    }
    if config.direct && !transfer.is_multiple_of(SECTOR_BYTES) {
        return Some(format!(
            "with direct a transfer must be a multiple of {SECTOR_BYTES} bytes, not {}",
            config.transfer
        ));
    }
    if config.backend == StreamBackend::Mmap && config.direct {
        return Some(
            "a mapping goes through the page cache: leave direct out, or choose another backend".to_owned(),
        );
    }
    if config.backend == StreamBackend::Mmap
        && (!block.is_multiple_of(PAGE_BYTES) || config.stonewall.is_some())
    {
        return Some(
            "a mapping needs blocks that are a multiple of 4KiB, and the space of the whole file: leave stonewall out"
                .to_owned(),
        );
    }
    if config.verify && !transfer.is_multiple_of(8) {
        return Some(format!(
            "verify needs transfers that are a multiple of 8 bytes, not {}",
            config.transfer
        ));
    }
    if config.stonewall.is_some_and(|time| time.0 == 0) {
        return Some("stonewall must be longer than zero, as in 30s".to_owned());
    }
    if config.wear_out && config.stonewall.is_none() {
        return Some("wear-out is of a stonewall: add it, as in 30s, or leave wear-out out".to_owned());
    }
    if config.read && !config.write && config.name.is_none() {
        return Some(
            "read alone needs the name of the folder that an earlier run has kept: write --name NAME"
                .to_owned(),
        );
    }
    if config.existing && !config.write {
        return Some("existing is of writing: add --write, or leave --existing out".to_owned());
    }
    if config.existing && config.name.is_none() {
        return Some(
            "existing needs the name of the folder that an earlier run has kept: write --name NAME"
                .to_owned(),
        );
    }
    if config.mix_reads.is_some_and(|percent| !(1..=99).contains(&percent)) {
        return Some("mix-reads must be 1 to 99 %: --read and --write have the rest".to_owned());
    }
    if config.mix_reads.is_some() && !config.existing {
        return Some("mix-reads reads files that are there: add --write --existing --name NAME".to_owned());
    }
    if config.reorder_offset.is_some() && config.reorder != StreamReorder::Constant {
        return Some("an offset is of reading by -C: add it, or leave reorder-offset out".to_owned());
    }
    if config.single_attempt && config.backend == StreamBackend::Mmap {
        return Some("a mapping has no transfers in part: leave single-attempt out".to_owned());
    }
    if config.fsync_per_write && config.backend == StreamBackend::IoUring {
        return Some(
            "transfers of io-uring are flushed at the end alone: leave fsync-per-write out".to_owned(),
        );
    }
    if config.verify && config.data != DataKind::default() {
        return Some("verify writes a pattern of its own: leave data out".to_owned());
    }
    let reorders = config.reorder != StreamReorder::None;
    if reorders && config.phases().len() == 1 && config.write {
        return Some("reorder is of reading: leave it out, or leave --write out".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{ByteCount, TimeSpan};

    use super::*;

    #[test]
    fn invalid_options_are_rejected_with_a_correction() {
        let default = StreamConfig::default;
        check(&default()).unwrap();
        let wrong = [
            (StreamConfig { tasks: 0, ..default() }, "tasks"),
            (StreamConfig { transfer: ByteCount(0), ..default() }, "1B to 1GiB"),
            (StreamConfig { block: ByteCount((1 << 20) + 1), ..default() }, "multiple of the transfer"),
            (StreamConfig { segments: 0, ..default() }, "at least 1"),
            (StreamConfig { segments: u64::MAX, ..default() }, "8 EiB"),
            (
                StreamConfig { transfer: ByteCount(100), block: ByteCount(1000), direct: true, ..default() },
                "512",
            ),
            (StreamConfig { backend: StreamBackend::Mmap, direct: true, ..default() }, "page cache"),
            (StreamConfig { stonewall: Some(TimeSpan(0)), ..default() }, "30s"),
            (StreamConfig { wear_out: true, ..default() }, "stonewall"),
            (StreamConfig { read: true, ..default() }, "--name"),
            (StreamConfig { existing: true, ..default() }, "--write"),
            (StreamConfig { existing: true, write: true, ..default() }, "--name"),
            (StreamConfig { mix_reads: Some(50), ..default() }, "--existing"),
            (StreamConfig { mix_reads: Some(100), ..default() }, "1 to 99"),
            (StreamConfig { reorder_offset: Some(1), ..default() }, "-C"),
            (StreamConfig { verify: true, data: DataKind::Zero, ..default() }, "pattern of its own"),
            (StreamConfig { write: true, reorder: StreamReorder::Random, ..default() }, "reorder"),
        ];
        for (config, expected) in wrong {
            let failure = check(&config).unwrap_err();
            assert!(failure.message.contains(expected), "{failure}");
        }
    }
}
