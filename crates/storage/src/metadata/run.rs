//! The phases of a run: on items that it creates itself, or on those that an earlier run left.

use std::sync::atomic::AtomicBool;

use clearstream_ranks::World;
use clearstream_schema::{
    control::Failure,
    notice::Notice,
    storage::{
        ClientCache,
        metadata::{MetadataConfig, MetadataKind, MetadataOperation, MetadataPhase},
    },
};
use serde::{Deserialize, Serialize};

use super::{
    MetadataError,
    agreement::{Next, agreed, agreement},
    folder::Places,
    kept::KeptItems,
    measure::Prepared,
    own::Known,
    phase::{self, RankPhase, Task},
    tree::Tree,
};
use crate::{
    clock::{Clocks, Spans},
    collective::{gather, share},
    kept::{Piece, joined, shared},
    live::Live,
    operations_log::{Item, LoggedPhase, OperationsLog, Record, Records},
};

/// Items of each kind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct There(pub(super) [Vec<Piece>; 3]);

pub(super) struct Run<'a, 'w> {
    pub(super) world: &'a mut (dyn World + 'w),
    config: &'a MetadataConfig,
    pub(super) stop: &'a AtomicBool,
    live: &'a Live,
    /// Phases that have begun.
    pub(super) phases: u64,
    clocks: Clocks,
    pub(super) log: Option<OperationsLog>,
    pub(super) places: &'a Places,
    pub(super) prepared: &'a Prepared,
    on_phase: &'a dyn Fn(&MetadataPhase),
    pub(super) iteration: u32,
    /// Directories of the tree, directories and files that this rank has made, with one that it may have made.
    pub(super) made: [u64; 3],
    /// By what they are known.
    pub(super) known: [Known; 3],
    /// Phases before the last look at them.
    pub(super) looked: [u64; 3],
    /// Items that there are, of all ranks; directories of trees that this run made.
    pub(super) there: There,
    /// Of what stays, or of an earlier run; rank 0 writes it.
    pub(super) record: Option<KeptItems>,
    /// What an earlier run left is removed.
    pub(super) is_removed: bool,
    /// What to know of the items, at rank 0.
    pub(super) notices: Vec<Notice>,
}

