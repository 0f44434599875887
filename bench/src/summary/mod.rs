//! Summary at the top of the page, computed from
//! the tables of the page itself, so that it never claims more than they do.

use std::fmt::Write;

mod rdma;
mod tables;

use tables::{Ratio, rows, value};

/// Heading of this part of the page.
pub(crate) const TITLE: &str = "# The comparison in a minute";
/// Targets of the ratios: defaults against iperf3's, with one flow and
/// with more; best settings against every program's.
const DEFAULTS_ONE_FLOW: f64 = 1.15;
const DEFAULTS_MORE_FLOWS: f64 = 1.5;
const BEST: f64 = 1.0;
/// From this minor version on iperf3 has a thread per flow.
const THREADED_IPERF3: u32 = 16;

/// A row of the table of pairs.
struct Pair<'a> {
    place: &'a str,
    ours: &'a str,
    peer: &'a str,
    peer_settings: &'a str,
    pairs: &'a str,
    ours_gbps: &'a str,
    peer_gbps: &'a str,
    ratio: Ratio,
    cpu_ratio: Ratio,
}

impl<'a> Pair<'a> {
    fn read(cells: &[&'a str]) -> Option<Self> {
        let [place, ours, peer, pairs, ours_gbps, peer_gbps, ratio, _, _, cpu_ratio] = *cells else {
            return None;
        };
        let (peer, peer_settings) = peer.split_once(": ")?;
        Some(Self {
            place,
            ours,
            peer,
            peer_settings,
            pairs,
            ours_gbps,
            peer_gbps,
            ratio: Ratio::read(ratio)?,
            cpu_ratio: Ratio::read(cpu_ratio)?,
        })
    }

    fn is_of_defaults(&self) -> bool {
        self.ours == "defaults" && self.peer_settings == "defaults"
    }

    fn target(&self) -> f64 {
        match (self.is_of_defaults(), self.place.ends_with(", 1 flow")) {
            (false, _) => BEST,
            (true, true) => DEFAULTS_ONE_FLOW,
            (true, false) => DEFAULTS_MORE_FLOWS,
        }
    }
}

/// The summary of a page; empty when the page has no table to sum up.
pub(crate) fn summary(page: &str) -> String {
    let pairs: Vec<Pair> = rows(page, "## In pairs").iter().filter_map(|cells| Pair::read(cells)).collect();
    let parts = [flow(page, &pairs), rdma::summary(page)];
    if parts.iter().all(String::is_empty) {
        return String::new();
    }
    let mut text = format!(
        "{TITLE}\n\nRatios are ClearStream's figure over the other program's, taken run by run in turns on one \
         machine: median, with the least and the largest. Above 1 ClearStream is faster. The tables below have every \
         setting and command line.\n\n"
    );
    text.push_str(&parts.concat());
    text
}

fn flow(page: &str, pairs: &[Pair]) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let mut text = format!("## Bulk TCP\n\n{}\n\n", made_on(page, "## The machine"));
    let versions = ["iperf3", "iperf", "nuttcp", "neper"].into_iter().filter_map(|program| {
        let version = value(page, "## The machine", program)?;
        Some(version_of(program, version))
    });
    let _ = writeln!(text, "Peers: {}.\n", versions.collect::<Vec<_>>().join(", "));
    text.push_str(&table("Without any option", pairs.iter().filter(|pair| pair.is_of_defaults())));
    let best = best_peers(pairs);
    text.push_str(&table("Each program in its best settings, against the fastest peer", best.into_iter()));
    text.push_str(&misses(pairs));
    if let Some(note) = one_thread(page, pairs) {
        let _ = writeln!(text, "**Mind:** {note}\n");
    }
    text
}

/// Machine, time and command.
fn made_on(page: &str, heading: &str) -> String {
    let known = |key| value(page, heading, key).unwrap_or("unknown");
    let virtual_machine = known("hypervisor").starts_with("yes");
    format!(
        "{} on {} cores of {}{}, Linux {}, ClearStream at {}.",
        known("date"),
        known("cores"),
        known("CPU"),
        if virtual_machine { " (a virtual machine)" } else { "" },
        known("kernel"),
        known("commit"),
    )
}

/// `iperf 3.12 (cJSON 1.7.15)` -> `iperf3 3.12`.
fn version_of(program: &str, line: &str) -> String {
    let number = line
        .split(|letter: char| letter.is_whitespace() || letter == '-')
        .find(|token| token.starts_with(|first: char| first.is_ascii_digit()) && token.contains('.'));
    format!("{program} {}", number.unwrap_or(line))
}

