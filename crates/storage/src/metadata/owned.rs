//! Whose the items are between the phases of a run: what is others' meanwhile is left out of the next one, counted and named.

use std::time::Instant;

use clearstream_schema::{
    control::Failure,
    storage::metadata::{MetadataKind, MetadataOperation},
};

use super::{
    MetadataError,
    agreement::{Next, agreement},
    identity,
    own::{self, Found, Look},
    run::{Run, notice},
};
use crate::{
    collective::{gather, share},
    kept::{Piece, joined},
    made::WANTED,
};

impl Run<'_, '_> {
    /// Looks up what an earlier run left, before it is renamed or removed: what is somebody else's stays as it is. Ranks look
    /// at what one on the next host removes. Whether to go on.
    pub(super) fn find_own(&mut self, kind: MetadataKind) -> Result<bool, MetadataError> {
        let Some(record) = &self.record else { return Ok(true) };
        let further = if kind == MetadataKind::Tree { 0 } else { self.further() };
        let pieces = self.part(kind, MetadataOperation::Remove, self.world.rank(), further);
        let is_remote = self.prepared.is_remote;
        let found = identity::find(self.places, record, kind, &pieces, is_remote, self.stop);
        self.settle(kind, found)
    }

    /// Looks up what this run has made, each rank its own, unless nothing was done since the last look. Whether to go on.
    pub(super) fn look(&mut self, kind: MetadataKind) -> Result<bool, MetadataError> {
        let place = kind as usize;
        if self.looked[place] == self.phases {
            return Ok(true);
        }
        self.looked[place] = self.phases;
        let rank = self.world.rank();
        let of_rank = |piece: &&Piece| piece.owner == rank;
        let pieces: Vec<Piece> = self.there.0[place].iter().filter(of_rank).copied().collect();
        let (shape, known) = ((&self.prepared.tree, self.iteration), &mut self.known[place]);
        let found = own::look(self.places, shape, kind, &pieces, known, self.stop);
        self.settle(kind, found)
    }

