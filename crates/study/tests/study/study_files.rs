//! Study files: the built-in one is right, wrong ones are rejected with place and cause.

use crate::common::registry;
use clearstream_configfile::ConfigError;
use clearstream_schema::study::{Figure, StudyFile};
use clearstream_study::{StudyError, file};
use proptest::prelude::*;

const GOOD: &str = r#"schema = "clearstream.study"
version = 1
name = "mine"
title = "Mine"

[[experiment]]
name = "window"
title = "Window"
workload = "flow"
figure = "window-curve"
[experiment.flow]
duration = "10s"
[experiment.factors]
window = ["1MiB", "2MiB"]
sender-cores = "every-core"
"#;

#[test]
fn the_good_one_is_read() {
    let study = file::parse(GOOD, "mine.toml", &registry()).unwrap();
    assert_eq!(study.experiments[0].factors.len(), 2);
}

/// Replaces a line and returns the error of the reader.
fn error_of(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    file::parse(&GOOD.replacen(from, to, 1), "mine.toml", &registry()).unwrap_err().to_string()
}

#[test]
fn each_slip_is_named_with_file_line_key_and_what_was_meant() {
    let cases = [
        ("title = \"Mine\"", "titel = \"Mine\"", "mine.toml:4: titel: ", "did you mean `title`"),
        ("version = 1", "version = 2", "mine.toml:2: version: ", "use 1"),
        ("clearstream.study", "clearstream.lab", "mine.toml:1: schema: ", "clearstream.study"),
        ("name = \"mine\"", "name = \"My Study\"", "mine.toml:3: name: ", "small letters"),
        (
            "\"window-curve\"",
            "\"windowcurve\"",
            "mine.toml:10: experiment[0].figure: ",
            "did you mean `window-curve`",
        ),
        (
            "workload = \"flow\"",
            "workload = \"flwo\"",
            "mine.toml:9: experiment[0].workload: ",
            "did you mean `flow`",
        ),
        ("workload = \"flow\"\n", "", "mine.toml:6: experiment[0].workload: ", "missing field"),
        ("duration = \"10s\"", "duration = \"ten\"", "mine.toml:12: experiment[0].flow.duration: ", "17ms"),
        (
            "duration = \"10s\"",
            "durations = \"10s\"",
            "mine.toml:12: experiment[0].flow.durations: ",
            "did you mean `duration`",
        ),
        (
            "window = [\"1MiB\", \"2MiB\"]",
            "windw = [\"1MiB\"]",
            "mine.toml:14: experiment[0].factors.windw: ",
            "did you mean `window`",
        ),
        (
            "window = [\"1MiB\", \"2MiB\"]",
            "mtuu = [1500]",
            "mine.toml:14: experiment[0].factors.mtuu: ",
            "did you mean `mtu`",
        ),
        (
            "window = [\"1MiB\", \"2MiB\"]",
            "mtu = [15]",
            "mine.toml:14: experiment[0].factors.mtu[0]: ",
            "68 to 65535",
        ),
        (
            "window = [\"1MiB\", \"2MiB\"]",
            "window = []",
            "mine.toml:14: experiment[0].factors.window: ",
            "at least one level",
        ),
        (
            "window = [\"1MiB\", \"2MiB\"]",
            "window = 3",
            "mine.toml:14: experiment[0].factors.window: ",
            "a list of levels",
        ),
        (
            "window = [\"1MiB\", \"2MiB\"]",
            "window = \"every-core\"",
            "mine.toml:14: experiment[0].factors.window: ",
            "only core factors",
        ),
        (
            "[\"1MiB\", \"2MiB\"]",
            "[\"1MiB\", \"big\"]",
            "mine.toml:14: experiment[0].factors.window[1]: ",
            "512KiB",
        ),
        (
            "[\"1MiB\", \"2MiB\"]",
            "[\"1MiB\", \"1MiB\"]",
            "mine.toml:14: experiment[0].factors.window[1]: ",
            "twice",
        ),
        (
            "\"every-core\"",
            "\"evry-core\"",
            "mine.toml:15: experiment[0].factors.sender-cores: ",
            "did you mean `every-core`",
        ),
        (
            "sender-cores = \"every-core\"",
            "receive-steering = [\"on\"]",
            "mine.toml:15: experiment[0].factors.receive-steering[0]: ",
            "\"off\"",
        ),
        (
            "[experiment.flow]",
            "repetitions = 0\n[experiment.flow]",
            "mine.toml:11: experiment[0].repetitions: ",
            "1 to 1000",
        ),
        (
            "[experiment.flow]",
            "precision-ratio = 2\n[experiment.flow]",
            "mine.toml:11: experiment[0].precision-ratio: ",
            "0.02",
        ),
        (
            "[experiment.flow]",
            "[experiment.quik]\n[experiment.flow]",
            "mine.toml:11: experiment[0].quik: ",
            "did you mean `quick`",
        ),
        ("title = \"Mine\"", "title = Mine", "mine.toml:4: title: ", ""),
        (
            "[\"1MiB\", \"2MiB\"]",
            "[\"1MiB\", \"1\\n2\"]",
            "mine.toml:14: experiment[0].factors.window[1]: ",
            "from \"1\\n2\"",
        ),
        (
            "[experiment.flow]",
            "metric = \"goodputs\"\n[experiment.flow]",
            "mine.toml:11: experiment[0].metric: ",
            "did you mean `goodput`? (it has: goodput, client-cpu, server-cpu, rtt, min-rtt, retransmits)",
        ),
        (
            "[experiment.flow]",
            "beside = \"windw\"\n[experiment.flow]",
            "mine.toml:11: experiment[0].beside: ",
            "there is no experiment `windw`; did you mean `window`?",
        ),
        (
            "[experiment.flow]",
            "beside = \"window\"\n[experiment.flow]",
            "mine.toml:11: experiment[0].beside: ",
            "the experiment itself",
        ),
        (
            "figure = \"window-curve\"",
            "figure = \"overhead\"",
            "mine.toml:",
            "needs it: the experiment without the layer",
        ),
    ];
    for (from, to, place, meant) in cases {
        let message = error_of(from, to);
        assert!(message.starts_with(place), "{to}: {message}");
        assert!(message.contains(meant), "{to}: {message}");
        assert!(!message.contains('\n'), "one line: {message}");
    }
}