fn table<'a>(title: &str, pairs: impl Iterator<Item = &'a Pair<'a>>) -> String {
    let mut text = format!(
        "**{title}**\n\n| where | ClearStream, Gb/s | peer, Gb/s | ratio | CPU time per byte | target |\n\
         |---|---|---|---|---|---|\n"
    );
    for pair in pairs {
        let verdict = if pair.ratio.median >= pair.target() { "met" } else { "**missed**" };
        let _ = writeln!(
            text,
            "| {} | {} | {} {} | **{:.2}** ({:.2} to {:.2}) | {} | at least {:.2}: {verdict} |",
            pair.place,
            median(pair.ours_gbps),
            pair.peer,
            median(pair.peer_gbps),
            pair.ratio.median,
            pair.ratio.least,
            pair.ratio.most,
            cpu(pair.cpu_ratio.median),
            pair.target(),
        );
    }
    text.push('\n');
    text
}

/// `47.7 (44.6 to 51.8)` -> `47.7`.
fn median(text: &str) -> &str {
    text.split(' ').next().unwrap_or(text)
}

fn cpu(ratio: f64) -> String {
    let percent = (ratio - 1.0).abs() * 100.0;
    match ratio {
        ratio if percent < 2.5 => format!("the same ({ratio:.2})"),
        ratio if ratio < 1.0 => format!("{percent:.0} % less"),
        _ => format!("{percent:.0} % more"),
    }
}

/// Of the pairs in best settings, the one with the lowest ratio in each place:
/// the peer that is hardest to beat there.
fn best_peers<'a>(pairs: &'a [Pair<'a>]) -> Vec<&'a Pair<'a>> {
    let mut best: Vec<&Pair> = Vec::new();
    for pair in pairs.iter().filter(|pair| !pair.is_of_defaults()) {
        match best.iter_mut().find(|other| other.place == pair.place) {
            Some(other) if pair.ratio.median < other.ratio.median => *other = pair,
            Some(_) => {}
            None => best.push(pair),
        }
    }
    best
}

/// Number of pairs that met their target, and every one that did not.
fn misses(pairs: &[Pair]) -> String {
    let missed: Vec<String> = pairs
        .iter()
        .filter(|pair| pair.ratio.median < pair.target())
        .map(|pair| format!("{} against {} ({:.2})", pair.place, pair.peer, pair.ratio.median))
        .collect();
    let met = pairs.len() - missed.len();
    let each = pairs.first().map_or("", |pair| pair.pairs);
    let mut text =
        format!("{met} of {} comparisons, of {each} pairs of runs each, met their target", pairs.len());
    if !missed.is_empty() {
        let _ = write!(text, "; missed: {}", missed.join(", "));
    }
    text + ".\n\n"
}

/// An iperf3 whose flows share a thread proves nothing with several of them,
/// unless it ran as a process per flow.
fn one_thread(page: &str, pairs: &[Pair]) -> Option<String> {
    let line = value(page, "## The machine", "iperf3")?;
    let minor = line.split('.').nth(1)?.split(|letter: char| !letter.is_ascii_digit()).next()?;
    let several = pairs.iter().any(|pair| pair.peer == "iperf3" && !pair.place.ends_with(", 1 flow"));
    let of_one_thread = minor.parse::<u32>().is_ok_and(|minor| minor < THREADED_IPERF3);
    (several && of_one_thread && !page.contains(crate::iperf3::PROCESSES)).then(|| {
        format!(
            "this iperf3 is older than 3.{THREADED_IPERF3} and moves all its flows in one thread: its figures for two \
             flows are those of one core."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of a real run, with the text that people read.
    #[test]
    fn the_summary_of_a_recorded_page_is_as_reviewed() {
        let page = include_str!("../../fixtures/results.md");
        assert_eq!(summary(page).trim_end(), include_str!("../../fixtures/summary.md").trim_end());
        // It reads tables by their headings: its own are none of them.
        let whole = format!("{}\n{page}", summary(page));
        assert_eq!(summary(&whole), summary(page));
        assert_eq!(summary("# Nothing\n\nno table\n"), "");
    }

    #[test]
    fn what_misses_its_target_is_named() {
        let page = include_str!("../../fixtures/results.md");
        let slower = page.replace("**1.36 (1.29 to 1.54)**", "**1.14 (1.00 to 1.20)**");
        assert_ne!(page, slower);
        let text = summary(&slower);
        assert!(text.contains("at least 1.15: **missed**"), "{text}");
        assert!(text.contains("missed: loopback, 1 flow against iperf3 (1.14)"), "{text}");
    }

    #[test]
    fn an_iperf3_of_one_thread_is_named_as_such() {
        let page = include_str!("../../fixtures/results.md");
        assert!(summary(page).contains("older than 3.16"));
        let newer = page.replace("iperf 3.12 (cJSON 1.7.15)", "iperf 3.18 (cJSON 1.7.15)");
        assert!(summary(&newer).contains("iperf3 3.18") && !summary(&newer).contains("Mind"));
        let processes =
            page.replace("## In pairs", &format!("**Note:** {}\n\n## In pairs", crate::iperf3::PROCESSES));
        assert!(!summary(&processes).contains("Mind"));
    }
}
