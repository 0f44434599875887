//! From outcomes to the table in `RESULTS.md`.

use std::fmt::Write;

use clearstream_stats::median;

use crate::{
    fingerprint,
    place::Place,
    run::Outcome,
    tool::{Settings, Tool},
};

/// Heading of the flow engine's part of the page.
pub(crate) const TITLE: &str = "# ClearStream beside its peers";

/// Outcomes of ours and of a peer, taken one right after the other.
pub(crate) struct Pairing {
    pub place: Place,
    pub flows: u32,
    pub peer: Tool,
    pub ours_settings: Settings,
    pub peer_settings: Settings,
    pub ours_line: String,
    pub peer_line: String,
    /// (ours, theirs).
    pub pairs: Vec<(Outcome, Outcome)>,
}

/// One cell of a program's grid.
pub(crate) struct Cell {
    pub place: Place,
    pub flows: u32,
    pub tool: Tool,
    pub settings: Settings,
    pub outcomes: Vec<Outcome>,
}

/// Median, least and largest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

pub(crate) fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let values: Vec<f64> = values.collect();
    let end = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of).unwrap_or(f64::NAN);
    Spread { median: median(&values).unwrap_or(f64::NAN), least: end(f64::min), most: end(f64::max) }
}

impl Cell {
    pub(crate) fn goodput(&self) -> Spread {
        spread(self.outcomes.iter().map(|outcome| outcome.gbps))
    }

    fn cpu(&self) -> Spread {
        spread(self.outcomes.iter().map(|outcome| outcome.cpu_seconds_per_gb))
    }
}

impl Pairing {
    fn ratio(&self) -> Spread {
        spread(self.pairs.iter().map(|(ours, theirs)| ours.gbps / theirs.gbps))
    }

    fn cpu_ratio(&self) -> Spread {
        spread(self.pairs.iter().map(|(ours, theirs)| ours.cpu_seconds_per_gb / theirs.cpu_seconds_per_gb))
    }
}

pub(crate) fn range(spread: Spread, digits: usize) -> String {
    format!("{:.digits$} ({:.digits$} to {:.digits$})", spread.median, spread.least, spread.most)
}

fn where_and_flows(place: Place, flows: u32) -> String {
    format!("{}, {flows} {}", place.title(), if flows == 1 { "flow" } else { "flows" })
}

/// A page with one part put in the place of its last edition; other parts
/// stay as they are. Parts begin with one of `titles`, in this order.
pub(crate) fn with_part(page: &str, titles: &[&str], title: &str, part: &str) -> String {
    let mut parts: Vec<String> = vec![String::new(); titles.len()];
    let mut current = None;
    for line in page.lines() {
        // A heading as a whole line: command lines in blocks begin like one too.
        current = titles.iter().position(|title| *title == line).or(current);
        if let Some(current) = current {
            parts[current].push_str(line);
            parts[current].push('\n');
        }
    }
    if let Some(index) = titles.iter().position(|other| *other == title) {
        part.clone_into(&mut parts[index]);
    }
    let parts = parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n\n") + "\n"
}