/// A study of one experiment whose figure is a curve of this metric.
fn of_metric(workload: &str, metric: &str, rest: &str) -> Result<StudyFile, StudyError> {
    let text = format!(
        "schema = \"clearstream.study\"\nversion = 1\nname = \"mine\"\ntitle = \"Mine\"\n[[experiment]]\n\
         name = \"one\"\ntitle = \"One\"\nworkload = \"{workload}\"\nfigure = \"curve\"\n\
         metric = \"{metric}\"\n{rest}"
    );
    file::parse(&text, "mine.toml", &registry())
}

#[test]
fn a_metric_that_no_combination_of_levels_gives_is_refused_with_what_there_is() {
    // What there is depends on options, on levels and on what a mode changes.
    for (workload, metric, rest, known) in [
        ("flow", "jitter", "", "server-cpu"),
        ("flow", "jitter", "[experiment.flow]\nprotocol = \"udp\"\n", ""),
        ("flow", "jitter", "[experiment.factors]\nprotocol = [\"tcp\", \"udp\"]\n", ""),
        ("flow", "reverse-goodput", "[experiment.quick.factors]\ndirection = [\"both\"]\n", ""),
        ("message", "bandwidth", "", "did you mean"),
        ("message", "bandwidth", "[experiment.factors]\nkind = [\"ping-pong\", \"stream\"]\n", ""),
        ("rdma", "throughput", "", "bandwidth, message-rate, client-cpu, server-cpu"),
        ("rdma", "throughput", "[experiment.lab.rdma]\nlatency = true\n", ""),
        ("gateways", "recovery", "", "answer-rate"),
        ("gateways", "recovery", "[experiment.gateways]\nfailure = \"silent\"\n", ""),
        ("probe", "udp-delay-p50", "", ""),
        ("verbs-calls", "time-p99", "", ""),
        ("inspect", "goodput", "", "the workload inspect has no metrics"),
    ] {
        match (of_metric(workload, metric, rest), known) {
            (Ok(_), "") => {}
            (Err(error), known) if !known.is_empty() => {
                let message = error.to_string();
                assert!(message.starts_with("mine.toml:10: experiment[0].metric: "), "{message}");
                assert!(message.contains(&format!("`{metric}`")) || workload == "inspect", "{message}");
                assert!(message.contains(known) || known == "did you mean", "{message}");
            }
            (found, _) => panic!("{workload} {metric} {rest}: {found:?}"),
        }
    }
}

