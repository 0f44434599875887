//! `clearstream overlap`

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use clearstream_overlap::{Overlap, OverlapError, OverlapEvent};
use clearstream_schema::{
    overlap::{OverlapConfig, OverlapTransport},
    rdma::RdmaProgress,
};
use clearstream_workload::Workload;

use crate::{
    endpoints::{Endpoints, HostArgs, PathArgs},
    exit::CommandError,
    interrupt,
    output::{Output, Paint, overlap, quantity},
};

/// Measure how much of a core stays free for work while messages move, by transport.
#[derive(Debug, clap::Args)]
pub struct OverlapArgs {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    path: PathArgs,
    #[command(flatten)]
    config: OverlapConfig,
}

impl OverlapArgs {
    /// Runs the measurement and prints it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        self.check_transport()?;
        let stop = interrupt::stop_flag()?;
        let mut ends = Endpoints::open(self.host.name(), &self.path)?;
        out.set_hosts(ends.identities());
        let expected = (Overlap.time(&self.config).to_std() + Overlap.overhead().to_std())
            .min(Duration::from_secs(365 * 86_400));
        let started = Instant::now();
        out.progress(expected, "connecting");
        let mut on_event = |OverlapEvent::Point(point)| {
            let left = expected.saturating_sub(started.elapsed());
            out.progress(left, &format!("{} measured", quantity::count(point.work_count, "iteration")));
            out.interval(&point, || None);
        };
        let run = clearstream_overlap::run_on(&mut ends.hosts()?, &self.config, &stop, &mut on_event);
        let (summary, broken) = match run {
            Err(OverlapError::Broken { source, partial }) => (*partial, Some(source)),
            run => (run?, None),
        };
        out.result(&summary, || overlap::summary(&summary, Paint::for_stdout()))?;
        if let Some(error) = broken {
            return Err(error.into());
        }
        if stop.load(Ordering::Relaxed) {
            return Err(CommandError::Interrupted(
                "results cover the intervals of work measured up to the interruption".to_owned(),
            ));
        }
        Ok(())
    }

    /// A study may have these beside a factor `transport`.
    fn check_transport(&self) -> Result<(), CommandError> {
        let config = &self.config;
        if config.transport != OverlapTransport::Iwarp && config.progress != RdmaProgress::default() {
            return Err(CommandError::usage(
                "--progress is of this program's own queue pairs: leave it out, or write --transport iwarp",
            ));
        }
        let options =
            [("--mpirun", config.mpirun.is_some()), ("--mpi-program", config.mpi_program.is_some())];
        match options.iter().find(|(_, is_set)| !config.transport.is_mpi() && *is_set) {
            Some((option, _)) => Err(CommandError::Usage(format!(
                "{option} is for MPI: leave it out, or write --transport mpi"
            ))),
            None => Ok(()),
        }
    }
}
