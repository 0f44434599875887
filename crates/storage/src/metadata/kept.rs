//! What a run with `--keep` leaves, for runs that look it up, read, rename or remove it: the shape of its trees, which items
//! of which rank there are, and by which name. While a phase changes items the record has what each rank is to do; ranks
//! do that in order, so that after a kill it can be seen how far each of them came.

use std::path::Path;

use clearstream_schema::{
    control::{Failure, FailureKind},
    human,
    storage::metadata::{MetadataConfig, MetadataKind, MetadataOperation},
};
use serde::{Deserialize, Serialize};

use super::{
    folder::{Items, Places, named},
    tree::Tree,
};
use crate::{
    calls::ItemShape,
    folder::Folder,
    kept::{self, Piece, Shape},
    test_folder::{Purpose, TestFolder},
};

/// Most ranks of a record.
const RANKS_MAX: usize = 10_000_000;

/// Kept trees, in each of their folders.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct KeptItems {
    /// Number in the names of the trees.
    pub(super) iteration: u32,
    /// Ranks that made them.
    pub(super) ranks: usize,
    pub(super) tree: Tree,
    /// Which of `places` folders this is.
    place: usize,
    places: usize,
    /// Whether the identity of each item is recorded beside this.
    pub(super) has_identities: bool,
    kinds: Vec<KeptKind>,
}

/// Items of a kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptKind {
    kind: MetadataKind,
    /// What changes them at this moment, each piece from its first item on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    under_way: Option<MetadataOperation>,
    there: Vec<Piece>,
}

impl Shape for KeptItems {
    const FORMAT: &'static str = "clearstream.storage-kept-metadata";
    const WHAT: &'static str = "kept items of `storage metadata`";
    const HINT: &'static str = "nothing in the folder was changed";

    fn is_sound(&self) -> bool {
        let is_piece = |piece: &Piece| {
            piece.owner < self.ranks
                && piece.first.checked_add(piece.count).is_some_and(|end| end <= self.tree.items)
        };
        let is_kind = |kind: &KeptKind| kind.kind != MetadataKind::Tree && kind.there.iter().all(is_piece);
        self.tree.is_sound()
            && (1..=RANKS_MAX).contains(&self.ranks)
            && self.place < self.places
            && self.kinds.iter().all(is_kind)
    }
}

impl KeptItems {
    /// Of a run that begins to create.
    pub(super) fn new(tree: Tree, iteration: u32, ranks: usize, kinds: &[MetadataKind]) -> Self {
        let kinds = kinds.iter().map(|kind| KeptKind { kind: *kind, under_way: None, there: Vec::new() });
        let kinds = kinds.collect();
        Self { iteration, ranks, tree, place: 0, places: 1, has_identities: false, kinds }
    }

    /// Notes what there is, or what is to be changed.
    pub(super) fn set(&mut self, kind: MetadataKind, under_way: Option<MetadataOperation>, there: &[Piece]) {
        if let Some(found) = self.kinds.iter_mut().find(|found| found.kind == kind) {
            found.under_way = under_way;
            found.there = there.to_vec();
        }
    }

    /// Items of a kind.
    pub(super) fn there(&self, kind: MetadataKind) -> Vec<Piece> {
        let found = self.kinds.iter().find(|found| found.kind == kind);
        found.map(|found| found.there.clone()).unwrap_or_default()
    }

    /// Writes it, to the first folder first.
    pub(super) fn store(&mut self, places: &Places) -> Result<(), Failure> {
        self.places = places.0.len();
        for (place, items) in places.0.iter().enumerate() {
            self.place = place;
            kept::store(self, &items.0.folder)?;
        }
        Ok(())
    }