/// The flow engine's part of the page.
pub(crate) fn page(
    command: &str,
    ground: &str,
    notes: &[String],
    pairings: &[Pairing],
    cells: &[Cell],
) -> String {
    let mut page = format!("{TITLE}\n\n");
    let _ = writeln!(
        page,
        "Made by `{command}`. Goodput is what reached the receiver, by each program's own count; CPU is the user and \
         system time of all processes of both ends (`wait4`), per 10^9 bytes received. Runs of a pair follow each \
         other directly and take turns in who begins; ratios are taken pair by pair, since a machine drifts. Figures \
         are medians with the least and the largest. {ground}\n"
    );
    for note in notes {
        let _ = writeln!(page, "**Note:** {note}\n");
    }
    page.push_str("## In pairs\n\nA ratio above 1 means that ours is faster; a CPU ratio below 1 that it is cheaper.\n\n");
    page.push_str("| where | ours | peer | pairs | ours Gb/s | peer Gb/s | goodput ratio | ours CPU s/GB | peer CPU s/GB | CPU ratio |\n");
    page.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
    for pairing in pairings {
        let ours = |pick: fn(&Outcome) -> f64| spread(pairing.pairs.iter().map(|(ours, _)| pick(ours)));
        let theirs = |pick: fn(&Outcome) -> f64| spread(pairing.pairs.iter().map(|(_, theirs)| pick(theirs)));
        let _ = writeln!(
            page,
            "| {} | {} | {}: {} | {} | {} | {} | **{}** | {} | {} | {} |",
            where_and_flows(pairing.place, pairing.flows),
            pairing.ours_settings,
            pairing.peer.program(),
            pairing.peer_settings,
            pairing.pairs.len(),
            range(ours(|outcome| outcome.gbps), 1),
            range(theirs(|outcome| outcome.gbps), 1),
            range(pairing.ratio(), 2),
            range(ours(|outcome| outcome.cpu_seconds_per_gb), 3),
            range(theirs(|outcome| outcome.cpu_seconds_per_gb), 3),
            range(pairing.cpu_ratio(), 2),
        );
    }
    page.push_str("\n### Command lines of the pairs\n\n```\n");
    for pairing in pairings {
        let _ = writeln!(page, "# {}", where_and_flows(pairing.place, pairing.flows));
        let _ = writeln!(page, "{}\n{}", pairing.ours_line, pairing.peer_line);
    }
    page.push_str("```\n\n## The grid that the best settings come from\n\n");
    page.push_str(
        "Every cell was run once, the best three of each program repeatedly; the best median counts.\n\n",
    );
    page.push_str("| where | program | settings | runs | Gb/s | CPU s/GB |\n|---|---|---|---|---|---|\n");
    for cell in cells {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            where_and_flows(cell.place, cell.flows),
            cell.tool.program(),
            cell.settings,
            cell.outcomes.len(),
            range(cell.goodput(), 1),
            range(cell.cpu(), 3),
        );
    }
    page.push_str("\n## The machine\n\n");
    page.push_str(&fingerprint::table(&[fingerprint::machine(), fingerprint::flow_peers()].concat()));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(gbps: f64, cpu: f64) -> Outcome {
        Outcome { gbps, cpu_seconds_per_gb: cpu }
    }

    #[test]
    fn a_part_replaces_its_last_edition_only() {
        let titles = ["# One", "# Two"];
        let first = with_part("", &titles, "# Two", "# Two\n\nb\n");
        let both = with_part(&first, &titles, "# One", "# One\n\n```\n# a block\n```\n");
        assert_eq!(both, "# One\n\n```\n# a block\n```\n\n# Two\n\nb\n");
        let newer = with_part(&both, &titles, "# Two", "# Two\n\nc\n");
        assert_eq!(newer, both.replace("\nb\n", "\nc\n"));
        assert_eq!(with_part(&newer, &titles, "# One", "# One\n"), "# One\n\n# Two\n\nc\n");
    }

    #[test]
    fn medians_and_ratios_by_hand() {
        assert_eq!(spread([3.0, 1.0, 2.0].into_iter()), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(spread([4.0, 1.0].into_iter()), Spread { median: 2.5, least: 1.0, most: 4.0 });
        assert!(spread(std::iter::empty()).median.is_nan());
        let pairing = Pairing {
            place: Place::Veth,
            flows: 1,
            peer: Tool::Iperf3,
            ours_settings: Settings::DEFAULT,
            peer_settings: Settings::DEFAULT,
            ours_line: "clearstream flow".to_owned(),
            peer_line: "iperf3 -c".to_owned(),
            // The machine halves its speed: medians of each side would hide
            // what the pairs show.
            pairs: vec![
                (outcome(60.0, 0.1), outcome(50.0, 0.2)),
                (outcome(30.0, 0.2), outcome(25.0, 0.2)),
                (outcome(60.0, 0.3), outcome(40.0, 0.2)),
            ],
        };
        assert_eq!(pairing.ratio(), Spread { median: 1.2, least: 1.2, most: 1.5 });
        assert_eq!(range(pairing.cpu_ratio(), 2), "1.00 (0.50 to 1.50)");
        let page = page("make bench", "Ground.", &["short".to_owned()], &[pairing], &[]);
        assert!(page.contains("**1.20 (1.20 to 1.50)**") && page.contains("iperf3: defaults"), "{page}");
    }
}
