//! Published values of the built-in studies are those that the papers print.

use crate::common::registry;
use clearstream_schema::study::{Experiment, Levels};
use clearstream_study::file;

/// The figures as printed in the two papers.
#[test]
fn published_figures_are_as_printed() {
    let study = file::load("clearstream-40ge", &registry()).unwrap();
    let published =
        |name: &str| &study.experiments.iter().find(|experiment| experiment.name == name).unwrap().published;
    let local = published("local-throughput");
    assert_eq!((local[0].low, local[0].high), (Some(20.7), Some(23.3)));
    assert_eq!(local[1].high, Some(25.3));
    assert_eq!(local[3].high, Some(32.0));
    let knee = &published("window")[0];
    // No goodput: the 19 Gb/s of the printed 40.38 MB (19 Gb/s x 17 ms / 8, rounded) are assumed.
    assert_eq!((knee.low, knee.high), (None, None));
    assert_eq!(knee.factors["window"], "40.38MB");
    assert!((19e9 * 17e-3 / 8.0 / 1e6 - 40.38f64).abs() < 0.01);
    assert_eq!(published("live-traffic")[0].high, Some(11.0));
    // That more flows add nothing is in the report, 25.3 Gb/s in the other paper only.
    assert!(local[2].label.contains("more than two flows") && local[2].source == "report, section 4");
    assert_eq!((local[2].low, local[2].high), (None, None));
    // Table II: 3654.27 MB/s; table III: 8867.00.
    let gateways = file::load("native-client", &registry()).unwrap();
    let goodput = gateways.experiments.iter().find(|experiment| experiment.name == "goodput").unwrap();
    let label = &goodput.published[0].label;
    assert!(label.contains("8867 MB/s") && label.contains("3654 MB/s"), "{label}");
}

/// Tables II to VII as the paper's text has them: table, tasks, bytes of files, and its columns of numbers.
const TABLES: &str = include_str!("../../../../fixtures/papers/native-client-tables.tsv");

/// Table, directory, tasks, bytes written, metric, and the number.
type Printed = (String, String, u64, Option<u64>, String, String);

fn printed() -> Vec<Printed> {
    let mut all = Vec::new();
    for line in TABLES.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let directory = if ["II", "IV", "VI"].contains(&cells[0]) { "projected" } else { "native" };
        let (bytes, metrics, numbers) = match cells.len() {
            4 => (None, &["write-bandwidth", "read-bandwidth"][..], &cells[2..]),
            _ => {
                assert_eq!(cells[2], cells[3], "as many bytes are read as were written");
                (
                    Some(cells[2].parse().unwrap()),
                    &["file-create", "file-stat", "file-remove"][..],
                    &cells[4..],
                )
            }
        };
        for (metric, number) in metrics.iter().zip(numbers) {
            let number = number.parse::<f64>().unwrap().to_string();
            let tasks = cells[1].parse().unwrap();
            all.push((cells[0].to_owned(), directory.to_owned(), tasks, bytes, (*metric).to_owned(), number));
        }
    }
    all.sort();
    all
}

/// Every number of the tables is in the study once, with its levels, and the study has no other.
#[test]
fn the_storage_study_publishes_the_tables_of_the_paper() {
    let study = file::load("native-client-storage", &registry()).unwrap();
    let mut published = Vec::new();
    for experiment in &study.experiments {
        for one in experiment.published.iter().filter(|one| !one.is_text()) {
            assert_eq!(one.low, one.high, "{}", one.label);
            assert!(experiment.metrics().contains(&one.metric), "{}: not drawn", one.label);
            let size = |level: &serde_json::Value| {
                level.as_str().unwrap().parse::<clearstream_schema::ByteCount>().unwrap().0
            };
            let table = one.source.strip_prefix("paper, table ").unwrap();
            let directory = one.factors["directory"].as_str().unwrap();
            assert!(one.label.starts_with(directory), "{}", one.label);
            published.push((
                table.to_owned(),
                directory.to_owned(),
                one.factors["tasks"].as_u64().unwrap(),
                one.factors.get("write-bytes").map(size),
                one.metric.clone(),
                one.high.unwrap().to_string(),
            ));
        }
    }
    published.sort();
    assert_eq!(published.len(), 256);
    assert_eq!(published, printed());
}

