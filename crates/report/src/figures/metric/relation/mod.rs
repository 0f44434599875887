//! The relation of two levels that a study declares, such as a native mount over a projected one:
//! published and measured ratios of every cell side by side, a sentence per metric, a table.

mod plot;
mod rows;

use clearstream_schema::{human, published::Relation};

use self::{
    plot::heading,
    rows::{Row, Rows},
};
use super::CACHED;
use crate::{
    digest::{Digest, ExperimentDigest},
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    format::{count, join, range, significant},
    headline::Headline,
    link,
};

const ABSENT: &str = "\u{2013}";

/// The figure; nothing where the study declares no relation, or neither has a number.
pub(super) fn figure(experiment: &ExperimentDigest) -> Option<Figure> {
    let relation = experiment.spec.relation.as_ref()?;
    let all = Some(rows::of(experiment, relation)).filter(|all| !all.is_empty())?;
    let id = identifier(&[&experiment.spec.name, "relation"]);
    let (level, over) = names(relation);
    let title = format!("{}: {level} over {over}", experiment.spec.title);
    let finding = each_sentence(relation, &all).join(" ");
    let axis = format!("{level} / {over}");
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| plot::draw(&all, &axis, size)),
        notes: notes(relation, &all),
        legend: legend(&all),
        table: table(relation, &all),
        published: Vec::new(),
        id,
        title,
        finding,
    })
}

/// A sentence per metric: what the relation is, published and ours.
pub(crate) fn sentences(experiment: &ExperimentDigest) -> Vec<String> {
    let relation = experiment.spec.relation.as_ref();
    relation.map_or_else(Vec::new, |relation| each_sentence(relation, &rows::of(experiment, relation)))
}

/// The relation of the first metric of which ours is of no cache, for the head of the page.
pub(crate) fn headline(digest: &Digest, experiment: &ExperimentDigest) -> Option<Headline> {
    let relation = experiment.spec.relation.as_ref()?;
    let all = rows::of(experiment, relation);
    let rows = all.iter().find(|rows| !rows.is_cached && rows.rows.iter().any(|row| row.ours.is_some()))?;
    let (level, over) = names(relation);
    let ours: Vec<f64> = rows.rows.iter().filter_map(|row| Some(row.ours.as_ref()?.ratio.value)).collect();
    let theirs = rows.rows.iter().filter_map(|row| row.theirs.as_ref());
    let ratios: Vec<f64> = theirs.clone().map(|theirs| theirs.ratio).collect();
    let mut sources: Vec<&str> = theirs.flat_map(|one| &one.sources).map(String::as_str).collect();
    sources.sort_unstable();
    sources.dedup();
    let published = span(&ratios).map(|span| format!("published: {span} times ({})", sources.join("; ")));
    Some(Headline {
        label: format!("{}, {level} over {over}", heading(rows)),
        value: format!("{} times", span(&ours)?),
        sure: format!("over {}, each with its interval in the figure", count(ours.len(), "cell")),
        detail: format!("{}.", experiment.spec.title),
        published,
        path: Some(link::path(digest, experiment)),
        proven: true,
        figure: identifier(&[&experiment.spec.name, "relation"]),
    })
}

fn names(relation: &Relation) -> (String, String) {
    (human::level(&relation.level), human::level(&relation.over))
}

/// Lowest to highest.
fn span(ratios: &[f64]) -> Option<String> {
    let low = ratios.iter().copied().min_by(f64::total_cmp)?;
    let high = ratios.iter().copied().max_by(f64::total_cmp)?;
    Some(range(&significant(low), &significant(high)))
}

