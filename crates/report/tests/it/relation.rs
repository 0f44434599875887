//! The relation that a study declares: every published value of the study of storage is drawn with the mark of
//! its level and beside ours, every table has its sentence, and a rate of a cache is marked wherever it is shown.

use std::collections::BTreeSet;

use crate::common::{hosts, run};
use clearstream_report::{headlines, html, markdown};
use clearstream_schema::{
    record::{Published, TrialDocument},
    storage::metadata::{MetadataConfig, STORAGE_METADATA_SCHEMA},
    study::{Experiment, Levels, StudyFile},
};
use serde_json::{Value, json};

const STUDY: &str = include_str!("../../../../studies/native-client-storage.toml");
/// Ours, native over projected, whatever the cell.
const RATIO: f64 = 4.0;
const REPETITIONS: u32 = 3;

/// The study as a run has it: tables read, each experiment drawn as the file says.
fn study() -> StudyFile {
    let mut study: StudyFile = toml::from_str(STUDY).unwrap();
    for experiment in &mut study.experiments {
        let tables = std::mem::take(&mut experiment.published_table);
        experiment.published.extend(tables.iter().flat_map(|table| table.values().unwrap()));
    }
    study.experiments.retain(|experiment| experiment.relation.is_some());
    study
}

fn listed<'a>(experiment: &'a Experiment, factor: &str) -> &'a [Value] {
    match &experiment.factors[factor] {
        Levels::Listed(levels) => levels,
        Levels::Named(name) => panic!("{name}"),
    }
}

/// Directory and the other level of every cell.
fn cells(experiment: &Experiment) -> Vec<(&Value, &str, &Value)> {
    let other = experiment.factors.keys().find(|name| *name != "directory").unwrap();
    let of =
        |directory| listed(experiment, other).iter().map(move |level| (directory, other.as_str(), level));
    listed(experiment, "directory").iter().flat_map(of).collect()
}

/// Every cell, three times; stat and read of files come from a cache that is named.
fn trials(study: &StudyFile) -> Vec<TrialDocument> {
    let mut trials = Vec::new();
    for experiment in &study.experiments {
        for repetition in 0..REPETITIONS {
            for (cell, (directory, other, level)) in (0..).zip(cells(experiment)) {
                let value = if directory == "native" { 100.0 * RATIO } else { 100.0 };
                let outcome = outcome(experiment, value * f64::from(repetition + 1));
                let factors = [("directory", directory.clone()), (other, level.clone())];
                let number = u32::try_from(trials.len()).unwrap();
                let trial = run::trial(number, &experiment.name, cell, &factors, outcome);
                trials.push(TrialDocument { repetition, ..trial });
            }
        }
    }
    trials
}

fn outcome(experiment: &Experiment, value: f64) -> clearstream_schema::record::TrialOutcome {
    let unit = if experiment.workload == "storage-stream" { "B/s" } else { "1/s" };
    let metrics: Vec<_> =
        experiment.metrics().iter().map(|name| (name.as_str(), unit, "higher", value)).collect();
    let statistics = json!({"max": value, "min": value, "mean": value, "standard_deviation": 0.0});
    run::outcome(&metrics, |outcome| {
        if unit == "1/s" {
            outcome["detail"] = json!({"schema": STORAGE_METADATA_SCHEMA, "version": 1, "document": {
                "schema": STORAGE_METADATA_SCHEMA, "version": 1, "directory": "/mnt", "file_system": "mfs",
                "requested": MetadataConfig::default(), "transport": "threads", "hosts": ["compute-4"],
                "tree_count": 1, "item_count": 1, "complete": true, "phases": [], "summary": [{
                    "kind": "file", "operation": "stat", "operations_per_second": statistics,
                    "client_cache": "possible",
                }],
            }});
        }
    })
}

/// Markdown, page and headlines of a run of some trials of the study.
fn report(study: &StudyFile, trials: Vec<TrialDocument>) -> (String, String, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let ends = (hosts::nehalem("storage-1"), hosts::nehalem("compute-4"));
    let reader = run::write(folder.path(), study.clone(), ends, trials);
    (markdown(&reader).unwrap(), html(&reader).unwrap(), headlines(&reader).unwrap())
}

