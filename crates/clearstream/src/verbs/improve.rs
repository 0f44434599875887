//! `clearstream improve`

use std::{
    io::IsTerminal,
    path::PathBuf,
    time::{Duration, Instant},
};

use clearstream_host::calls::Inspect;
use clearstream_improve::{Event, Options, PeersTestbed};
use clearstream_report::Made;
use clearstream_schema::{
    BitRate, TimeSpan,
    flow::FlowConfig,
    improvement::{Improvement, LoopEnd, Verdict},
};
use clearstream_sys::lines;
use clearstream_workload::HostSet;
use jiff::Timestamp;

use crate::{
    endpoints::{Endpoints, HostArgs, PathArgs},
    exit::{CommandError, cannot},
    files, interrupt,
    output::{self, Output, Paint, improve},
    verbs::diagnose::report_findings,
};

/// Find what limits a path and change it, one change at a time: each is compared
/// with the baseline in paired runs, and kept only when it is proven better.
#[derive(Debug, clap::Args)]
pub struct ImproveArgs {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    path: PathArgs,
    #[command(flatten)]
    config: FlowConfig,
    /// Pairs of runs, baseline and treatment, that decide about a change (at least 4; 7 can prove a gain)
    #[arg(long, value_name = "COUNT", default_value_t = 7)]
    pairs: u32,
    /// Smallest gain that matters, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    threshold: f64,
    /// Total time: diagnoses, trials and the final comparison
    #[arg(long, value_name = "TIME", default_value_t = TimeSpan::from_seconds(900))]
    budget: TimeSpan,
    /// Time of one diagnosis of what limits the path
    #[arg(long, value_name = "TIME", default_value_t = TimeSpan::from_seconds(30))]
    diagnosis_budget: TimeSpan,
    /// Target rate (default: as much as the path carries)
    #[arg(long, value_name = "RATE")]
    goal: Option<BitRate>,
    /// Seed of the order of runs within pairs
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Change settings of the hosts without confirmation (a lab's hosts need none)
    #[arg(long)]
    yes: bool,
    /// Write an HTML page with every change that was tried
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// How long starting, connecting and stopping a run takes beside measuring.
const OVERHEAD: Duration = Duration::from_millis(600);

impl ImproveArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if !(0.0..=100.0).contains(&self.threshold) {
            return Err(CommandError::usage("--threshold is a percentage from 0 to 100"));
        }
        let mut ends = Endpoints::open(self.host.name(), &self.path)?;
        out.set_hosts(ends.identities());
        let mut hosts = ends.hosts()?;
        if hosts.lab().is_none() {
            let (client, server) = hosts.client_and_server()?;
            self.confirm(client.peer.name(), server.peer.name())?;
        }
        let made = match &self.html {
            Some(_) => Some(made(&mut hosts)?),
            None => None,
        };
        // Not before: a question on the terminal ends by a signal.
        let stop = interrupt::stop_flag()?;
        let options = Options {
            pairs: self.pairs,
            threshold_ratio: self.threshold / 100.0,
            budget: self.budget.to_std(),
            seed: self.seed,
        };
        let mut testbed = PeersTestbed::open(hosts, self.diagnosis_budget.to_std(), self.goal)?;
        let mut view = View::new(&self, out);
        let found = clearstream_improve::run(&mut testbed, &self.config, &options, &stop, &mut |event| {
            view.show(event);
        })?;
        drop(view);
        self.finish(&found, made.as_ref(), out)
    }

