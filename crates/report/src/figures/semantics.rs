//! File semantics of mounts, cells side by side: the checks whose verdicts differ between the cells are drawn, the table
//! has all of them.

use clearstream_schema::{
    human,
    semantics::{SemanticsArea, SemanticsCheck, SemanticsVerdict},
};

use crate::{
    digest::{Digest, ExperimentDigest, SemanticsTrial},
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    format::{count, join},
    headline::Headline,
    link,
    svg::{
        Svg,
        plot::{Size, fitted},
    },
};

const ABSENT: &str = "\u{2013}";
const ROW_HEIGHT: f64 = 21.0;
const HEAD_HEIGHT: f64 = 30.0;

/// A check with what each cell found.
struct Row<'a> {
    /// Of the first cell that has it.
    check: &'a SemanticsCheck,
    /// Of every cell, the results of its trials.
    found: Vec<Vec<&'a SemanticsCheck>>,
}

/// The cells of an experiment.
struct Comparison<'a> {
    labels: Vec<String>,
    rows: Vec<Row<'a>>,
}

/// The verdicts; nothing without a trial.
pub(crate) fn figure(experiment: &ExperimentDigest) -> Option<Figure> {
    let comparison = Comparison::of(&experiment.semantics)?;
    let (shown, finding) = (comparison.shown(), comparison.finding());
    let id = identifier(&[&experiment.spec.name, "semantics"]);
    let title = format!("{}: verdicts of each check", experiment.spec.title);
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| comparison.draw(&shown, size)),
        notes: comparison.notes(&shown),
        legend: legend(),
        table: comparison.table(),
        published: experiment.spec.published.clone(),
        id,
        title,
        finding,
    })
}

/// Verdicts that differ between the cells of the first experiment with checks.
pub(crate) fn headline(digest: &Digest) -> Option<Headline> {
    let experiment = digest.experiments.iter().find(|experiment| !experiment.semantics.is_empty())?;
    let comparison = Comparison::of(&experiment.semantics)?;
    let (shown, all) = (comparison.shown().len(), comparison.rows.len());
    let label = match comparison.labels.as_slice() {
        [one] => format!("Checks not as the standard has them, {one}"),
        several => format!("Checks of file semantics that differ, {}", join(several)),
    };
    Some(Headline {
        label,
        value: format!("{shown} of {all}"),
        sure: count(experiment.semantics.len(), "trial"),
        detail: comparison.finding(),
        published: None,
        path: Some(link::path(digest, experiment)),
        proven: true,
        figure: experiment.anchor("semantics"),
    })
}

fn legend() -> Vec<LegendItem> {
    let texts = [
        (SemanticsVerdict::Yes, "yes: as the standard has it"),
        (SemanticsVerdict::Late, "late: as the standard has it, but not at once"),
        (SemanticsVerdict::No, "no: it succeeds or fails otherwise than the standard has it"),
        (
            SemanticsVerdict::NotSupported,
            "not supported: the system call reports that the file system lacks it",
        ),
        (
            SemanticsVerdict::LeftOpen,
            "left open: it is not there, and the standard leaves that to the file system",
        ),
        (SemanticsVerdict::Inconclusive, "inconclusive: the check did not come to a verdict"),
    ];
    texts.map(|(verdict, text)| LegendItem::new(class(verdict), text)).into()
}

fn class(verdict: SemanticsVerdict) -> &'static str {
    match verdict {
        SemanticsVerdict::Yes => "s2",
        SemanticsVerdict::Late => "s3",
        SemanticsVerdict::No => "s1",
        SemanticsVerdict::NotSupported => "few",
        SemanticsVerdict::LeftOpen => "s5",
        SemanticsVerdict::Inconclusive => "s4",
    }
}

