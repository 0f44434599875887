//! The part of the summary about RDMA over TCP.

use std::fmt::Write;

use super::{
    made_on,
    tables::{Ratio, rows, section},
};
use crate::rdma;

/// Heading of the machine's table in that part.
const MACHINE: &str = "### The machine of the RDMA part";

/// A measurement: a table of programs, the first of which are ours.
struct Contest<'a> {
    title: &'a str,
    /// Name and figure.
    programs: Vec<(&'a str, Ratio)>,
    /// The last column, one cell per program.
    bars: Vec<&'a str>,
}

impl<'a> Contest<'a> {
    fn read(page: &'a str, heading: &'a str) -> Option<Self> {
        let mut contest =
            Self { title: heading.trim_start_matches(['#', ' ']), programs: Vec::new(), bars: Vec::new() };
        for row in rows(page, heading) {
            let (name, figure) = (*row.first()?, Ratio::read(row.get(1)?)?);
            contest.programs.push((name, figure));
            contest.bars.extend(row.last());
        }
        (!contest.programs.is_empty()).then_some(contest)
    }

    fn lower_is_better(&self) -> bool {
        self.title.starts_with("Half round trip")
    }

    /// The best program of the selected ones.
    fn best(&self, is_meant: impl Fn(&str) -> bool) -> String {
        let meant = self.programs.iter().filter(|(name, _)| is_meant(name));
        let best = meant.min_by(|(_, a), (_, b)| {
            let (a, b) = if self.lower_is_better() { (a, b) } else { (b, a) };
            a.median.total_cmp(&b.median)
        });
        best.map_or_else(String::new, |(name, figure)| format!("{} ({name})", figure.median))
    }

    fn unit(&self) -> &'static str {
        if self.lower_is_better() { "us" } else { "GB/s" }
    }

    fn count(&self, verdict: &str) -> usize {
        self.bars.iter().map(|cell| cell.matches(verdict).count()).sum()
    }
}

/// Empty when the page has none of these tables.
pub(super) fn summary(page: &str) -> String {
    let headings =
        page.lines().skip_while(|line| *line != rdma::TITLE).filter(|line| line.starts_with("### "));
    let (calls, contests): (Vec<&str>, Vec<&str>) =
        headings.partition(|heading| heading.ends_with(rdma::CALLS));
    let contests: Vec<Contest> =
        contests.into_iter().filter_map(|heading| Contest::read(page, heading)).collect();
    if contests.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "## RDMA over TCP\n\n{}\n\n| measurement | unit | iWARP in software | bare TCP | best of libfabric and UCX | targets met |\n\
         |---|---|---|---|---|---|\n",
        made_on(page, MACHINE)
    );
    let is_ours = |name: &str| name.starts_with("iWARP") || name.ends_with("queue pairs");
    let is_bare = |name: &str| name.starts_with("bare TCP");
    let (mut met, mut missed) = (0, 0);
    for contest in &contests {
        let own = (contest.count(": met"), contest.count(": **missed**"));
        (met, missed) = (met + own.0, missed + own.1);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} of {} |",
            contest.title,
            contest.unit(),
            contest.best(is_ours),
            contest.best(is_bare),
            contest.best(|name| name.starts_with("libfabric") || name.starts_with("UCX")),
            own.0,
            own.0 + own.1,
        );
    }
    for heading in calls {
        let lines: Vec<&str> = section(page, heading).collect();
        let count = |verdict: &str| lines.iter().map(|line| line.matches(verdict).count()).sum::<usize>();
        let own = (count(": met"), count(": **missed**"));
        (met, missed) = (met + own.0, missed + own.1);
        let _ = writeln!(text, "| {} | | | | | {} of {} |", rdma::CALLS, own.0, own.0 + own.1);
    }
    let _ =
        writeln!(text, "\n{met} of {} targets met; each is named beside its ratio below.\n", met + missed);
    text
}