fn each_sentence(relation: &Relation, all: &[Rows<'_>]) -> Vec<String> {
    all.iter().filter_map(|rows| sentence(relation, rows)).collect()
}

/// Of the first and the last row: `File create: published native is 41.2 times projected at 1 task, 2.97 at 8
/// tasks; ours 4.20 (3.90 to 4.60) and 3.10 (2.80 to 3.30).`
fn sentence(relation: &Relation, rows: &Rows<'_>) -> Option<String> {
    let (level, over) = names(relation);
    let ends: Vec<&Row> = match rows.rows.as_slice() {
        [] => return None,
        [only] => vec![only],
        [first, .., last] => vec![first, last],
    };
    let at = |row: &Row, first: bool, value: &str| {
        let place = if row.label.is_empty() { String::new() } else { format!(" at {}", row.label) };
        if first { format!("{value} times {over}{place}") } else { format!("{value}{place}") }
    };
    let ours = |row: &&Row| row.ours.as_ref().map_or("not measured".to_owned(), |ours| ours.text());
    let has_theirs = ends.iter().any(|row| row.theirs.is_some());
    let listed = |value: &dyn Fn(&Row) -> String| -> String {
        let each = ends.iter().enumerate().map(|(place, row)| at(row, place == 0, &value(row)));
        each.collect::<Vec<_>>().join(", ")
    };
    let text = if has_theirs {
        let theirs = |row: &Row| {
            row.theirs.as_ref().map_or("not printed".to_owned(), |theirs| significant(theirs.ratio))
        };
        let measured: Vec<String> = ends.iter().map(ours).collect();
        let measured = match measured.iter().all(|one| one == "not measured") {
            true => "not measured".to_owned(),
            false => measured.join(" and "),
        };
        format!("published {level} is {}; ours {measured}", listed(&theirs))
    } else {
        format!("{level} is {}; no numbers were published", listed(&|row| ours(&row)))
    };
    Some(format!("{}: {text}.", heading(rows)))
}

fn notes(relation: &Relation, all: &[Rows<'_>]) -> Vec<String> {
    let mut notes = Vec::new();
    let both = all
        .iter()
        .flat_map(|rows| &rows.rows)
        .filter_map(|row| Some((row.theirs.as_ref()?.ratio, row.ours.as_ref()?.ratio.value)));
    let both: Vec<(f64, f64)> = both.collect();
    if !both.is_empty() {
        let same = both.iter().filter(|(theirs, ours)| (*theirs > 1.0) == (*ours > 1.0)).count();
        notes.push(format!(
            "Published and ours are on the same side of 1 in {same} of {}.",
            count(both.len(), "row")
        ));
    }
    if !relation.differences.is_empty() {
        notes.push(format!("What differs from the published systems: {}.", join(&relation.differences)));
    }
    if all.iter().any(|rows| rows.is_cached) {
        notes.push(CACHED.to_owned());
    }
    notes
}

fn legend(all: &[Rows<'_>]) -> Vec<LegendItem> {
    let rows = || all.iter().flat_map(|rows| &rows.rows);
    let mut items = Vec::new();
    if rows().any(|row| row.theirs.is_some()) {
        items.push(LegendItem::new("ring", "published"));
    }
    if let Some(ours) = rows().find_map(|row| row.ours.as_ref()) {
        let sure = match (ours.ratio.is_95(), ours.ratio.count) {
            (true, _) => ", with its 95 % interval".to_owned(),
            (false, 1) => String::new(),
            (false, pairs) => format!(", with the range of {pairs} pairs"),
        };
        items.push(LegendItem::new("dot s0", format!("ours: median ratio of pairs of one repetition{sure}")));
    }
    items
}

fn table(relation: &Relation, all: &[Rows<'_>]) -> Table {
    let (level, over) = names(relation);
    let theirs = format!("#Published: {level} / {over}");
    let ours = format!("#Ours: {level} / {over}");
    let heads = ["Metric", "Cell", &theirs, "#Ratio", &ours, "#Ratio", "#Pairs"];
    let mut table = Table::new(format!("{level} over {over}"), &heads);
    for rows in all {
        let mark = if rows.is_cached { " *" } else { "" };
        for row in &rows.rows {
            let (theirs, ours) = (row.theirs.as_ref(), row.ours.as_ref());
            let or_absent = |text: Option<String>| text.unwrap_or_else(|| ABSENT.to_owned());
            table.push(vec![
                heading(rows),
                row.label.clone(),
                or_absent(theirs.map(|theirs| theirs.values.clone())),
                or_absent(theirs.map(|theirs| significant(theirs.ratio))),
                or_absent(ours.map(|ours| format!("{}{mark}", ours.values))),
                or_absent(ours.map(|ours| format!("{}{mark}", ours.text()))),
                or_absent(ours.map(|ours| ours.ratio.count.to_string())),
            ]);
        }
    }
    table
}
