//! `clearstream probe`

use std::time::Duration;

use clearstream_schema::probe::{ProbeConfig, ProbeSummary};
use serde::Serialize;

use crate::{
    endpoints::{Endpoints, PathArgs},
    exit::CommandError,
    interrupt,
    output::{self, Paint, probe, progress::Progress},
};

/// Measure delay, loss, path MTU and hops to another host, both ways.
#[derive(Debug, clap::Args)]
pub struct ProbeArgs {
    /// The other host: as ssh knows it, `localhost`, or ADDRESS[:PORT] with --pairing
    host: Option<String>,
    #[command(flatten)]
    path: PathArgs,
    #[command(flatten)]
    config: ProbeConfig,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// `--json`.
#[derive(Debug, Serialize)]
struct ProbeDocument<'a> {
    schema: &'static str,
    version: u32,
    #[serde(flatten)]
    summary: &'a ProbeSummary,
}

impl ProbeArgs {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        let stop = interrupt::stop_flag()?;
        let mut ends = Endpoints::open(self.host.as_deref(), &self.path)?;
        // UDP and TCP, both ways, each `count` round trips apart by the interval.
        let expected = self.config.interval.to_std() * self.config.count * 4 + Duration::from_secs(2);
        let mut progress = Progress::start(expected);
        progress.update(expected, "probing both ways");
        let summary = clearstream_probe::run_on(&mut ends.hosts()?, &self.config, &stop)?;
        drop(progress);
        if self.json {
            output::json(
                &ProbeDocument { schema: "clearstream.probe", version: 1, summary: &summary },
                true,
            )?;
        } else {
            output::line(&probe::summary(&summary, Paint::for_stdout()))?;
        }
        Ok(())
    }
}