    /// What all ranks have found is what there is. Whether to go on.
    fn settle(&mut self, kind: MetadataKind, found: Result<Found, Failure>) -> Result<bool, MetadataError> {
        let failure = found.as_ref().err().cloned();
        agreement(self.world, failure)?;
        let found = gather(self.world, &found.unwrap_or_default())?;
        let next = (self.world.rank() == 0).then(|| {
            if found.iter().any(|found| found.is_over) {
                return Next::Over;
            }
            self.note_found(kind, &found);
            self.there.0[kind as usize] = joined(found.into_iter().flat_map(|found| found.own).collect());
            Next::Go(self.there.clone())
        });
        match share(self.world, next.as_ref())?.value()? {
            Some(there) => self.there = there,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Of rank 0: what is not there, or not the run's, for people.
    fn note_found(&mut self, kind: MetadataKind, found: &[Found]) {
        let gone: u64 = found.iter().map(|found| found.gone).sum();
        let foreign: u64 = found.iter().map(|found| found.foreign).sum();
        let mut first = None;
        for (owner, name) in found.iter().filter_map(|found| found.first_foreign.clone()) {
            let items = self.places.of(owner);
            first.get_or_insert_with(|| items.path().join(&name).display().to_string());
            items.0.folder.note_foreign(name);
        }
        let what = match kind {
            MetadataKind::File => "files",
            MetadataKind::Directory => "directories",
            MetadataKind::Tree => "directories of the tree",
        };
        // Of trees that were not made whole some never were.
        if gone > 0 && kind != MetadataKind::Tree {
            let message = format!("{gone} of the {what} that the earlier run left were gone before");
            self.notices.push(notice("kept-gone", message));
        }
        let Some(first) = first.filter(|_| foreign > 0) else { return };
        self.notices.push(match self.is_earlier() {
            true => {
                let message = format!("{foreign} of the {what} are not what the earlier run left: they stay");
                notice("kept-foreign", message)
            }
            false => {
                let message = format!("{foreign} of the {what} are not this run's and stay: {first}");
                notice("not-own", message)
            }
        });
    }

    /// Ranks to the same place on the next host; 0 where there is only one.
    pub(super) fn further(&self) -> usize {
        let hosts = &self.prepared.hosts;
        let of_host = hosts.iter().filter(|host| Some(*host) == hosts.first()).count();
        of_host % self.world.size()
    }

    /// Records what kept items are known by. All ranks call it together.
    pub(super) fn identify(&mut self, deadline: Option<Instant>) -> Result<(), MetadataError> {
        let (rank, iteration) = (self.world.rank(), self.tree_iteration());
        let kinds = if self.is_earlier() { &[][..] } else { &identity::RECORDED };
        let known = kinds.iter().try_for_each(|kind| {
            let own = (*kind, rank, self.made[*kind as usize]);
            let known = &self.known[*kind as usize];
            identity::record(self.places, (&self.prepared.tree, iteration), own, known, deadline)
        });
        let problems = gather(self.world, &known.err().map(|error| error.to_string()))?;
        if rank != 0 || kinds.is_empty() || self.record.is_none() {
            return Ok(());
        }
        let problem = problems.into_iter().flatten().next();
        if let Some(record) = &mut self.record {
            record.has_identities = problem.is_none();
        }
        if let Some(problem) = problem {
            identity::forget(self.places, self.world.size()).map_err(MetadataError::File)?;
            let message = format!("items that stay are known by their names alone: {problem}");
            self.notices.push(notice("kept-by-name", message));
        }
        self.store().map_err(MetadataError::File)
    }

    /// Removes what this rank has made of a kind and is there; what is not the run's is found.
    fn clean_items(&self, kind: MetadataKind) -> Result<Found, Failure> {
        let (tree, rank, iteration) = (self.prepared.tree, self.world.rank(), self.iteration);
        let known = &self.known[kind as usize];
        let mut look = Look::new(self.places.of(rank), WANTED);
        let mut found = Found::default();
        // Directories below are removed first.
        for number in (0..self.made[kind as usize]).rev() {
            let name = tree.name(iteration, rank, kind, number);
            if let Some(foreign) = own::clean(&mut look, kind, (&name, known.of(number)))? {
                found.add_foreign(rank, foreign);
            }
        }
        Ok(found)
    }

    /// Removes the items of a kind that no phase removes. All ranks call it together.
    pub(super) fn clean_behind(&mut self, kind: MetadataKind) -> Result<(), MetadataError> {
        let cleaned = self.clean_items(kind);
        agreement(self.world, cleaned.as_ref().err().cloned())?;
        let found = gather(self.world, &cleaned.unwrap_or_default())?;
        self.note_found(kind, &found);
        Ok(())
    }

    fn cleaned(&self, kind: MetadataKind, is_needed: bool) -> Result<Found, Failure> {
        if is_needed { self.clean_items(kind) } else { Ok(Found::default()) }
    }

    /// Removes what this rank has made where phases did not; rank 0 then the trees. All ranks call it together.
    pub(super) fn clean(&mut self, is_needed: bool) -> Result<(), MetadataError> {
        let kinds = [MetadataKind::Directory, MetadataKind::File, MetadataKind::Tree];
        let [directory, file, tree] = kinds;
        let mut cleaned = vec![self.cleaned(directory, is_needed), self.cleaned(file, is_needed)];
        // A directory is empty when all ranks have removed their items. A lost rank keeps its own.
        let all = self.world.barrier();
        cleaned.push(self.cleaned(tree, is_needed));
        let failure = cleaned.iter().find_map(|cleaned| cleaned.as_ref().err());
        let failure = failure.map(|failure| failure.message.clone());
        let found: Vec<Found> = cleaned.into_iter().map(Result::unwrap_or_default).collect();
        all?;
        let ranks = gather(self.world, &(found, failure.clone()))?;
        for (place, kind) in kinds.into_iter().enumerate() {
            let of_kind = ranks.iter().filter_map(|(found, _)| found.get(place).cloned());
            self.note_found(kind, &of_kind.collect::<Vec<_>>());
        }
        let folder = self.places.of(self.world.rank()).path().display().to_string();
        let first = ranks.into_iter().map(|(_, failure)| failure).chain([failure]).flatten().next();
        first.map_or(Ok(()), |message| {
            Err(MetadataError::Remains(format!("the folder {folder} remains: {message}")))
        })
    }
}