#[test]
fn experiments_side_by_side_need_one_metric_in_one_unit() {
    let beside = |metric: &str| {
        let other = "beside = \"two\"\n[[experiment]]\nname = \"two\"\ntitle = \"Two\"\nworkload = \"rdma\"\n\
                     figure = \"curve\"\n[experiment.factors]\nlatency = [true, false]\n";
        of_metric("message", metric, other).map_err(|error| error.to_string())
    };
    assert_eq!(beside("latency").unwrap().experiments[0].beside.as_deref(), Some("two"));
    let unit = beside("client-cpu").unwrap_err();
    assert!(unit.starts_with("mine.toml:11: experiment[0].beside: "), "{unit}");
    assert!(unit.contains("`client-cpu` is in ratio here and in s/GB in `two`"), "{unit}");
    let both = "write a `metric` that both have (latency, latency-p99, latency-min, throughput)";
    assert!(unit.contains(both), "{unit}");
    let none = of_metric("probe", "path-mtu", &beside_a_flow("")).unwrap_err().to_string();
    assert!(none.contains("`two` has no metric `path-mtu`: the two have no metric in common"), "{none}");
    let drawn = of_metric("flow", "goodput", &beside_a_flow("beside = \"one\"\n")).unwrap_err().to_string();
    assert!(drawn.contains("experiment[1].beside: ") && drawn.contains("figure = \"curve\""), "{drawn}");
}

/// A published value that no figure of its experiment can have is refused with its line.
#[test]
fn a_published_value_is_of_a_metric_of_its_experiment_in_a_unit_of_it() {
    let published = |workload: &str, keys: &str| {
        let text = format!(
            "schema = \"clearstream.study\"\nversion = 1\nname = \"mine\"\ntitle = \"Mine\"\n[[experiment]]\n\
             name = \"one\"\ntitle = \"One\"\nworkload = \"{workload}\"\nfigure = \"bars\"\n\
             [[experiment.published]]\nlabel = \"theirs\"\nsource = \"paper\"\n{keys}"
        );
        file::parse(&text, "mine.toml", &registry()).map_err(|error| error.to_string())
    };
    for (workload, keys) in [
        ("flow", "high = 3.0\n"),
        ("flow", "metric = \"rtt\"\nunit = \"ms\"\nlow = 17\n"),
        ("message", "metric = \"latency\"\nunit = \"us\"\n"),
        ("rdma", "metric = \"message-rate\"\nunit = \"1/s\"\nhigh = 1e6\n"),
        // A text stands below any figure.
        ("inspect", ""),
        ("gateways", ""),
    ] {
        assert!(published(workload, keys).is_ok(), "{workload} {keys}: {:?}", published(workload, keys));
    }
    for (workload, keys, place, meant) in [
        (
            "flow",
            "metric = \"goodputs\"\nhigh = 1\n",
            "13: experiment[0].published[0].metric: ",
            "`goodput`?",
        ),
        (
            "rdma",
            "metric = \"latncy\"\n",
            "13: experiment[0].published[0].metric: ",
            "bandwidth, message-rate",
        ),
        // Goodput in Gb/s is what is meant where nothing is written.
        ("rdma", "high = 1\n", "10: experiment[0].published[0].metric: ", "no metric `goodput`"),
        ("inspect", "high = 1\n", "10: experiment[0].published[0].metric: ", "no metrics"),
        (
            "message",
            "metric = \"latency\"\nhigh = 1\n",
            "10: experiment[0].published[0].unit: ",
            "ns, us, ms, s",
        ),
        (
            "message",
            "metric = \"latency\"\nunit = \"Mb/s\"\nhigh = 1\n",
            "14: experiment[0].published[0].unit: ",
            "`latency` is not in Mb/s: write one of ns, us, ms, s",
        ),
        (
            "flow",
            "unit = \"gb/s\"\nhigh = 1\n",
            "13: experiment[0].published[0].unit: ",
            "did you mean `Gb/s`?",
        ),
    ] {
        let message = published(workload, keys).unwrap_err();
        assert!(message.starts_with(&format!("mine.toml:{place}")), "{workload} {keys}: {message}");
        assert!(message.contains(meant), "{workload} {keys}: {message}");
        assert!(!message.contains('\n'), "one line: {message}");
    }
}

