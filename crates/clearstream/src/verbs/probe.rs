//! `clearstream probe`

use std::time::Duration;

use clearstream_schema::probe::ProbeConfig;

use crate::{
    endpoints::{Endpoints, HostArgs, PathArgs},
    exit::CommandError,
    interrupt,
    output::{Output, Paint, probe},
};

/// Measure delay, loss, path MTU and hops to another host, in both directions.
#[derive(Debug, clap::Args)]
pub struct ProbeArgs {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    path: PathArgs,
    #[command(flatten)]
    config: ProbeConfig,
}

impl ProbeArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let stop = interrupt::stop_flag()?;
        let mut ends = Endpoints::open(self.host.name(), &self.path)?;
        out.set_hosts(ends.identities());
        // UDP and TCP, in both directions, each `count` round trips apart by the interval.
        let expected = self.config.interval.to_std() * self.config.count * 4 + Duration::from_secs(2);
        out.progress(expected, "probing both directions");
        let summary = match clearstream_probe::run_on(&mut ends.hosts()?, &self.config, &stop) {
            Err(error) if error.stopped => {
                return Err(CommandError::Interrupted(
                    "the probe was interrupted: it has results only at its end".to_owned(),
                ));
            }
            summary => summary?,
        };
        Ok(out.result(&summary, || probe::summary(&summary, Paint::for_stdout()))?)
    }
}