impl<'a> Comparison<'a> {
    fn of(trials: &'a [SemanticsTrial]) -> Option<Self> {
        let mut sorted: Vec<&SemanticsTrial> = trials.iter().collect();
        sorted.sort_by_key(|trial| trial.cell);
        let cells: Vec<&[&SemanticsTrial]> = sorted.chunk_by(|one, other| one.cell == other.cell).collect();
        let mut rows: Vec<Row<'a>> = Vec::new();
        for (place, check) in cells.iter().enumerate().flat_map(|(place, cell)| {
            cell.iter().flat_map(move |trial| trial.found.checks.iter().map(move |check| (place, check)))
        }) {
            let same = |row: &Row<'_>| (&row.check.check, row.check.clients) == (&check.check, check.clients);
            let known = rows.iter().position(same).unwrap_or_else(|| {
                rows.push(Row { check, found: vec![Vec::new(); cells.len()] });
                rows.len() - 1
            });
            rows[known].found[place].push(check);
        }
        rows.sort_by_key(|row| row.check.area);
        let labels = labels(&cells);
        (!rows.is_empty()).then_some(Self { labels, rows })
    }

    /// Rows worth a drawing: those that differ between cells, or of one cell those that are not as the standard has them, nor
    /// left open by it.
    fn shown(&self) -> Vec<&Row<'a>> {
        self.rows
            .iter()
            .filter(|row| match self.labels.len() {
                1 => !row.is_kept(0) && !row.is_left_open(0),
                _ => row.differs(),
            })
            .collect()
    }

    fn finding(&self) -> String {
        let shown = self.shown();
        let kept = |place: usize| self.rows.iter().filter(|row| row.is_kept(place)).count();
        let all = count(self.rows.len(), "check");
        let mut areas: Vec<SemanticsArea> = shown.iter().map(|row| row.check.area).collect();
        areas.dedup();
        let of_area = |area: &SemanticsArea| {
            let number = shown.iter().filter(|row| row.check.area == *area).count();
            format!("{number} of {}", area.name())
        };
        let areas = join(areas.iter().map(of_area).collect::<Vec<_>>());
        match (self.labels.as_slice(), shown.len()) {
            ([_], 0) if kept(0) == self.rows.len() => format!("All {all} are as the standard has them."),
            ([_], number) => {
                let left = self.rows.iter().filter(|row| row.is_left_open(0)).count();
                let left = if left > 0 { format!(", and it leaves {left} open") } else { String::new() };
                let others = if number > 0 { format!("; the others: {areas}") } else { String::new() };
                format!("{} of {all} are as the standard has them{left}{others}.", kept(0))
            }
            (labels, number) => {
                let places = labels.iter().enumerate();
                let kept: Vec<String> =
                    places.map(|(place, label)| format!("{} with {label}", kept(place))).collect();
                let differing = match number {
                    0 => format!("None of {all} has different verdicts"),
                    _ => format!("{number} of {all} have different verdicts ({areas})"),
                };
                format!("{differing}. As the standard has it: {}.", join(&kept))
            }
        }
    }

    fn notes(&self, shown: &[&Row<'_>]) -> Vec<String> {
        let mut notes = Vec::new();
        if shown.len() < self.rows.len() {
            let left = count(self.rows.len() - shown.len(), "other check");
            let what = match self.labels.len() {
                1 => "as the standard has it, or left open by it",
                _ => "with the same verdict of every cell",
            };
            notes.push(format!("{left} {what}: in the table."));
        }
        notes.push(
            "Clients: \"one\" is processes of one client, \"two\" a process of each, \"to peer\" a change by the first client \
             that the second observes, \"from peer\" the opposite direction."
                .to_owned(),
        );
        notes
    }

    /// Those that differ first; the others in the order of areas.
    fn table(&self) -> Table {
        let mut heads = vec!["Check", "Clients"];
        heads.extend(self.labels.iter().map(String::as_str));
        heads.extend(["Area", "Standard"]);
        let mut table = Table::new("Verdict of every check, those that differ first", &heads);
        let (differing, same): (Vec<&Row<'_>>, Vec<&Row<'_>>) =
            self.rows.iter().partition(|row| row.differs());
        for (row, highlighted) in
            differing.into_iter().map(|row| (row, true)).chain(same.into_iter().map(|row| (row, false)))
        {
            let check = row.check;
            let mut cells = vec![check.title.clone(), check.clients.name().to_owned()];
            cells.extend((0..self.labels.len()).map(|place| row.text(place)));
            cells.extend([check.area.name().to_owned(), check.standard.clone()]);
            table.push(cells);
            table.rows.last_mut().into_iter().for_each(|row| row.highlighted = highlighted);
        }
        table
    }

    fn draw(&self, shown: &[&Row<'_>], size: Size) -> Svg {
        let by_area: Vec<&[&Row<'_>]> =
            shown.chunk_by(|one, other| one.check.area == other.check.area).collect();
        let height = HEAD_HEIGHT * (by_area.len() + 1) as f64 + ROW_HEIGHT * shown.len() as f64;
        let mut svg = Svg::new(size.width(), height + 6.0);
        let left = size.pick(300.0, 128.0);
        let width = (size.width() - left) / self.labels.len() as f64;
        for (place, label) in self.labels.iter().enumerate() {
            let x = left + width * place as f64;
            svg.text(x, 18.0, "panel start", &fitted(label, width - 8.0));
        }
        let mut y = HEAD_HEIGHT;
        for rows in by_area {
            svg.text(4.0, y + 18.0, "panel start", &human::sentence_case(rows[0].check.area.name()));
            y += HEAD_HEIGHT;
            for row in rows {
                let name = format!("{}, {}", row.check.title, row.check.clients.name());
                svg.tipped(&format!("{name} ({})", row.check.standard), |svg| {
                    svg.text(4.0, y + 12.0, "tick start", &fitted(&name, left - 12.0));
                });
                for (place, label) in self.labels.iter().enumerate() {
                    let (x, text) = (left + width * place as f64, row.text(place));
                    let tip = format!("{label}: {text} ({})", row.check.standard);
                    svg.tipped(&tip, |svg| {
                        if let Some(first) = row.found[place].first() {
                            svg.rounded(x, y + 3.0, 10.0, 10.0, 2.0, class(first.verdict));
                        }
                        svg.text(x + 16.0, y + 12.0, "tick start", &fitted(&text, width - 22.0));
                    });
                }
                y += ROW_HEIGHT;
            }
        }
        svg
    }
}

impl Row<'_> {
    /// Every trial of the cell is as the standard has it.
    fn is_kept(&self, place: usize) -> bool {
        self.is(place, SemanticsVerdict::Yes)
    }

    /// It is not there in any trial of the cell, which the standard allows.
    fn is_left_open(&self, place: usize) -> bool {
        self.is(place, SemanticsVerdict::LeftOpen)
    }

    fn is(&self, place: usize, verdict: SemanticsVerdict) -> bool {
        let found = &self.found[place];
        !found.is_empty() && found.iter().all(|check| check.verdict == verdict)
    }

    /// Verdicts of a cell, each once.
    fn verdicts(&self, place: usize) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.found[place].iter().map(|check| check.verdict.name()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn differs(&self) -> bool {
        (1..self.found.len()).any(|place| self.verdicts(place) != self.verdicts(0))
    }

    /// `no: granted to both`; of trials that disagree `no 1, yes 2`.
    fn text(&self, place: usize) -> String {
        let found = &self.found[place];
        let verdicts = self.verdicts(place);
        let number = |name: &&str| found.iter().filter(|check| check.verdict.name() == *name).count();
        match verdicts.as_slice() {
            [] => ABSENT.to_owned(),
            [one] => {
                // The longest time, where a change was not visible.
                let worst = found.iter().max_by_key(|check| check.stale_ns);
                let detail = worst.map(|check| check.found()).filter(|detail| !detail.is_empty());
                detail.map_or_else(|| (*one).to_owned(), |detail| format!("{one}: {detail}"))
            }
            several => {
                let each: Vec<String> =
                    several.iter().map(|name| format!("{name} {}", number(name))).collect();
                each.join(", ")
            }
        }
    }
}

/// What distinguishes the cells.
fn labels(cells: &[&[&SemanticsTrial]]) -> Vec<String> {
    let first = cells.first().map(|cell| &cell[0].factors);
    let varies =
        |name: &str| cells.iter().any(|cell| cell[0].factors.get(name) != first.and_then(|of| of.get(name)));
    let label = |cell: &&[&SemanticsTrial]| {
        let levels = cell[0].factors.iter().filter(|(name, _)| varies(name));
        let levels: Vec<String> = levels.map(|(_, value)| human::level(value)).collect();
        match (levels.is_empty(), cell[0].found.mount.directory.rsplit('/').next()) {
            (true, Some(directory)) if !directory.is_empty() => directory.to_owned(),
            (true, _) => "all trials".to_owned(),
            _ => levels.join(", "),
        }
    };
    cells.iter().map(label).collect()
}