fn beside_a_flow(more: &str) -> String {
    format!(
        "beside = \"two\"\n[[experiment]]\nname = \"two\"\ntitle = \"Two\"\nworkload = \"flow\"\n\
         figure = \"throughput\"\n{more}"
    )
}

#[test]
fn two_experiments_of_one_name_are_refused() {
    let doubled = format!(
        "{GOOD}\n[[experiment]]\nname = \"window\"\ntitle = \"W\"\nworkload = \"probe\"\nfigure = \"delay\"\n"
    );
    let message = file::parse(&doubled, "mine.toml", &registry()).unwrap_err().to_string();
    assert!(message.starts_with("mine.toml:18: experiment[1].name: "), "{message}");
}

#[test]
fn unknown_names_and_unreadable_files_are_distinguished() {
    let error = file::load("clearstream-40gb", &registry()).unwrap_err();
    assert!(matches!(error, StudyError::Config(ConfigError::Unknown { .. })), "{error}");
    assert!(error.to_string().contains("did you mean `clearstream-40ge`"), "{error}");
    let error = file::load("/", &registry()).unwrap_err();
    assert!(matches!(error, StudyError::Config(ConfigError::Read { .. })), "{error}");
}

fn built_in() -> StudyFile {
    file::load("clearstream-40ge", &registry()).unwrap()
}

#[test]
fn without_a_figure_an_experiment_is_drawn_as_its_workload_usually_is() {
    let figure_of = |workload: &str| {
        let text = format!(
            "schema = \"clearstream.study\"\nversion = 1\nname = \"mine\"\ntitle = \"Mine\"\n\
             [[experiment]]\nname = \"one\"\ntitle = \"One\"\nworkload = \"{workload}\"\n"
        );
        file::parse(&text, "mine.toml", &registry()).unwrap().experiments[0].figure
    };
    for (workload, figure) in [
        ("flow", Figure::Throughput),
        ("probe", Figure::Delay),
        ("inspect", Figure::Topology),
        ("gateways", Figure::Gateways),
        ("message", Figure::Curve),
        ("rdma", Figure::Curve),
        ("verbs-calls", Figure::Bars),
        ("storage-semantics", Figure::Semantics),
    ] {
        // Written down, so that a record says how it is drawn.
        assert_eq!(figure_of(workload), Some(figure), "{workload}");
    }
}

#[test]
fn a_matrix_is_over_two_factors() {
    let one = GOOD.replacen("sender-cores = \"every-core\"\n", "", 1);
    let matrix = |text: &str| text.replacen("\"window-curve\"", "\"matrix\"", 1);
    file::parse(&matrix(GOOD), "mine.toml", &registry()).unwrap();
    let error = file::parse(&matrix(&one), "mine.toml", &registry()).unwrap_err().to_string();
    assert!(error.starts_with("mine.toml:10: experiment[0].figure: "), "{error}");
    assert!(error.contains("two factors"), "{error}");
    let in_lab = format!("{one}[experiment.lab.factors]\nmtu = [1500, 9000]\n");
    file::parse(&matrix(&in_lab), "mine.toml", &registry()).unwrap();
}

#[test]
fn every_figure_of_the_papers_has_an_experiment_and_a_source() {
    let study = built_in();
    let figures: Vec<Figure> = study.experiments.iter().map(|experiment| experiment.figure()).collect();
    for figure in [
        Figure::Topology,
        Figure::Delay,
        Figure::Throughput,
        Figure::WindowCurve,
        Figure::LiveTraffic,
        Figure::PinMatrix,
        Figure::PinRow,
    ] {
        assert!(figures.contains(&figure), "{figure:?}");
    }
    for experiment in &study.experiments {
        assert!(!experiment.published.is_empty(), "{}", experiment.name);
        assert!(
            experiment
                .published
                .iter()
                .all(|published| { published.source.contains("report") || published.source.contains("TNC") })
        );
    }
}

