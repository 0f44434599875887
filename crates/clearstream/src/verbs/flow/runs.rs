//! One test or several: their result, their range, and the threshold they have to reach.

use clearstream_schema::{
    BitRate,
    flow::{Direction, FlowConfig},
};

use super::document::{FlowRuns, Measured, Spread, Threshold};
use crate::{
    endpoints::PathArgs,
    exit::CommandError,
    output::{
        Output, Paint, Unwritten, flow,
        quantity::{self, rate},
        table::table,
    },
};

/// Options of what is made of a test; none of them changes it.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RunsArgs {
    /// Run the test this many times, one after the other, and show median and range
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) repeat: u32,
    /// Exit with code 10 when the goodput is below this: the median of several runs; the slower
    /// direction when data flows in both
    #[arg(long, value_name = "RATE")]
    fail_below: Option<BitRate>,
    /// Measure UDP round trips too: before the flow (idle) and beside it (loaded)
    #[arg(long)]
    pub(super) latency: bool,
}

impl RunsArgs {
    /// Rejects what has no effect or cannot be done.
    pub(super) fn check(&self, config: &FlowConfig, path: &PathArgs) -> Result<(), CommandError> {
        if !self.latency {
            return Ok(());
        }
        if config.bytes.is_some() || config.duration.0 < super::latency::SHORTEST.0 {
            return Err(CommandError::Usage(format!(
                "--latency needs a flow of a known time: leave --bytes out, and write --duration {} or longer",
                super::latency::SHORTEST
            )));
        }
        if path.pairing.is_some() {
            return Err(CommandError::usage(
                "--latency needs a second session, and a paired daemon serves one controller at a time: reach the \
                 host by ssh, or leave --latency out",
            ));
        }
        Ok(())
    }

    /// Reports which run begins, where there are several.
    pub(super) fn announce(&self, out: &Output, number: u32) {
        if self.repeat > 1 {
            let detail = serde_json::json!({ "run": number, "run_count": self.repeat });
            let gap = if number > 1 { "\n" } else { "" };
            out.state("run-started", Some(detail), || Some(format!("{gap}run {number} of {}", self.repeat)));
        }
    }

    /// One of several runs has ended.
    pub(super) fn ended(&self, out: &Output, run: &Measured) {
        if self.repeat > 1 {
            let detail = serde_json::json!({ "goodput_bps": run.summary.goodput_bps });
            let text = || {
                let latency = run.latency.as_ref().map(|latency| format!("\n{}", flow::latency(latency)));
                Some(format!(
                    "{}{}",
                    flow::headline(&run.summary, Paint::for_stdout()),
                    latency.unwrap_or_default()
                ))
            };
            out.state("run-ended", Some(detail), text);
        }
    }

    /// Prints the document, or what people read.
    pub(super) fn result(&self, out: &Output, runs: &[Measured]) -> Result<(), Unwritten> {
        // Nothing was measured: the error that follows is all there is.
        let Some(last) = runs.last() else { return Ok(()) };
        let threshold = self.threshold(runs);
        if self.repeat == 1 {
            let document = last.document(out.is_stream(), threshold);
            return out.result(&document, || self.single(last, threshold));
        }
        let goodput = Spread::of(&complete(runs));
        let documents = runs.iter().map(|run| run.document(out.is_stream(), None)).collect();
        let document = FlowRuns { runs: documents, goodput, threshold };
        out.result(&document, || self.several(runs, &goodput, threshold))
    }

    fn single(&self, run: &Measured, threshold: Option<Threshold>) -> String {
        let mut parts = vec![flow::summary(&run.summary, Paint::for_stdout())];
        parts.extend(run.latency.as_ref().map(flow::latency));
        parts.extend(threshold.map(|threshold| threshold_text(&threshold)));
        parts.join("\n")
    }

    fn several(&self, runs: &[Measured], spread: &Spread, threshold: Option<Threshold>) -> String {
        let paint = Paint::for_stdout();
        let rows = (1..).zip(runs).map(|(number, run): (u32, _)| {
            let mut row = vec![number.to_string(), rate(run.summary.goodput_bps)];
            if run.summary.directions.len() > 1 {
                row.extend(run.summary.directions.iter().map(|one| rate(one.goodput_bps)));
            }
            row.push(if run.summary.complete { "" } else { "not complete: does not count" }.to_owned());
            row
        });
        let mut header = vec![">run", ">goodput"];
        if runs.iter().any(|run| run.summary.directions.len() > 1) {
            header.extend(runs[0].summary.directions.iter().map(|one| match one.direction {
                Direction::Reverse => ">server to client",
                Direction::Forward | Direction::Both => ">client to server",
            }));
        }
        header.push("");
        let mut parts = vec![format!("\n{}", table(&header, rows.collect())), spread_text(spread, paint)];
        parts.extend(threshold.map(|threshold| threshold_text(&threshold)));
        // The last run stands for the others: what is true of one is of all.
        parts.extend(
            runs.last()
                .into_iter()
                .flat_map(|run| &run.summary.notices)
                .map(|notice| paint.warning(&format!("note: {}", notice.message))),
        );
        parts.join("\n")
    }

    fn threshold(&self, runs: &[Measured]) -> Option<Threshold> {
        let required_bps = self.fail_below?.0 as f64;
        let judged: Vec<f64> = runs.iter().map(Measured::judged_bps).collect();
        let measured_bps = clearstream_stats::median(&judged)?;
        Some(Threshold { required_bps, measured_bps, is_met: measured_bps >= required_bps })
    }

    /// The exit code of `--fail-below`.
    pub(super) fn judge(&self, runs: &[Measured]) -> Result<(), CommandError> {
        match self.threshold(runs) {
            Some(threshold) if !threshold.is_met => Err(CommandError::Threshold(threshold_text(&threshold))),
            _ => Ok(()),
        }
    }
}

/// Goodput of the runs that ran to their end.
fn complete(runs: &[Measured]) -> Vec<f64> {
    runs.iter().filter(|run| run.summary.complete).map(|run| run.summary.goodput_bps).collect()
}

fn threshold_text(threshold: &Threshold) -> String {
    let than = if threshold.is_met { "reaches" } else { "is below" };
    format!(
        "goodput {} {than} the {} of --fail-below",
        rate(threshold.measured_bps),
        rate(threshold.required_bps)
    )
}

fn spread_text(spread: &Spread, paint: Paint) -> String {
    let runs = quantity::count(spread.run_count, "run");
    let figure = paint.figure(&rate(spread.median_bps));
    match &spread.interval {
        Some(interval) => format!(
            "median {figure}, 95 % interval {} to {} ({runs})",
            rate(interval.low_bps),
            rate(interval.high_bps)
        ),
        None => format!(
            "median {figure}, range of {runs}: {} to {} (an interval of the median needs 6 runs)",
            rate(spread.lowest_bps),
            rate(spread.highest_bps)
        ),
    }
}
