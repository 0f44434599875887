//! The shape of kept files, and where what was written is in them. Its record has the counts of each rank as soon as they
//! are known.

use clearstream_schema::{
    control::{Failure, FailureKind},
    storage::StreamConfig,
};
use serde::{Deserialize, Serialize};

use super::{files::Files, layout::Layout};
use crate::{data::mixed, kept::Shape};

/// Shape of kept files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Name of the folder when they were written: a part of the pattern of `--verify`.
    pub(super) folder: String,
    /// The iteration whose files remain.
    pub(super) iteration: u32,
    pub(super) transfer: u64,
    pub(super) block: u64,
    pub(super) segments: u64,
    pub(super) ranks: usize,
    pub(super) file_per_process: bool,
    pub(super) random_offsets: bool,
    pub(super) seed: u64,
    pub(super) verify: bool,
    /// Transfers of each rank; absent while they are written, and for ever when all processes were killed then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) written: Option<Vec<u64>>,
}

/// Where what was written is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) layout: Layout,
    /// Transfers of each rank that wrote.
    pub(super) written: Vec<u64>,
    /// They are read in the order of all that the writer would have written, else in one of what there is.
    pub(super) is_as_written: bool,
}

impl Plan {
    /// Number of transfers that a random order of a rank's part is of.
    pub(super) fn of(&self, owner: usize) -> u64 {
        match self.is_as_written {
            true => self.layout.count(),
            false => self.written.get(owner).copied().unwrap_or(0),
        }
    }
}

impl Shape for Kept {
    const FORMAT: &'static str = "clearstream.storage-kept";
    const WHAT: &'static str = "kept files";
    const HINT: &'static str = "remove it to read the files by the options";

    fn is_sound(&self) -> bool {
        self.transfer > 0
            && self.block.is_multiple_of(self.transfer)
            && self.ranks > 0
            && self.written.as_ref().is_none_or(|written| written.len() == self.ranks)
            && self.count().checked_mul(self.transfer).is_some()
    }
}

impl Kept {
    /// Of a run that writes.
    pub(super) fn new(config: &StreamConfig, folder: &str, iteration: u32, ranks: usize) -> Self {
        Self {
            folder: folder.to_owned(),
            iteration,
            transfer: config.transfer.0,
            block: config.block.0,
            segments: config.segments,
            ranks,
            file_per_process: config.file_per_process,
            random_offsets: config.random_offsets,
            seed: config.seed,
            verify: config.verify,
            written: None,
        }
    }

    /// Transfers of a rank that was not ended early.
    fn count(&self) -> u64 {
        self.segments.saturating_mul(self.block / self.transfer)
    }

    fn config(&self, transfer: u64) -> StreamConfig {
        StreamConfig {
            transfer: clearstream_schema::ByteCount(transfer),
            block: clearstream_schema::ByteCount(self.block),
            segments: self.segments,
            file_per_process: self.file_per_process,
            random_offsets: self.random_offsets,
            ..StreamConfig::default()
        }
    }

    /// Where the transfers of a reading run are, and how many of each rank that wrote.
    pub(super) fn plan(&self, config: &StreamConfig, files: &Files<'_>) -> Result<Plan, Failure> {
        let transfer = config.transfer.0;
        if config.verify && !self.verify {
            return Err(invalid("these files were written without --verify: leave it out".to_owned()));
        }
        let written = match &self.written {
            Some(written) => written.clone(),
            None => self.found(files)?,
        };
        let is_whole = written.iter().all(|count| *count == self.count());
        let of_writer = Layout::new(&self.config(self.transfer), self.ranks, seed(self.seed, self.iteration));
        if self.random_offsets && !is_whole {
            // Only the writer's own order leads to what there is.
            return match transfer == self.transfer {
                true => Ok(Plan { layout: of_writer, written, is_as_written: true }),
                false => Err(invalid(format!(
                    "these files were written in part, in random order: read them by transfers of {}, as they were",
                    clearstream_schema::ByteCount(self.transfer)
                ))),
            };
        }
        let bytes: Vec<u64> = written.iter().map(|count| count * self.transfer).collect();
        if !self.block.is_multiple_of(transfer) || bytes.iter().any(|bytes| !bytes.is_multiple_of(transfer)) {
            return Err(invalid(format!(
                "these files have blocks of {}, written by transfers of {}: transfers of {} do not divide what there is",
                clearstream_schema::ByteCount(self.block),
                clearstream_schema::ByteCount(self.transfer),
                config.transfer
            )));
        }
        let own = StreamConfig { random_offsets: config.random_offsets, ..self.config(transfer) };
        let layout = Layout::new(&own, self.ranks, seed(config.seed, self.iteration));
        let written = bytes.iter().map(|bytes| bytes / transfer).collect();
        Ok(Plan { layout, written, is_as_written: false })
    }

    /// Whether every transfer of these options finds something to read: the files are whole and of this shape, and with
    /// `--verify` what is written over them is what is in them.
    pub(super) fn check_mix(
        &self,
        config: &StreamConfig,
        ranks: usize,
        folder: &str,
        files: &Files<'_>,
    ) -> Result<(), Failure> {
        let written = match &self.written {
            Some(written) => written.clone(),
            None => self.found(files)?,
        };
        if self.differs(config, ranks) || written.iter().any(|count| *count < self.count()) {
            let part = if self.differs(config, ranks) { "of another shape" } else { "written in part" };
            return Err(invalid(format!(
                "mix-reads reads what is there, and these files are {part} ({}): write them whole, with the same options \
                 and without mix-reads, first",
                self.shape()
            )));
        }
        if config.verify && !(self.verify && self.folder == folder) {
            return Err(invalid(
                "these files have another pattern than this run writes: leave --verify out, or write them with it first"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// What there is of files whose writer could not say how much it wrote: as far as each goes.
    fn found(&self, files: &Files<'_>) -> Result<Vec<u64>, Failure> {
        let layout = Layout::new(&self.config(self.transfer), self.ranks, seed(self.seed, self.iteration));
        if self.random_offsets {
            return Err(invalid(
                "the run that wrote these files was killed while it wrote in random order: which parts there are is not \
                 known; write them again"
                    .to_owned(),
            ));
        }
        let of = |owner: usize| {
            let there = files.bytes(self.iteration, owner).unwrap_or(0);
            let (mut few, mut many) = (0, self.count());
            while few < many {
                let middle = few + (many - few).div_ceil(2);
                let end = layout.offset(owner, middle - 1, self.count()) + self.transfer;
                if end <= there { few = middle } else { many = middle - 1 }
            }
            few
        };
        Ok((0..self.ranks).map(of).collect())
    }

    /// The shape, for people.
    pub(super) fn shape(&self) -> String {
        format!(
            "{} of {} ranks, {} of blocks of {}",
            if self.file_per_process { "files" } else { "a shared file" },
            self.ranks,
            clearstream_schema::human::count(self.segments, "segment"),
            clearstream_schema::ByteCount(self.block)
        )
    }

    /// Whether the options ask for another shape than the files have.
    pub(super) fn differs(&self, config: &StreamConfig, ranks: usize) -> bool {
        (self.block, self.segments, self.ranks, self.file_per_process)
            != (config.block.0, config.segments, ranks, config.file_per_process)
    }
}

/// Seed of the random offsets of an iteration, the same on all ranks.
pub(super) fn seed(seed: u64, iteration: u32) -> u64 {
    mixed(seed.rotate_left(32) ^ u64::from(iteration))
}

fn invalid(message: String) -> Failure {
    Failure { kind: FailureKind::Invalid, message }
}