/// Markdown or a page without its escapes and unbroken spaces.
fn plain(text: &str) -> String {
    text.replace('\\', "").replace("&#x2f;", "/").replace('\u{a0}', " ")
}

fn figure<'a>(page: &'a str, id: &str) -> &'a str {
    let start = format!("<figure id=\"{id}\">");
    page.split(&start).nth(1).unwrap_or_else(|| panic!("no {id}")).split("</figure>").next().unwrap()
}

fn number(published: &Published) -> String {
    published.high.unwrap().to_string()
}

#[test]
fn every_published_value_is_drawn_with_the_mark_of_its_level() {
    let study = study();
    let (_, page, _) = report(&study, trials(&study));
    let mut drawn = 0;
    for experiment in &study.experiments {
        for published in experiment.published.iter().filter(|one| !one.is_text()) {
            let curve = figure(&page, &format!("figure-{}-{}", experiment.name, published.metric));
            let tip = format!("data-tip=\"{} ({})\"", published.label, published.source);
            let marks: Vec<&str> =
                curve.split(&tip).skip(1).map(|rest| rest.split("</g>").next().unwrap()).collect();
            assert_eq!(marks.len(), 2, "{tip} in both drawings");
            let class = if published.factors["directory"] == "native" { "p1" } else { "p2" };
            for mark in marks {
                assert!(mark.contains(&format!("theirs-dot {class}\"")), "{tip}: {mark}");
            }
            let relation = figure(&page, &format!("figure-{}-relation", experiment.name));
            assert!(
                relation.contains(&number(published)),
                "{} in the table of the relation",
                published.label
            );
            drawn += 1;
        }
        for class in ["p1", "p2"] {
            let has_numbers = experiment.published.iter().any(|one| !one.is_text());
            for metric in experiment.metrics().iter().filter(|_| has_numbers) {
                let curve = figure(&page, &format!("figure-{}-{metric}", experiment.name));
                assert!(curve.contains(&format!("swatch theirs {class}\"")), "{}: a legend", experiment.name);
            }
        }
    }
    assert_eq!(drawn, 256, "all numbers of tables II to VII");
}

#[test]
fn every_relation_has_a_row_a_sentence_and_no_more_words_than_can_be_read() {
    let study = study();
    let (text, page, _) = report(&study, trials(&study));
    let (text, page) = (plain(&text), plain(&page));
    let list = page.split("<ol class=\"findings\">").nth(1).unwrap().split("</ol>").next().unwrap();
    for experiment in &study.experiments {
        let relation = figure(&page, &format!("figure-{}-relation", experiment.name));
        for metric in experiment.metrics() {
            let name = clearstream_schema::human::sentence_case(&metric.replace('-', " "));
            let start = format!("{name}{}: ", if metric == "file-stat" { "*" } else { "" });
            let link =
                format!("href=\"#figure-{}-relation\">{}.</a> {start}", experiment.name, experiment.title);
            let finding = list.split(&link).nth(1).map(|rest| rest.split("</li>").next().unwrap());
            let finding = finding.unwrap_or_else(|| panic!("no sentence of {} {metric}", experiment.name));
            assert!(finding.contains("4.00"), "{finding}");
            let words = start.split_whitespace().chain(finding.split_whitespace()).count();
            assert!(words <= 25, "{words}: {finding}");
            let has_numbers = experiment.published.iter().any(|one| one.metric == *metric);
            assert_eq!(has_numbers, finding.contains("published native is"), "{finding}");
        }
        let rows = relation.matches("</tr>").count() - 1;
        let own = cells(experiment).len() / 2;
        assert_eq!(rows, own * experiment.metrics().len(), "{}", experiment.name);
        let differences = &experiment.relation.as_ref().unwrap().differences;
        assert!(differences.iter().all(|one| relation.contains(one.as_str())), "{}", experiment.name);
    }
    // Table V over table IV: 13241 / 321 and 12493 / 4202.
    let sentence = "File create: published native is 41.2 times projected at 1 task, 2.97 at 8 tasks; ours 4.00 (4.00 to \
                    4.00) and 4.00 (4.00 to 4.00).";
    assert!(text.contains(sentence), "{text}");
}

