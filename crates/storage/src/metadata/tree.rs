//! Names of the tree's directories and of the items in them: computed of their numbers, never stored.

use std::fmt::Write as _;

use clearstream_schema::storage::metadata::{MetadataConfig, MetadataKind};
use serde::{Deserialize, Serialize};

use super::MetadataError;

/// Maximum directories of a tree, and depth, whose path fits `PATH_MAX`.
const MAX_DIRECTORIES: u64 = 100_000_000;
const MAX_DEPTH: u32 = 128;

/// Shape of the trees. Directory 0 is the root; the parent of directory `d` is `(d - 1) / branching`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tree {
    branching: u64,
    pub(super) directories: u64,
    /// The first directory that has items.
    first: u64,
    per_directory: u64,
    /// Items of each rank and kind.
    pub(super) items: u64,
    pub(super) is_unique: bool,
}

impl Tree {
    pub(super) fn new(config: &MetadataConfig) -> Result<Self, MetadataError> {
        let (mut directories, mut above): (u64, u64) = (0, 0);
        for level in 0..=config.depth.min(MAX_DEPTH) {
            let on_level = config.branching.checked_pow(level);
            above = directories;
            let all = on_level.and_then(|count| directories.checked_add(count));
            directories = all.unwrap_or(u64::MAX).min(MAX_DIRECTORIES + 1);
        }
        if config.branching == 0 || config.depth > MAX_DEPTH || directories > MAX_DIRECTORIES {
            return Err(MetadataError::Invalid(format!(
                "-z {} -b {}: from 1 branch, at most {MAX_DEPTH} levels and {MAX_DIRECTORIES} directories",
                config.depth, config.branching
            )));
        }
        let first = if config.leaves_only { above } else { 0 };
        let (per_directory, items) = match config.items_per_directory {
            Some(count) => (count, count.checked_mul(directories - first)),
            None => (config.items.div_ceil(directories - first), Some(config.items)),
        };
        let items = items.filter(|items| *items > 0 && *items < u64::from(u32::MAX) * 1000);
        let items = items.ok_or_else(|| MetadataError::Invalid("-n, -I: from 1 item".to_owned()))?;
        let is_unique = config.unique_directory;
        Ok(Self { branching: config.branching, directories, first, per_directory, items, is_unique })
    }

    /// Whether one that was read can be computed with.
    pub(super) fn is_sound(&self) -> bool {
        self.branching > 0
            && self.first < self.directories
            && self.directories <= MAX_DIRECTORIES
            && self.per_directory > 0
            && self.items > 0
            && self.items <= self.per_directory.saturating_mul(self.directories - self.first)
    }

    /// Path of a directory of a rank's tree, relative to the folder.
    pub(super) fn directory(&self, iteration: u32, rank: usize, number: u64) -> String {
        let mut path = match self.is_unique {
            true => format!("tree.{iteration}.{rank}"),
            false => format!("tree.{iteration}"),
        };
        let mut below = Vec::new();
        let mut directory = number;
        while directory > 0 {
            below.push(directory);
            directory = (directory - 1) / self.branching;
        }
        for directory in below.into_iter().rev() {
            let _ = write!(path, "/level.{directory}");
        }
        path
    }

    /// Path of what a rank makes of a kind, relative to the folder.
    pub(super) fn name(&self, iteration: u32, rank: usize, kind: MetadataKind, number: u64) -> String {
        match kind {
            MetadataKind::Tree => self.directory(iteration, rank, number),
            _ => self.item(iteration, rank, kind, number),
        }
    }

    /// Path of a rank's item, relative to the folder.
    pub(super) fn item(&self, iteration: u32, rank: usize, kind: MetadataKind, number: u64) -> String {
        let mut path = self.directory(iteration, rank, self.first + number / self.per_directory);
        let _ = write!(path, "/{}.{rank}.{number}", kind.name());
        path
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_tree_has_its_levels_and_every_item_a_place() {
        let config = MetadataConfig { depth: 2, branching: 3, items: 27, ..MetadataConfig::default() };
        let tree = Tree::new(&config).unwrap();
        assert_eq!((tree.directories, tree.items), (13, 27));
        let all: BTreeSet<String> = (0..13).map(|number| tree.directory(0, 0, number)).collect();
        assert_eq!(all.len(), 13);
        assert_eq!(all.iter().filter(|path| path.matches('/').count() == 2).count(), 9);
        assert!(all.contains("tree.0/level.1/level.4"));
        let items: BTreeSet<String> =
            (0..27).map(|number| tree.item(0, 1, MetadataKind::File, number)).collect();
        assert_eq!(items.len(), 27);
        assert!(items.iter().all(|path| all.contains(path.rsplit_once('/').unwrap().0)));
        let config = MetadataConfig { items_per_directory: Some(2), ..config };
        assert_eq!(Tree::new(&config).unwrap().items, 26);
        // Of mdtest -L: 9 leaves.
        let leaves = Tree::new(&MetadataConfig { leaves_only: true, ..config.clone() }).unwrap();
        let places: BTreeSet<String> = (0..leaves.items)
            .map(|number| leaves.item(0, 0, MetadataKind::File, number))
            .map(|path| path.rsplit_once('/').unwrap().0.to_owned())
            .collect();
        assert_eq!((leaves.items, places.len()), (18, 9));
        assert!(places.iter().all(|path| path.matches('/').count() == 2), "{places:?}");
        for (depth, branching, items) in [(0, 0, 1), (200, 1, 1), (40, 10, 1), (0, 1, 0)] {
            let config = MetadataConfig { depth, branching, items, ..MetadataConfig::default() };
            assert!(Tree::new(&config).is_err());
        }
    }
}
