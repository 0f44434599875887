//! `study run --web`: a run as a page, with progress, the running cell, notices, and the report so far.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clearstream_dashboard::Dashboard;
use clearstream_record::Reader;
use clearstream_report::{Report, ReportError};
use clearstream_schema::TimeSpan;
use clearstream_study::{Schedule, StudyEvent};
use serde_json::json;

use super::{label, result};

/// Reports take at most this part of the time of a run: they are made between trials, where nothing is measured.
const REPORT_SHARE: u32 = 20;
/// Wait at the end for pages that have not fetched the final report.
const LAST_REPORT: Duration = Duration::from_secs(5);

/// The page of a run.
pub(super) struct StudyPage {
    dashboard: Dashboard,
    folder: PathBuf,
    counts: Counts,
    /// The running cell.
    cell: String,
    /// When a report was made last, and how long that took.
    reported: Option<(Instant, Duration)>,
}

#[derive(Default)]
struct Counts {
    planned: usize,
    done: usize,
    failed: usize,
    skipped: usize,
}

impl StudyPage {
    /// The page of a run that has not begun.
    pub(super) fn new(dashboard: Dashboard, folder: &Path, schedule: &Schedule) -> Self {
        let counts = Counts { planned: schedule.trials.len(), ..Counts::default() };
        Self { dashboard, folder: folder.to_owned(), counts, cell: String::new(), reported: None }
    }

    /// Shows an event of the run.
    pub(super) fn show(&mut self, event: &StudyEvent<'_>) {
        match event {
            StudyEvent::Scheduled { schedule, done_count, left } => {
                self.counts.done = *done_count;
                for notice in &schedule.notices {
                    self.notice(&notice.message);
                }
                self.progress(*left);
                if *done_count > 0 {
                    self.report();
                }
            }
            StudyEvent::TrialStarted { trial, schedule, position, left } => {
                self.cell = label(trial, schedule, *position);
                self.progress(*left);
            }
            StudyEvent::Sample { sample, .. } => {
                if let Some(headline) = &sample.headline {
                    let text = headline.unit.text(headline.value);
                    self.publish("value", &json!({ "cell": self.cell, "text": text }));
                }
            }
            StudyEvent::Notice(notice) => self.notice(&notice.message),
            StudyEvent::TrialEnded { document, left, .. } => {
                let is_failed = !document.outcome.is_complete();
                self.counts.failed += usize::from(is_failed);
                self.counts.done += usize::from(!is_failed);
                let text = result(document);
                self.publish("trial", &json!({ "cell": self.cell, "text": text, "failed": is_failed }));
                self.progress(*left);
                if self.is_report_due() {
                    self.report();
                }
            }
            StudyEvent::TrialSkipped { .. } => self.counts.skipped += 1,
        }
    }

    /// Shows the end and the final report, and waits until the pages that follow have it.
    pub(super) fn finish(self, report: String, text: &str) {
        self.dashboard.set_report(report);
        self.publish("finished", &json!({ "text": text }));
        self.dashboard.wait_for_readers(LAST_REPORT);
    }

    fn progress(&self, left: TimeSpan) {
        let counts = &self.counts;
        let document = json!({
            "planned_count": counts.planned, "done_count": counts.done, "failed_count": counts.failed,
            "skipped_count": counts.skipped, "left_ns": left.0, "cell": self.cell,
        });
        self.publish("progress", &document);
    }

    fn notice(&self, message: &str) {
        self.publish("notice", &json!({ "message": message }));
    }

    fn publish(&self, topic: &'static str, document: &serde_json::Value) {
        self.dashboard.publish(topic, &document.to_string());
    }

    /// The first report comes with the first trial, further ones while somebody follows.
    fn is_report_due(&self) -> bool {
        self.reported
            .is_none_or(|(at, took)| self.dashboard.reader_count() > 0 && at.elapsed() >= took * REPORT_SHARE)
    }

    fn report(&mut self) {
        let begun = Instant::now();
        match made(&self.folder) {
            Ok(html) => self.dashboard.set_report(html),
            // The record is complete all the same, and the end of the run has the error.
            Err(error) => self.notice(&format!("no report so far: {error}")),
        }
        self.reported = Some((Instant::now(), begun.elapsed()));
    }
}

fn made(folder: &Path) -> Result<String, ReportError> {
    Report::diagnosed(&Reader::open(folder)?, &crate::verbs::report::diagnose)?.html()
}