/// Trials that are missing take away ours, never what was published.
#[test]
fn published_relations_stay_where_nothing_was_measured() {
    let study = study();
    let only: Vec<TrialDocument> =
        trials(&study).into_iter().filter(|trial| trial.factors.get("tasks") == Some(&json!(1))).collect();
    let (text, page, _) = report(&study, only);
    let text = plain(&text);
    for experiment in study.experiments.iter().filter(|one| one.published.iter().any(|one| !one.is_text())) {
        let relation = figure(&page, &format!("figure-{}-relation", experiment.name));
        for published in experiment.published.iter().filter(|one| !one.is_text()) {
            assert!(relation.contains(&number(published)), "{}", published.label);
        }
    }
    assert!(text.contains("2.97 at 8 tasks; ours 4.00 (4.00 to 4.00) and not measured."), "{text}");
}

#[test]
fn what_a_cache_may_have_answered_is_marked_and_is_no_headline() {
    let study = study();
    let (text, page, heads) = report(&study, trials(&study));
    assert!(heads.iter().all(|line| !line.contains("stat")), "{heads:?}");
    assert!(heads[0].contains("native over projected: 4.00 times"), "{heads:?}");
    let text = plain(&text);
    for line in text.lines().filter(|line| line.contains("file stat") && line.starts_with("**")) {
        assert!(line.contains("file stat*"), "{line}");
    }
    let page = plain(&page);
    let curve = figure(&page, "figure-metadata-0-file-stat");
    assert!(curve.contains("file stat*, 1/s") && curve.contains("800 1/s *"), "figure and table: {curve}");
    assert!(curve.contains("* may come from a client\u{2019}s cache"));
    let creation = figure(&page, "figure-metadata-0-file-create");
    assert!(!creation.contains("file create*"));
}

/// Some cells of a cache, others not: the highest of the others is named.
#[test]
fn the_highest_rate_is_of_no_cache_where_there_is_one() {
    let mut study = study();
    study.experiments.retain(|one| one.name == "metadata-0");
    study.experiments[0].metric = serde_json::from_value(json!("file-stat")).unwrap();
    study.experiments[0].relation = None;
    let mut all = trials(&study);
    for trial in all.iter_mut().filter(|trial| trial.factors["directory"] == "projected") {
        if let clearstream_schema::record::TrialOutcome::Measured(outcome) = &mut trial.outcome {
            outcome.detail = None;
        }
    }
    let (text, _, heads) = report(&study, all);
    let text = plain(&text);
    assert!(text.contains("Highest file stat: 200 1/s with directory projected"), "{text}");
    assert!(heads.iter().any(|line| line.contains("200 1/s")), "{heads:?}");
    let marked: BTreeSet<&str> = text.split('|').map(str::trim).filter(|cell| cell.ends_with('*')).collect();
    assert_eq!(marked, BTreeSet::from(["800 1/s *"]), "{text}");
}

/// Clients of a file system are named as such; there is no path between them and a server of this record.
#[test]
fn a_report_of_storage_names_who_measured() {
    let mut study = study();
    study.experiments.retain(|one| one.workload == "storage-metadata");
    let trials = trials(&study);
    let folder = tempfile::tempdir().unwrap();
    let ends = (hosts::with_nic(hosts::nehalem("storage-1"), 0), hosts::nehalem("compute-4"));
    let reader = run::write_with(folder.path(), study, ends, trials, &Default::default(), |run| {
        let service = |name: &str| json!({"name": name, "command": ["sleep"]});
        let lab = json!({
            "schema": "clearstream.lab", "version": 1, "name": "two", "title": "Two",
            "host": [
                {"name": "storage-1", "service": [service("master")]},
                {"name": "storage-2", "service": [service("master")]},
                {"name": "compute-4", "service": [service("native")]},
            ],
        });
        run.lab = Some(serde_json::from_value(lab).unwrap());
    });
    let text = markdown(&reader).unwrap();
    for part in [
        "measured on compute-4 \u{b7} lab two",
        "Measured on compute-4 in lab two.",
        "- Measured on: compute-4",
        "- Service master: storage-[1-2]",
        "- Service native: compute-4",
        "- Host: storage-1, ",
    ] {
        assert!(plain(&text).contains(part), "no {part:?} in\n{text}");
    }
    for part in ["Client: ", "Server: ", "storage-1 to compute-4", "staircase", "slot", "both ends"] {
        assert!(!plain(&text).contains(part), "{part:?} in\n{text}");
    }
}
