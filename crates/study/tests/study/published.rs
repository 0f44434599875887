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

/// Lines of the paper's tables II to V: tasks, bytes, and what was measured.
#[test]
fn the_storage_study_publishes_the_tables_of_the_paper() {
    let study = file::load("native-client-storage", &registry()).unwrap();
    let value = |experiment: &str, directory: &str, tasks: u64, bytes: Option<&str>| {
        let experiment = study.experiments.iter().find(|one| one.name == experiment).unwrap();
        let mut found = experiment.published.iter().filter(|one| {
            one.factors["directory"] == directory
                && one.factors["tasks"] == tasks
                && bytes.is_none_or(|bytes| one.factors["write-bytes"] == bytes)
        });
        let (one, other) = (found.next().unwrap(), found.next());
        assert!(other.is_none() && one.low == one.high, "{}", one.label);
        one.high.unwrap()
    };
    for (tasks, projected, native) in
        [(1, [3053.26, 2008.49], [2912.81, 4029.48]), (8, [5504.65, 3654.27], [6303.60, 8867.00])]
    {
        for (place, experiment) in ["streaming-write", "streaming-read"].into_iter().enumerate() {
            assert_eq!(value(experiment, "projected", tasks, None), projected[place]);
            assert_eq!(value(experiment, "native", tasks, None), native[place]);
        }
    }
    let lines = [
        ("projected", 1, "0B", [321.0, 13472.0, 225.0]),
        ("projected", 8, "4KiB", [1512.0, 46889.0, 1238.0]),
        ("native", 2, "4KiB", [1522.0, 432_041.0, 37154.0]),
        ("native", 8, "0B", [12493.0, 1_269_373.0, 73599.0]),
    ];
    for (directory, tasks, bytes, expected) in lines {
        let found = ["metadata-create", "metadata-stat", "metadata-remove"]
            .map(|experiment| value(experiment, directory, tasks, Some(bytes)));
        assert_eq!(found, expected, "{directory} {tasks} {bytes}");
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
    let of_latency = |one: &&&Experiment| one.metric.as_deref() == Some("latency");
    let latency: Vec<_> = tcp.iter().filter(of_latency).collect();
    let iwarp = study.experiments.iter().find(|one| one.name == "rdma-latency").unwrap();
    for size in sizes(&iwarp.factors) {
        assert!(latency.iter().any(|one| sizes(&one.factors).contains(&size)), "no latency of TCP at {size}");
    }
    assert!(latency.iter().any(|one| quick(one).contains(&"8MiB".into())), "--quick has large ones, too");
}