    /// What an earlier run left, with its directories in their order.
    pub(super) fn load(directories: &[String], name: &str) -> Result<(Self, Vec<String>), Failure> {
        let purpose = Purpose { is_new: false, is_kept: false };
        let mut found = Vec::new();
        for directory in directories {
            let entered = TestFolder::enter(Path::new(directory), name, purpose)?;
            let record: Self = kept::load(&entered.folder)?.ok_or_else(|| not_kept(&entered.folder))?;
            found.push((record, directory.clone(), Items(entered)));
        }
        found.sort_by_key(|(record, ..)| record.place);
        let is_whole = found
            .iter()
            .enumerate()
            .all(|(place, (record, ..))| (record.place, record.places) == (place, directories.len()));
        if !is_whole {
            let count = found.iter().map(|(record, ..)| record.places).max().unwrap_or(0);
            let message = format!("the items of {name} are in {count} directories: name each of them once");
            return Err(invalid(message));
        }
        let (mut records, mut order, mut folders) = (Vec::new(), Vec::new(), Vec::new());
        for (record, directory, items) in found {
            records.push(record);
            order.push(directory);
            folders.push(items);
        }
        // Written first, and so never behind the others.
        let mut record = records.swap_remove(0);
        record.settle(&Places(folders))?;
        Ok((record, order))
    }

    /// How far the ranks of a run came that was killed.
    fn settle(&mut self, places: &Places) -> Result<(), Failure> {
        let (tree, iteration) = (self.tree, self.iteration);
        for KeptKind { kind, under_way, there } in &mut self.kinds {
            let Some(operation) = under_way.take() else { continue };
            let mut settled = Vec::new();
            for piece in there.drain(..) {
                let (renamed, plain) = (!piece.is_renamed, piece.is_renamed);
                let has = |number: u64, is_renamed: bool| {
                    let name = named(tree.item(iteration, piece.owner, *kind, number), is_renamed);
                    places.of(piece.owner).has(&name)
                };
                // Done, and to be done.
                let done = match operation {
                    MetadataOperation::Create => first(piece, |number| Ok(!has(number, plain)?))?,
                    MetadataOperation::Remove => first(piece, |number| has(number, plain))?,
                    _ => first(piece, |number| Ok(!has(number, renamed)?))?,
                };
                let (done, rest) = piece.split(done);
                match operation {
                    MetadataOperation::Create => settled.push(done),
                    MetadataOperation::Remove => settled.push(rest),
                    _ => settled.extend([Piece { is_renamed: renamed, ..done }, rest]),
                }
            }
            *there = kept::joined(settled);
        }
        Ok(())
    }

    /// The kinds that the options choose, of those that there are.
    pub(super) fn kinds(&self, config: &MetadataConfig) -> Result<Vec<MetadataKind>, Failure> {
        let chosen = config.kinds();
        let found = self.kinds.iter().map(|found| found.kind).filter(|kind| chosen.contains(kind));
        let found: Vec<MetadataKind> = found.collect();
        if found.is_empty() {
            return Err(invalid(
                "what the earlier run left has none of these: leave -F and -D out".to_owned(),
            ));
        }
        Ok(found)
    }

    /// The shape, for people.
    pub(super) fn shape(&self) -> String {
        format!(
            "{} of each of {} ranks in {}",
            human::count(self.tree.items, "item"),
            self.ranks,
            match self.tree.directories {
                1 => "1 directory".to_owned(),
                count => format!("{count} directories"),
            }
        )
    }

    /// For the document.
    pub(super) fn item_shape(&self) -> ItemShape {
        ItemShape { tree_count: self.tree.directories, item_count: self.tree.items }
    }

    /// Whether the options ask for another shape than the items have.
    pub(super) fn differs(&self, config: &MetadataConfig, ranks: usize) -> bool {
        self.ranks != ranks || Tree::new(config).map_or(true, |tree| tree != self.tree)
    }
}

