//! `clearstream overlap`

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use clearstream_overlap::{Overlap, OverlapEvent};
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
        // A study may have the progress beside a factor `transport`.
        if self.config.transport == OverlapTransport::Tcp && self.config.progress != RdmaProgress::default() {
            return Err(CommandError::usage(
                "--progress is of queue pairs, and the kernel moves the bytes of TCP: leave it out, or write --transport iwarp",
            ));
        }
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
        let summary = clearstream_overlap::run_on(&mut ends.hosts()?, &self.config, &stop, &mut on_event)?;
        out.result(&summary, || overlap::summary(&summary, Paint::for_stdout()))?;
        if stop.load(Ordering::Relaxed) {
            return Err(CommandError::Interrupted(
                "results cover the intervals of work measured up to the interruption".to_owned(),
            ));
        }
        Ok(())
    }
}
