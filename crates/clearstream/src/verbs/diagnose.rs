//! `clearstream diagnose`

use std::{path::PathBuf, sync::atomic::Ordering, time::Instant};

use clearstream_diagnose::{Evidence, GatherEvent, Plan, explain, gather};
use clearstream_record::Reader;
use clearstream_schema::{
    BitRate, TimeSpan,
    flow::{FlowConfig, Protocol},
};

use crate::{
    endpoints::{Endpoints, PathArgs},
    exit::CommandError,
    interrupt,
    output::{self, Paint, diagnose, progress::Progress, quantity},
};

/// Say what limits the path to another host, with the evidence and what to try.
#[derive(Debug, clap::Args)]
pub struct DiagnoseArgs {
    /// The other host: as ssh knows it, `localhost`, or ADDRESS[:PORT] with --pairing
    host: Option<String>,
    #[command(flatten)]
    path: PathArgs,
    /// Diagnose a recorded run alone, without a host
    #[arg(long, value_name = "RUN", conflicts_with_all = ["host", "budget", "PathArgs", "FlowConfig"])]
    from: Option<PathBuf>,
    /// Trial of the run; the one with the highest goodput when absent
    #[arg(long, value_name = "NUMBER", requires = "from")]
    trial: Option<u32>,
    /// Time for everything: probe, the requested flow, experiments
    #[arg(long, value_name = "TIME", default_value = "40s")]
    budget: TimeSpan,
    /// Rate that is wanted of the path: needed sizes are for it
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    #[command(flatten)]
    config: FlowConfig,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl DiagnoseArgs {
    /// Gathers or reads the evidence, explains it and prints the diagnosis.
    pub fn run(self) -> Result<(), CommandError> {
        if self.config.protocol != Protocol::Tcp {
            return Err(CommandError::usage(
                "diagnose explains TCP flows: leave --protocol out, or look at loss with `clearstream flow --protocol udp`",
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
        let evidence = match &self.from {
            Some(run) => {
                let reader = Reader::open(run)?;
                Evidence { goal: self.rate, ..Evidence::from_record(&reader, self.trial)? }
            }
            None => self.gather(&stop)?,
        };
        let diagnosis = explain(&evidence);
        if self.json {
            output::json(&diagnosis, true)?;
        } else {
            output::line(&diagnose::diagnosis(&diagnosis, Paint::for_stdout()))?;
            if self.from.is_none() {
                let seconds = begun.elapsed().as_secs_f64();
                output::line(&format!("\n{} flow(s) in {seconds:.0} s", evidence.flows.len()))?;
            }
        }
        if stop.load(Ordering::Relaxed) {
            return Err(CommandError::Interrupted(
                "the diagnosis rests on what was gathered until then".to_owned(),
            ));
        }
        Ok(())
    }

    fn gather(&self, stop: &std::sync::atomic::AtomicBool) -> Result<Evidence, CommandError> {
        let mut ends = Endpoints::open(self.host.as_deref(), &self.path)?;
        let plan = Plan { flow: self.config.clone(), budget: self.budget.to_std(), goal: self.rate };
        if !self.json {
            let budget = quantity::long_time(self.budget.0.div_ceil(1_000_000_000));
            output::line(&format!("diagnosing for at most {budget} (--budget)"))?;
        }
        let mut progress = Progress::start(plan.budget);
        let mut doing = String::new();
        Ok(gather(&mut ends.hosts()?, &plan, stop, &mut |event| match event {
            GatherEvent::Step { what, left } => {
                progress.update(left, &what);
                doing = what;
            }
            GatherEvent::Interval { goodput_bps, left } => {
                progress.update(left, &format!("{doing}: {}", quantity::rate(goodput_bps)));
            }
        })?)
    }
}
