//! The text of a receive indirection table: `equal 4`, where entry i leads to
//! queue i modulo 4 as `ethtool -X IFACE equal 4` sets it, else its runs:
//! `0*57,1*35,2*18,3*18`.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// Most entries that a text expands to: several times those of any device.
const MOST_ENTRIES: usize = 1 << 16;
/// The prefix of a table without a size of its own.
const EQUAL: &str = "equal ";

/// An indirection table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Indirection {
    /// Entry i leads to queue i modulo this number, in a table of any size.
    Equal(u32),
    /// Queue of each entry.
    Entries(Vec<u32>),
}

/// A text that is no indirection table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is no indirection table: write `equal QUEUES`, or runs of entries like `0*64,1*32,2*32`")]
pub struct ParseIndirectionError {
    /// As given.
    pub text: String,
}

impl Indirection {
    /// The table with these entries, in the shortest form.
    pub fn of(entries: &[u32]) -> Self {
        let count = entries.iter().max().map_or(0, |most| most.saturating_add(1));
        if count > 0 && entries == expand(count, entries.len()) {
            return Self::Equal(count);
        }
        Self::Entries(entries.to_vec())
    }

    /// The entries in a table of this size; `None` where they are more or fewer.
    pub fn entries(&self, size: usize) -> Option<Vec<u32>> {
        match self {
            Self::Equal(count) => Some(expand(*count, size)),
            Self::Entries(entries) => (entries.len() == size).then(|| entries.clone()),
        }
    }
}

/// `ethtool_rxfh_indir_default` of linux/ethtool.h.
fn expand(count: u32, size: usize) -> Vec<u32> {
    (0..count.max(1)).cycle().take(size).collect()
}

/// Entries of each queue, by its number.
pub fn entry_counts(entries: &[u32]) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for queue in entries {
        *counts.entry(*queue).or_insert(0) += 1;
    }
    counts
}

/// The table leads to the queues below `queue_count` and no other, each by as
/// many entries as any other, but for one where they do not divide.
pub fn is_even(entries: &[u32], queue_count: u32) -> bool {
    let counts = entry_counts(entries);
    let (least, most) = (counts.values().min(), counts.values().max());
    counts.keys().copied().eq(0..queue_count)
        && least.zip(most).is_some_and(|(least, most)| most - least <= 1)
}

impl fmt::Display for Indirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal(count) => write!(f, "{EQUAL}{count}"),
            Self::Entries(entries) => {
                for (place, run) in entries.chunk_by(|one, next| one == next).enumerate() {
                    let comma = if place == 0 { "" } else { "," };
                    let queue = run.first().copied().unwrap_or_default();
                    match run.len() {
                        1 => write!(f, "{comma}{queue}")?,
                        length => write!(f, "{comma}{queue}*{length}")?,
                    }
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Indirection {
    type Err = ParseIndirectionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseIndirectionError { text: text.to_owned() };
        if let Some(count) = text.strip_prefix(EQUAL) {
            let count: u32 = count.trim().parse().map_err(|_| error())?;
            return if count == 0 { Err(error()) } else { Ok(Self::Equal(count)) };
        }
        let mut entries = Vec::new();
        for run in text.split(',') {
            let (queue, length) = run.split_once('*').unwrap_or((run, "1"));
            let queue: u32 = queue.trim().parse().map_err(|_| error())?;
            let length: usize = length.trim().parse().map_err(|_| error())?;
            if length == 0 || length > MOST_ENTRIES - entries.len() {
                return Err(error());
            }
            entries.resize(entries.len() + length, queue);
        }
        Ok(Self::of(&entries))
    }
}
