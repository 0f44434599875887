//! `clearstream flow`, a verb of its own: it repeats and judges its runs, steers flows, measures latency beside them, and speaks
//! to iperf3.

mod document;
mod latency;
mod runs;
mod view;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use clearstream_flow::{FlowEvent, Open};
use clearstream_lab::limit;
use clearstream_schema::{flow::FlowConfig, notice::Notice, probe::LatencyUnderLoad};
use clearstream_workload::HostSet;

use super::compat::CompatArgs;
use crate::{
    endpoints::{Endpoints, HostArgs, PathArgs},
    exit::CommandError,
    interrupt,
    output::{
        Output,
        flow::{self, Ends},
    },
    steer::Steering,
};

pub use document::{FlowDocument, FlowRuns};

use document::Measured;
use latency::Latency;
use runs::RunsArgs;
use view::View;

/// Measure bulk goodput to another host.
#[derive(Debug, clap::Args)]
pub struct FlowArgs {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    path: PathArgs,
    #[command(flatten)]
    compat: CompatArgs,
    #[command(flatten)]
    runs: RunsArgs,
    #[command(flatten)]
    config: FlowConfig,
    /// How cores are chosen where no list names them
    #[arg(long, value_enum, default_value_t = CoreChoice::default(), conflicts_with_all = ["sender_cores", "receiver_cores"])]
    cores: CoreChoice,
}

/// Who chooses cores that no list names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum CoreChoice {
    /// The warm-up compares placements, and pins threads where that is clearly faster
    #[default]
    Measured,
    /// The kernel's scheduler
    Scheduler,
}

/// A failed run, with what was measured until then.
struct Broken {
    partial: Option<Box<Measured>>,
    error: CommandError,
}

impl From<CommandError> for Broken {
    fn from(error: CommandError) -> Self {
        Self { partial: None, error }
    }
}

impl FlowArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if self.compat.is_requested() {
            return self.compat.run(self.host.name(), &self.config, out);
        }
        self.runs.check(&self.config, &self.path)?;
        let stop = interrupt::stop_flag()?;
        let mut ends = Endpoints::open(self.host.name(), &self.path)?;
        out.set_hosts(ends.identities());
        let names = Ends::of(&ends.identities());
        let mut latency = match self.runs.latency {
            true => Some(Latency::open(self.host.name(), &self.path, &ends, &self.config)?),
            false => None,
        };
        let mut hosts = ends.hosts()?;
        let mut runs = Vec::new();
        let mut broken = None;
        for number in 1..=self.runs.repeat {
            self.runs.announce(out, number);
            let mut view = View::new(out, &self.config, &names, number == 1);
            match self.measure(&mut hosts, latency.as_mut(), &mut view, &stop) {
                Ok(run) => {
                    self.runs.ended(out, &run);
                    runs.push(run);
                }
                Err(Broken { partial, error }) => {
                    runs.extend(partial.map(|run| *run));
                    broken = Some(error);
                }
            }
            if broken.is_some() || stop.load(Ordering::Relaxed) {
                break;
            }
        }
        self.runs.result(out, &runs)?;
        if let Some(error) = broken {
            return Err(error);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(CommandError::Interrupted(
                "results cover the time up to the interruption".to_owned(),
            ));
        }
        if runs.iter().any(|run| flow::misses_samples(&run.summary)) {
            return Err(CommandError::Partial(
                "an agent stood still: samples are missing, see above".to_owned(),
            ));
        }
        self.runs.judge(&runs)
    }

    /// One test.
    fn measure(
        &self,
        hosts: &mut HostSet<'_>,
        mut latency: Option<&mut Latency>,
        view: &mut View<'_>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Measured, Broken> {
        let idle = latency.as_mut().map(|latency| latency.idle(stop)).transpose()?;
        let (mut steering, config) = if self.config.steer {
            let (steering, config) = Steering::prepare(hosts, &self.config)?;
            (Some(steering), config)
        } else {
            (None, self.config.clone())
        };
        let open = Open::of(&config, self.cores == CoreChoice::Measured);
        view.start(&config);
        hosts.reset_delay_lines().map_err(CommandError::from)?;
        let mut run = |started: &dyn Fn()| {
            clearstream_flow::run_adapting(hosts, &config, open, stop, &mut |event| {
                if let (Some(steering), FlowEvent::Interval(interval)) = (&mut steering, &event) {
                    steering.watch(interval);
                }
                if matches!(event, FlowEvent::Ready { .. }) {
                    started();
                }
                view.show(event);
            })
        };
        let (result, loaded) = match latency {
            Some(latency) => latency.beside(stop, run),
            None => (run(&|| {}), Ok(None)),
        };
        let mut summary = match result {
            Ok(summary) => summary,
            Err(error) => {
                let partial = error.partial().cloned().map(|summary| Box::new(view.measured(summary)));
                return Err(Broken { partial, error: error.into() });
            }
        };
        let steered = steering.and_then(|steering| steering.conclude(&self.config, &mut summary));
        let delay_lines = hosts.delay_lines().map_err(CommandError::from)?;
        summary.notices.extend(limit::notice(&delay_lines));
        let loaded = loaded.unwrap_or_else(|error| {
            let message = format!("no round trips were measured beside the flow: {error}");
            summary.notices.push(Notice { id: "latency-failed".to_owned(), message });
            None
        });
        let latency = idle.zip(loaded).map(|(idle, loaded)| LatencyUnderLoad::of(&idle, &loaded));
        Ok(Measured { steering: steered, delay_lines, latency, ..view.measured(summary) })
    }
}
