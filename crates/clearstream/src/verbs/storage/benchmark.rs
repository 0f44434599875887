//! What `storage stream` and `storage metadata` do alike, verbs of their own because there is one host and many ranks: they are run at an agent, as a job of MPI or as a rank of one, or
//! on two directories in turns.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use clearstream_ranks::World;
use clearstream_schema::TimeSpan;
use clearstream_storage::{JobPlace, Live, OnLive, Ran, RankBenchmark, RankSummary, guard::Guard};

use super::{
    against::{Turn, in_turns},
    place::Place,
    ranks::{RankArgs, as_rank, stop_after},
};
use crate::{
    endpoints::own_program,
    exit::CommandError,
    output::{Output, Paint, Unwritten, documents::Document, storage_comparison},
};

/// A benchmark that is asked for.
pub(super) struct Asked<'a, B: RankBenchmark> {
    pub(super) config: &'a B::Config,
    pub(super) place: &'a Place,
    pub(super) ranks: &'a RankArgs,
    /// Maximum duration of all phases.
    pub(super) timeout: TimeSpan,
    pub(super) stop: &'a Arc<AtomicBool>,
    pub(super) out: &'a Output,
}

impl<B: RankBenchmark> Asked<'_, B>
where
    B::Summary: Document,
{
    /// Runs it and prints it as `text`; in the form of `another` program its notices are beside the text, which has no
    /// place for them.
    pub(super) fn measure(
        &self,
        another: bool,
        text: impl Fn(&B::Summary) -> String,
        on_point: &mut dyn FnMut(&B::Point),
    ) -> Result<(), CommandError> {
        let Self { config, stop, out, .. } = *self;
        let print = |found: &B::Summary| {
            if another {
                found.notices().iter().for_each(|notice| out.notice(notice));
            }
            out.result(found, || text(found))
        };
        let on_live = self.ranks.on_live(out);
        let mut is_over = Arc::new(AtomicBool::new(false));
        let ran = if self.ranks.mpi {
            is_over = stop_after(self.timeout, stop);
            let run = |world: &mut dyn World, guard: &mut Guard, live: &Live| {
                B::as_rank(world, config, stop, guard, live, on_point)
            };
            as_rank(B::common(config).mpi_library, stop, (out, &on_live), run, print)?
        } else {
            Some(self.on_hosts(config, self.timeout.to_std(), on_point, &on_live)?)
        };
        let Some(Ran { found, error }) = ran else { return Ok(()) };
        if !self.ranks.mpi {
            print(&found)?;
        }
        match error {
            Some(error) => Err(error.into()),
            None if found.is_complete() => Ok(()),
            None => super::ended_early(stop.load(Relaxed) && !is_over.load(Relaxed), self.timeout),
        }
    }

    fn on_hosts(
        &self,
        config: &B::Config,
        timeout: Duration,
        on_point: &mut dyn FnMut(&B::Point),
        on_live: OnLive<'_>,
    ) -> Result<Ran<B::Summary>, CommandError> {
        Ok(if B::common(config).hosts.is_some() {
            let job = JobPlace { lab: self.place.lab(), program: &own_program()? };
            B::as_job(job, config, timeout, self.stop, on_point, on_live)?
        } else {
            B::at_agent(&mut self.place.start()?, config, timeout, self.stop, on_point, on_live)?
        })
    }

    /// Its directory and another one in turns.
    pub(super) fn compare(&self, other: &Path) -> Result<(), CommandError> {
        let Self { config, place, stop, out, .. } = *self;
        let on_live = self.ranks.on_live(out);
        let common = B::common(config);
        let directories = [common.directory.to_owned(), place.directory(other, common.hosts)?];
        let limits = (common.iterations, self.timeout.to_std());
        let workload = B::default();
        let turn = |number: usize, left| {
            let config = B::once_in(config, &directories[number]);
            let mut on_point = |point: &B::Point| out.interval(point, || None);
            let found = self.on_hosts(&config, left, &mut on_point, &on_live)?.whole()?;
            Ok(Turn {
                outcome: found.outcome().map_err(Unwritten::from)?,
                file_system: found.file_system().to_owned(),
            })
        };
        let (found, error) =
            in_turns((workload.name(), config), directories.clone(), limits, stop, out, turn)?;
        out.result(&found, || storage_comparison::summary(&found, Paint::for_stdout()))?;
        match error {
            Some(error) => Err(error),
            None if found.complete => Ok(()),
            None => super::ended_early(stop.load(Relaxed), self.timeout),
        }
    }
}