    /// Requests confirmation before hosts are changed, unless --yes gives it.
    fn confirm(&self, client: &str, server: &str) -> Result<(), CommandError> {
        if self.yes {
            return Ok(());
        }
        let question = format!(
            "settings of {client} and {server} will be changed, and kept where that is proven better"
        );
        if !std::io::stdin().is_terminal() {
            return Err(not_a_terminal(&question));
        }
        output::log(&format!("{question} (`clearstream plan revert` restores them). Continue? [y/N]"));
        match lines::answer(std::io::stdin()).map_err(cannot("read the answer"))?.as_str() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(CommandError::usage("nothing was changed")),
        }
    }

    fn finish(&self, found: &Improvement, made: Option<&Made>, out: &Output) -> Result<(), CommandError> {
        if let Some(file) = &self.html {
            let page = clearstream_report::improvement_html(found, made)?;
            files::write(file, &page)?;
        }
        out.result(found, || {
            let text = improve::summary(found, Paint::for_stdout());
            match &self.html {
                Some(file) => format!("{text}\nevery change with its runs: {}", file.display()),
                None => text,
            }
        })?;
        match found.end {
            LoopEnd::Stopped => Err(CommandError::Interrupted(
                "the change under test was reverted, those kept before stay".to_owned(),
            )),
            LoopEnd::NothingLeft | LoopEnd::LimitUnknown | LoopEnd::Contended | LoopEnd::TimeOver => Ok(()),
        }
    }
}

fn not_a_terminal(question: &str) -> CommandError {
    CommandError::Usage(format!("{question}; not a terminal: re-run with --yes to apply"))
}

/// When, by which program and on which hosts: for the page.
fn made(hosts: &mut HostSet<'_>) -> Result<Made, CommandError> {
    let lab = hosts.lab().map(|lab| lab.file().name.clone());
    let (client, server) = hosts.client_and_server()?;
    let one_machine = lab.is_none() && server.address.is_some_and(|address| address.is_loopback());
    let reports = [("Client", client.peer.call(&Inspect {})?), ("Server", server.peer.call(&Inspect {})?)];
    Ok(Made {
        started: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        hosts: reports.map(|(role, report)| (role.to_owned(), report)).into(),
        lab,
        one_machine,
    })
}

/// Progress output of the loop.
struct View<'a> {
    out: &'a Output,
    run: Duration,
    pairs: u32,
    until: Instant,
    /// What is being done.
    what: String,
    /// The pair that more runs begin with is being measured.
    more: bool,
}

impl<'a> View<'a> {
    fn new(args: &ImproveArgs, out: &'a Output) -> Self {
        let run = args.config.warm_up.to_std() + args.config.duration.to_std() + OVERHEAD;
        let diagnosis = args.diagnosis_budget.to_std();
        Self {
            out,
            run,
            pairs: args.pairs,
            until: Instant::now() + diagnosis,
            what: String::new(),
            more: false,
        }
    }

    fn show(&mut self, event: Event<'_>) {
        match event {
            Event::Diagnosing { what, left } => self.begin(left, format!("diagnosing the limit: {what}")),
            Event::Diagnosed(diagnosis) => {
                self.out.note(&improve::limit(diagnosis));
                report_findings(diagnosis, self.out);
            }
            Event::Trying { number, candidate } => {
                self.begin(self.trial(), format!("change {number}: {}", candidate.title));
            }
            Event::Confirming => {
                self.begin(self.trial(), "all that was kept, against the beginning".to_owned());
            }
            // As many pairs again: the runs so far show a gain and do not prove it.
            Event::Run { pair, .. } if pair > 0 && pair % self.pairs == 0 && !self.more => {
                self.begin(self.trial(), format!("{}, more runs", self.what.trim_end_matches(", more runs")));
                self.more = true;
            }
            Event::Run { pair, .. } => self.more &= pair % self.pairs == 0,
            Event::Decided(step) => {
                self.out.note(&improve::decided(step));
                let action = if step.verdict == Verdict::Kept { "kept" } else { "reverted" };
                let detail = self
                    .out
                    .is_stream()
                    .then(|| clearstream_schema::json::to_value(step).unwrap_or_default());
                self.out.change(&step.candidate.id, action, detail, || None);
            }
        }
        self.out.progress(self.until.saturating_duration_since(Instant::now()), &self.what);
    }

    fn trial(&self) -> Duration {
        self.run * self.pairs * 2
    }

    fn begin(&mut self, expected: Duration, what: String) {
        self.until = Instant::now() + expected;
        self.what = what;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_the_correction_is_yes() {
        let error = not_a_terminal("settings of dtn1 and dtn2 will be changed");
        assert_eq!(
            error.to_string(),
            "settings of dtn1 and dtn2 will be changed; not a terminal: re-run with --yes to apply"
        );
    }
}