impl<'a, 'w> Run<'a, 'w> {
    pub(super) fn new(
        world: &'a mut (dyn World + 'w),
        config: &'a MetadataConfig,
        (stop, live): (&'a AtomicBool, &'a Live),
        (clocks, log): (Clocks, Option<OperationsLog>),
        places: &'a Places,
        prepared: &'a Prepared,
        on_phase: &'a dyn Fn(&MetadataPhase),
    ) -> Self {
        let record = prepared.earlier.clone();
        let mut there = There::default();
        let mut notices = Vec::new();
        if let Some(record) = &record {
            for kind in [MetadataKind::Directory, MetadataKind::File] {
                there.0[kind as usize] = record.there(kind);
            }
            if record.differs(config, world.size()) {
                let message =
                    format!("the items are used in the shape in which they were made: {}", record.shape());
                notices.push(notice("kept-shape", message));
            }
        }
        Self {
            world,
            config,
            stop,
            live,
            phases: 0,
            clocks,
            log,
            places,
            prepared,
            on_phase,
            iteration: 0,
            made: [0; 3],
            known: Default::default(),
            looked: [0; 3],
            there,
            record,
            is_removed: false,
            notices,
        }
    }

    pub(super) fn is_earlier(&self) -> bool {
        self.prepared.earlier.is_some()
    }

    /// Whether the run came to its end.
    pub(super) fn iterations(&mut self) -> Result<bool, MetadataError> {
        for iteration in 0..self.config.iterations {
            let is_last = iteration + 1 == self.config.iterations;
            self.iteration = iteration;
            let goes_on = if self.is_earlier() { self.on_earlier(is_last)? } else { self.on_new()? };
            if !goes_on {
                return Ok(false);
            }
            if self.config.keep && !is_last {
                // What is kept is one set of items.
                self.clean(true)?;
            }
        }
        Ok(true)
    }

    /// An iteration with items of its own.
    fn on_new(&mut self) -> Result<bool, MetadataError> {
        (self.made, self.there) = ([0; 3], There::default());
        self.known = Default::default();
        if self.config.keep {
            let (tree, kinds, ranks) = (self.prepared.tree, &self.prepared.kinds, self.world.size());
            self.record = Some(KeptItems::new(tree, self.iteration, ranks, kinds));
            let stored = self.store();
            agreement(self.world, stored.err())?;
        }
        let is_made = self.phase(MetadataKind::Tree, MetadataOperation::Create, 0)?;
        if !is_made || !self.look(MetadataKind::Tree)? {
            return Ok(false);
        }
        for kind in &self.prepared.kinds {
            if !self.kind(*kind, true)? {
                return Ok(false);
            }
            if !self.config.keep && !self.config.has_phase(MetadataOperation::Remove) {
                self.clean_behind(*kind)?;
            }
        }
        if self.config.keep {
            return Ok(true);
        }
        let goes_on =
            self.look(MetadataKind::Tree)? && self.phase(MetadataKind::Tree, MetadataOperation::Remove, 0)?;
        if goes_on {
            self.made = [0; 3];
        }
        Ok(goes_on)
    }

    /// An iteration on items of an earlier run, which the last one removes if any.
    fn on_earlier(&mut self, is_last: bool) -> Result<bool, MetadataError> {
        for kind in &self.prepared.kinds {
            if !self.kind(*kind, is_last)? {
                return Ok(false);
            }
        }
        let is_empty = self.there.0.iter().all(Vec::is_empty);
        if is_last && is_empty && self.config.has_phase(MetadataOperation::Remove) {
            self.there.0[MetadataKind::Tree as usize] = self.trees();
            let goes_on = self.find_own(MetadataKind::Tree)?
                && self.phase(MetadataKind::Tree, MetadataOperation::Remove, 0)?;
            self.is_removed = goes_on;
            return Ok(goes_on);
        }
        Ok(true)
    }

    /// All phases of a kind; whether to go on.
    fn kind(&mut self, kind: MetadataKind, is_last: bool) -> Result<bool, MetadataError> {
        let operations =
            MetadataOperation::ALL.into_iter().filter(|operation| self.config.has_phase(*operation));
        // Creation was the phase before those of an earlier run's items.
        for (number, operation) in (usize::from(self.is_earlier())..).zip(operations) {
            if self.is_earlier() && operation == MetadataOperation::Remove && !is_last {
                continue;
            }
            let is_changed = changes(operation) && operation != MetadataOperation::Create;
            let goes_on = match self.is_earlier() {
                true => !is_changed || self.find_own(kind)?,
                false => !is_changed || self.look(kind)?,
            };
            if !goes_on || !self.phase(kind, operation, number * self.config.stride as usize)? {
                return Ok(false);
            }
            if operation == MetadataOperation::Create && !self.look(kind)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// All directories of the trees.
    fn trees(&self) -> Vec<Piece> {
        let Tree { is_unique, directories, .. } = self.prepared.tree;
        let owners = self.prepared.earlier.as_ref().map_or(self.world.size(), |earlier| earlier.ranks);
        (0..if is_unique { owners } else { 1 }).map(|owner| Piece::new(owner, 0, directories)).collect()
    }

    /// What a rank has to do, that many ranks further.
    pub(super) fn part(
        &self,
        kind: MetadataKind,
        operation: MetadataOperation,
        rank: usize,
        shift: usize,
    ) -> Vec<Piece> {
        let (tree, size) = (self.prepared.tree, self.world.size());
        match (kind, operation) {
            // Directories of a tree have an order; one rank has all of them. Those below are removed first.
            (MetadataKind::Tree, operation) => {
                let is_made = operation == MetadataOperation::Create;
                let all = if is_made { self.trees() } else { self.there.0[kind as usize].clone() };
                all.into_iter().rev().filter(|piece| piece.owner % size.max(1) == rank).collect()
            }
            (_, MetadataOperation::Create) => vec![Piece::new(rank, 0, tree.items)],
            _ => {
                let owners = self.prepared.earlier.as_ref().map_or(size, |earlier| earlier.ranks);
                shared(&self.there.0[kind as usize], owners, size, (rank + shift) % size)
            }
        }
    }

    /// Whether to go on.
    fn phase(
        &mut self,
        kind: MetadataKind,
        operation: MetadataOperation,
        shift: usize,
    ) -> Result<bool, MetadataError> {
        let (rank, size) = (self.world.rank(), self.world.size());
        let pieces = self.part(kind, operation, rank, shift);
        if self.record.is_some() && kind != MetadataKind::Tree && changes(operation) {
            let all: Vec<Piece> = match rank {
                0 => (0..size).flat_map(|rank| self.part(kind, operation, rank, shift)).collect(),
                _ => Vec::new(),
            };
            let marked = self.note(kind, Some(operation), &all);
            agreement(self.world, marked.err())?;
        }
        self.phases += 1;
        let live = self.live.begin(rank, self.phases, || {
            let all = (0..size).flat_map(|rank| self.part(kind, operation, rank, shift));
            let expected = all.map(|piece| piece.count).fold(0, u64::saturating_add);
            phase::live(self.config, (kind, operation), self.iteration, expected)
        });
        let task = Task {
            live,
            config: self.config,
            tree: self.prepared.tree,
            stop: self.stop,
            iteration: self.iteration,
            tree_iteration: self.tree_iteration(),
            is_earlier: self.is_earlier(),
            kind,
            operation,
            places: self.places,
            pieces: &pieces,
        };
        let all = pieces.iter().map(|piece| piece.count).fold(0, u64::saturating_add);
        let mut records = self.log.as_ref().map(|log| log.records(all));
        let (own, spans) = phase::run(self.world, &self.clocks, task, &mut records)?;
        if rank == 0 {
            self.live.end();
        }
        let logged = self.write_log(task, spans.as_ref(), records)?;
        if operation == MetadataOperation::Create {
            self.made[kind as usize] = own.operations + u64::from(own.is_partial);
        }
        let ranks = gather(self.world, &own)?;
        let next = spans.map(|spans| self.collect(task, &ranks, spans, shift));
        let next = next.map(|next| match (next, logged) {
            (Next::Go(_) | Next::Over, Some(failure)) => Next::Failed(failure),
            (next, _) => next,
        });
        match share(self.world, next.as_ref())?.value()? {
            Some(there) => {
                self.there = there;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// What the ranks did, into the log of operations.
    fn write_log(
        &mut self,
        task: Task<'_>,
        spans: Option<&Spans>,
        records: Option<Records>,
    ) -> Result<Option<Failure>, MetadataError> {
        let (Some(log), Some(records)) = (&mut self.log, records) else { return Ok(None) };
        let name = format!("{} {}", task.kind.name(), task.operation.name());
        let phase = LoggedPhase { name: &name, iteration: task.iteration };
        let item = |record: &Record| Item { file: phase::shown(task, record), offset: None };
        Ok(log.write(self.world, spans, phase, &records, item)?.err())
    }

    /// Of rank 0: what there is behind a phase, and its figures.
    fn collect(&mut self, task: Task<'_>, ranks: &[RankPhase], spans: Spans, shift: usize) -> Next<There> {
        let Task { kind, operation, .. } = task;
        if changes(operation) {
            self.there.0[kind as usize] = match (kind, operation) {
                (MetadataKind::Tree, MetadataOperation::Remove) => Vec::new(),
                _ => self.behind(kind, operation, ranks, shift),
            };
        }
        let there = self.there.0[kind as usize].clone();
        let noted = match kind {
            MetadataKind::Tree => Ok(()),
            _ if changes(operation) => self.note(kind, None, &there),
            _ => Ok(()),
        };
        let failures: Vec<_> = ranks.iter().map(|rank| rank.failure.clone()).collect();
        match (agreed(&failures), noted) {
            (Next::Go(()), Ok(())) => {}
            (Next::Go(()), Err(failure)) | (Next::Failed(failure), _) => return Next::Failed(failure),
            (Next::Over, _) => return Next::Over,
            (Next::Invalid(message), _) => return Next::Invalid(message),
        }
        let mut phase = phase::figures(task, ranks, spans);
        let is_looked_up = matches!(operation, MetadataOperation::Stat | MetadataOperation::Read);
        // What an earlier run left is looked at before it is changed, by this host if it is the only one.
        let is_seen =
            self.is_earlier() && changes(operation) && kind != MetadataKind::Tree && self.further() == 0;
        if is_looked_up || is_seen {
            let is_memory = self.prepared.is_memory;
            phase.client_cache = Some(if is_memory { ClientCache::Memory } else { ClientCache::Possible });
        }
        (self.on_phase)(&phase);
        if ranks.iter().any(|rank| rank.is_over) {
            return Next::Over;
        }
        Next::Go(self.there.clone())
    }

    /// Items that there are behind a phase that changed them.
    fn behind(
        &self,
        kind: MetadataKind,
        operation: MetadataOperation,
        ranks: &[RankPhase],
        shift: usize,
    ) -> Vec<Piece> {
        let mut found = Vec::new();
        for (rank, report) in ranks.iter().enumerate() {
            let mut done = report.done + u64::from(report.is_partial);
            for piece in self.part(kind, operation, rank, shift) {
                let (first, rest) = piece.split(done);
                done -= first.count;
                match operation {
                    MetadataOperation::Create => found.push(first),
                    MetadataOperation::Remove => found.push(rest),
                    _ => found.extend([Piece { is_renamed: !first.is_renamed, ..first }, rest]),
                }
            }
        }
        joined(found)
    }

    pub(super) fn tree_iteration(&self) -> u32 {
        self.prepared.earlier.as_ref().map_or(self.iteration, |earlier| earlier.iteration)
    }

    /// Notes in the record what there is, or is to be changed.
    fn note(
        &mut self,
        kind: MetadataKind,
        under_way: Option<MetadataOperation>,
        there: &[Piece],
    ) -> Result<(), Failure> {
        if let Some(record) = &mut self.record {
            record.set(kind, under_way, there);
        }
        match self.store() {
            // Where there is no room for it the record has more than there is, which the next removal sees.
            Err(_) if under_way == Some(MetadataOperation::Remove) => Ok(()),
            stored => stored,
        }
    }

    /// Of rank 0.
    pub(super) fn store(&mut self) -> Result<(), Failure> {
        match &mut self.record {
            Some(record) if self.world.rank() == 0 => record.store(self.places),
            _ => Ok(()),
        }
    }
}

/// Whether an operation changes which items there are, or their names.
fn changes(operation: MetadataOperation) -> bool {
    matches!(operation, MetadataOperation::Create | MetadataOperation::Rename | MetadataOperation::Remove)
}

pub(super) fn notice(id: &str, message: String) -> Notice {
    Notice { id: id.to_owned(), message }
}