/// What can be run here is run: each published level is one of its experiment, in every mode.
#[test]
fn every_published_cell_of_the_storage_study_is_measured() {
    let study = file::load("native-client-storage", &registry()).unwrap();
    for experiment in &study.experiments {
        let quick = experiment.quick.as_ref().unwrap();
        assert!(quick.factors.is_empty(), "{}: --quick leaves no cell out", experiment.name);
        let fixed = experiment.options.of(&experiment.workload);
        for one in experiment.published.iter().filter(|one| !one.is_text()) {
            for (name, level) in &one.factors {
                let is_level = match experiment.factors.get(name) {
                    Some(Levels::Listed(levels)) => levels.contains(level),
                    _ => fixed.get(name) == Some(level),
                };
                assert!(is_level, "{}: {name} {level}", one.label);
            }
        }
        assert!(experiment.relation.is_some() || experiment.workload == "storage-semantics");
    }
}

#[test]
fn the_verbs_study_publishes_what_the_paper_gives_as_numbers() {
    let study = file::load("iwarp-verbs", &registry()).unwrap();
    let tcp: Vec<_> = study.experiments.iter().filter(|one| one.name.starts_with("tcp-")).collect();
    assert!(tcp.len() >= 3, "latency, throughput, bandwidth");
    let published = tcp.iter().flat_map(|experiment| &experiment.published);
    // Section 4: "limited to a wire speed of only 1 Gb/s". Figures have no numbers in the text.
    let numbers: Vec<_> =
        published.filter_map(|one| Some((one.metric.as_str(), one.unit.as_str(), one.high?))).collect();
    assert_eq!(numbers, [("throughput", "Mb/s", 1000.0), ("bandwidth", "Mb/s", 1000.0)]);
    // Section 3.1: "iWARP reaches the physical limit of the network, while TCP can not".
    let bandwidth = study.experiments.iter().find(|one| one.name == "rdma-bandwidth").unwrap();
    let limit = &bandwidth.published[0];
    assert_eq!((limit.metric.as_str(), limit.unit.as_str(), limit.high), ("bandwidth", "Mb/s", Some(1000.0)));
    for published in study.experiments.iter().flat_map(|experiment| &experiment.published) {
        assert!(!published.is_text(), "{}: of which metric?", published.label);
    }
    for experiment in &tcp {
        assert!(experiment.factors.contains_key("method"), "{}", experiment.name);
    }
    let sizes = |factors: &std::collections::BTreeMap<String, Levels>| match &factors["size"] {
        Levels::Listed(sizes) => sizes.clone(),
        Levels::Named(_) => Vec::new(),
    };
    let quick = |experiment: &Experiment| sizes(&experiment.quick.as_ref().unwrap().factors);
    // Figures 2, 4, 5 and 6 draw both transports; sizes that both have give the ratio.
    for experiment in &tcp {
        let beside = experiment.beside.as_ref().unwrap();
        let other = study.experiments.iter().find(|other| &other.name == beside).unwrap();
        assert_eq!(other.workload, "rdma");
        for (own, theirs) in
            [(sizes(&experiment.factors), sizes(&other.factors)), (quick(experiment), quick(other))]
        {
            let shared = own.iter().filter(|size| theirs.contains(size)).count();
            assert!(2 * shared > own.len(), "{}: {shared} of {}", experiment.name, own.len());
        }
    }
    // Figure 4, "the big picture": the latency of TCP at every size that iWARP has.
    let of_latency = |one: &&&Experiment| one.metrics() == ["latency"];
    let latency: Vec<_> = tcp.iter().filter(of_latency).collect();
    let iwarp = study.experiments.iter().find(|one| one.name == "rdma-latency").unwrap();
    for size in sizes(&iwarp.factors) {
        assert!(latency.iter().any(|one| sizes(&one.factors).contains(&size)), "no latency of TCP at {size}");
    }
    assert!(latency.iter().any(|one| quick(one).contains(&"8MiB".into())), "--quick has large ones, too");
}