/// A built-in study with a piece cut out and another put in.
fn damaged() -> impl Strategy<Value = String> {
    let text = include_str!("../../../../studies/clearstream-40ge.toml");
    (0..text.len(), 0..200usize, "[ -~\\n]{0,12}").prop_map(move |(start, length, piece)| {
        let cut = |place: usize| {
            (0..=place.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
        };
        let (start, end) = (cut(start), cut(start + length).max(cut(start)));
        format!("{}{piece}{}", &text[..start], &text[end..])
    })
}

proptest! {
    /// Any text is a study or one line with file and line.
    #[test]
    fn damage_never_causes_a_panic(text in damaged()) {
        if let Err(error) = file::parse(&text, "mine.toml", &registry()) {
            let message = error.to_string();
            prop_assert!(message.starts_with("mine.toml:"), "{message}");
            prop_assert!(!message.contains('\n'), "{message}");
        }
    }
}

/// An experiment with a table of others and a relation.
const RELATION: &str = r#"schema = "clearstream.study"
version = 1
name = "mine"
title = "Mine"

[[experiment]]
name = "mounts"
title = "Mounts"
workload = "storage-metadata"
metric = ["file-create", "file-stat"]
[experiment.factors]
directory = ["native", "projected"]
tasks = [1, 2]
[[experiment.published-table]]
label = "native"
source = "table V"
factors = { directory = "native" }
levels = ["tasks"]
metrics = ["file-create", "file-stat"]
unit = "1/s"
rows = [[1, 10, 20], [2, 30, 40.5]]
[experiment.relation]
factor = "directory"
level = "native"
over = "projected"
differences = ["another file system"]
"#;

#[test]
fn a_published_table_is_read_as_its_values() {
    let study = file::parse(RELATION, "mine.toml", &registry()).unwrap();
    let experiment = &study.experiments[0];
    let found: Vec<_> = experiment
        .published
        .iter()
        .map(|one| (one.label.as_str(), one.factors["tasks"].as_u64(), one.metric.as_str(), one.high))
        .collect();
    assert_eq!(found[0], ("native, tasks 1, file create", Some(1), "file-create", Some(10.0)));
    assert_eq!(found[3], ("native, tasks 2, file stat", Some(2), "file-stat", Some(40.5)));
    assert_eq!(found.len(), 4);
    assert!(experiment.published_table.is_empty(), "each value is there once");
    assert!(experiment.published.iter().all(|one| one.factors["directory"] == "native"));
}

#[test]
fn slips_of_relations_and_tables_are_named() {
    let cases = [
        ("factor = \"directory\"", "factor = \"directry\"", "relation.factor: ", "did you mean `directory`"),
        ("level = \"native\"", "level = \"natve\"", "relation.level: ", "known: native, projected"),
        ("over = \"projected\"", "over = \"native\"", "relation.over: ", "name another"),
        ("over = \"projected\"", "over = \"other\"", "relation.over: ", "is no level of `directory`"),
        ("[\"another file system\"]", "[\" \"]", "relation.differences: ", "a few words"),
        ("[2, 30, 40.5]", "[2, 30]", "published-table[0].rows[1]: ", "1 level and 2 numbers"),
        ("[2, 30, 40.5]", "[2, 30, \"x\"]", "published-table[0].rows[1]: ", "1 level and 2 numbers"),
        ("[2, 30, 40.5]", "[]", "published-table[0].rows[1]: ", "1 level and 2 numbers"),
        ("unit = \"1/s\"", "unit = \"MB/s\"", "published[0].unit: ", "is not in MB/s"),
        ("metric = [\"file-create\", ", "metric = [\"file-stat\", ", "metric: ", "there twice"),
        ("metric = [\"file-create\", \"file-stat\"]", "metric = []", "metric: ", "at least one"),
        ("metric = [\"file-create\", \"file-stat\"]", "metric = 3", "metric: ", "or a list of them"),
        ("levels = [\"tasks\"]", "levels = [\"taks\"]", "published[0].factors.taks: ", "did you mean"),
        ("metric = [\"file-create\", \"file-stat\"]", "metric = [\"file-crate\"]", "metric: ", "file-create"),
    ];
    for (from, to, place, meant) in cases {
        assert!(RELATION.contains(from), "{from}");
        let error = file::parse(&RELATION.replacen(from, to, 1), "mine.toml", &registry()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(place) && error.contains(meant), "{to}: {error}");
    }
}
