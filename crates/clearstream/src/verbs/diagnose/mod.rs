//! `clearstream diagnose`

mod socket;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use clearstream_control::PeerError;
use clearstream_diagnose::{Evidence, GatherEvent, GatherOptions, explain, gather};
use clearstream_record::Reader;
use clearstream_schema::{
    BitRate, TimeSpan,
    diagnosis::{Diagnosis, Verdict},
    flow::{FlowConfig, Protocol},
};

use crate::{
    endpoints::{Endpoints, HostArgs, PathArgs},
    exit::CommandError,
    interrupt,
    output::{Output, Paint, diagnose, quantity},
};

/// Report what limits the path to another host, with evidence and suggestions.
#[derive(Debug, clap::Args)]
pub struct DiagnoseArgs {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    path: PathArgs,
    /// Diagnose a recorded run, without a host
    #[arg(long, value_name = "RUN", conflicts_with_all = ["HostArgs", "budget", "PathArgs", "FamilyArgs", "FlowConfig"])]
    from: Option<PathBuf>,
    /// Trial of the run (default: the one with the highest goodput)
    #[arg(long, value_name = "NUMBER", requires = "from", conflicts_with_all = ["HostArgs", "PathArgs"])]
    trial: Option<u32>,
    /// Total time: probe, the requested flow, experiments
    #[arg(long, value_name = "TIME", default_value = "40s")]
    budget: TimeSpan,
    /// Target rate of the path: required buffer sizes are computed for it
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    #[command(flatten)]
    socket: socket::SocketArgs,
    #[command(flatten)]
    config: FlowConfig,
}

/// Reports what limits the path, and what else was found.
pub(super) fn report_findings(diagnosis: &Diagnosis, out: &Output) {
    let primary = match &diagnosis.primary {
        Verdict::Found(finding) => Some(finding),
        Verdict::Unknown { .. } => {
            out.finding("unknown", &diagnosis.sentence(), || None);
            None
        }
    };
    for finding in primary.into_iter().chain(&diagnosis.secondary) {
        let cause = clearstream_schema::json::to_value(&finding.cause).unwrap_or_default();
        out.finding(cause["kind"].as_str().unwrap_or_default(), &finding.sentence, || None);
    }
}

impl DiagnoseArgs {
    /// Gathers or reads the evidence, explains it and prints the diagnosis.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if let Some(filter) = &self.socket.socket {
            return self.socket.run(filter, self.host.name(), &self.path, &self.config, out);
        }
        if self.config.protocol != Protocol::Tcp {
            return Err(CommandError::usage(
                "diagnose explains TCP flows: leave --protocol out, or measure loss with `clearstream flow --protocol udp`",
            ));
        }
        let default = FlowConfig::default();
        if self.config.duration != default.duration
            && self.config.duration.0.saturating_add(self.config.warm_up.0) > self.budget.0
        {
            return Err(CommandError::Usage(format!(
                "a flow of {} and its warm-up do not fit into a budget of {}: write a longer --budget",
                self.config.duration, self.budget
            )));
        }
        let stop = interrupt::stop_flag()?;
        let begun = Instant::now();
        let mut lost = None;
        let evidence = match &self.from {
            Some(run) => {
                let reader = Reader::open(run)?;
                Evidence { goal: self.rate, ..Evidence::from_record(&reader, self.trial)? }
            }
            None => self.gather(&stop, &mut lost, out)?,
        };
        let diagnosis = explain(&evidence);
        report_findings(&diagnosis, out);
        out.result(&diagnosis, || {
            let text = diagnose::diagnosis(&diagnosis, Paint::for_stdout());
            let seconds = begun.elapsed().as_secs_f64();
            match self.from {
                Some(_) => text,
                None => format!("{text}\n\n{} flow(s) in {seconds:.0} s", evidence.flows.len()),
            }
        })?;
        if stop.load(Ordering::Relaxed) {
            return Err(CommandError::Interrupted(
                "the diagnosis covers the evidence gathered up to the interruption".to_owned(),
            ));
        }
        lost.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The evidence, and which agent was lost before all of it was gathered.
    fn gather(
        &self,
        stop: &AtomicBool,
        lost: &mut Option<PeerError>,
        out: &Output,
    ) -> Result<Evidence, CommandError> {
        let mut ends = Endpoints::open(self.host.name(), &self.path)?;
        out.set_hosts(ends.identities());
        let options =
            GatherOptions { flow: self.config.clone(), budget: self.budget.to_std(), goal: self.rate };
        let budget = quantity::long_time(self.budget.0.div_ceil(1_000_000_000));
        out.state("gathering", None, || Some(format!("diagnosing for at most {budget} (--budget)")));
        let mut doing = String::new();
        Ok(gather(&mut ends.hosts()?, &options, stop, &mut |event| match event {
            GatherEvent::Step { what, left } => {
                out.progress(left, &what);
                doing = what;
            }
            GatherEvent::Interval { goodput_bps, left } => {
                out.progress(left, &format!("{doing}: {}", quantity::rate(goodput_bps)));
            }
            GatherEvent::Lost(error) => *lost = Some(error),
        })?)
    }
}