/// How many of a piece come before the first one for which it is so: for none before it, and for all behind it.
fn first(piece: Piece, is_so: impl Fn(u64) -> Result<bool, Failure>) -> Result<u64, Failure> {
    let (mut few, mut many) = (0, piece.count);
    while few < many {
        let middle = few + (many - few) / 2;
        if is_so(piece.first + middle)? { many = middle } else { few = middle + 1 }
    }
    Ok(few)
}

fn not_kept(folder: &Folder) -> Failure {
    invalid(format!("{} has no record of items that an earlier run with --keep left", folder.path.display()))
}

fn invalid(message: String) -> Failure {
    Failure { kind: FailureKind::Invalid, message }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const KINDS: [MetadataKind; 2] = [MetadataKind::Directory, MetadataKind::File];

    fn tree() -> Tree {
        Tree::new(&MetadataConfig { items: 9, ..MetadataConfig::default() }).unwrap()
    }

    /// Phases of a run that was killed, by what there is of ten items of two ranks.
    #[test]
    fn how_far_a_killed_run_came_is_seen_by_what_there_is() {
        let renamed = |piece: Piece| Piece { is_renamed: true, ..piece };
        let all = [Piece::new(0, 0, 9), Piece::new(1, 0, 4)];
        let cases = [
            (MetadataOperation::Create, 0..3, vec![Piece::new(0, 0, 3)]),
            (MetadataOperation::Create, 0..0, vec![]),
            (MetadataOperation::Create, 0..9, vec![Piece::new(0, 0, 9)]),
            (MetadataOperation::Remove, 5..9, vec![Piece::new(0, 5, 4)]),
            (MetadataOperation::Remove, 0..9, vec![Piece::new(0, 0, 9)]),
            (MetadataOperation::Rename, 4..9, vec![renamed(Piece::new(0, 0, 4)), Piece::new(0, 4, 5)]),
        ];
        for (operation, there, expected) in cases {
            let directory = tempfile::tempdir().unwrap();
            let purpose = Purpose { is_new: true, is_kept: true };
            let folder = TestFolder::enter(directory.path(), "x", purpose).unwrap();
            let places = Places(vec![Items(folder)]);
            fs::create_dir(directory.path().join("x/tree.0")).unwrap();
            for number in 0..9_u64 {
                let is_renamed = operation == MetadataOperation::Rename && !there.contains(&number);
                if there.contains(&number) || is_renamed {
                    let name = named(tree().item(0, 0, MetadataKind::File, number), is_renamed);
                    fs::write(directory.path().join("x").join(name), "").unwrap();
                }
            }
            let mut record = KeptItems::new(tree(), 0, 2, &KINDS);
            record.set(MetadataKind::File, Some(operation), &all);
            record.store(&places).unwrap();
            let directories = [directory.path().to_str().unwrap().to_owned()];
            let (found, order) = KeptItems::load(&directories, "x").unwrap();
            let mut expected = expected;
            if operation == MetadataOperation::Rename {
                // Of the other rank nothing has either name.
                expected.push(Piece::new(1, 0, 4));
            }
            assert_eq!(found.there(MetadataKind::File), expected, "{operation} {there:?}");
            assert_eq!((order.as_slice(), found.ranks), (&directories[..], 2));
        }
    }

    #[test]
    fn a_record_that_cannot_be_computed_with_is_none() {
        let sound = KeptItems::new(tree(), 0, 2, &KINDS);
        assert!(sound.is_sound());
        let with = |change: &dyn Fn(&mut KeptItems)| {
            let mut record = sound.clone();
            change(&mut record);
            record.is_sound()
        };
        assert!(!with(&|record| record.ranks = 0));
        assert!(!with(&|record| record.ranks = usize::MAX));
        assert!(!with(&|record| record.place = 1));
        for piece in [Piece::new(2, 0, 1), Piece::new(0, 9, 1), Piece::new(0, 1, u64::MAX)] {
            assert!(!with(&|record| record.set(MetadataKind::File, None, &[piece])), "{piece:?}");
        }
    }
}
