//! Study files: the built-in one is right, wrong ones say where and what.

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

/// Replaces a line and tells what the reader says of it.
fn complaint(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    file::parse(&GOOD.replacen(from, to, 1), "mine.toml", &registry()).unwrap_err().to_string()
}

#[test]
fn each_slip_is_named_with_file_line_key_and_what_was_meant() {
    let cases = [
        ("title = \"Mine\"", "titel = \"Mine\"", "mine.toml:4: titel: ", "did you mean `title`"),
        ("version = 1", "version = 2", "mine.toml:2: version: ", "write 1"),
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
    ];
    for (from, to, place, meant) in cases {
        let message = complaint(from, to);
        assert!(message.starts_with(place), "{to}: {message}");
        assert!(message.contains(meant), "{to}: {message}");
        assert!(!message.contains('\n'), "one line: {message}");
    }
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
fn unknown_names_and_unreadable_files_are_told_apart() {
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
fn every_figure_of_the_papers_has_an_experiment_and_a_source() {
    let study = built_in();
    let figures: Vec<Figure> = study.experiments.iter().map(|experiment| experiment.figure).collect();
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

/// The figures as printed in the two papers.
#[test]
fn published_figures_are_as_printed() {
    let study = built_in();
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

#[test]
fn the_verbs_study_publishes_what_the_paper_gives_as_numbers() {
    let study = file::load("iwarp-verbs", &registry()).unwrap();
    let tcp: Vec<_> = study.experiments.iter().filter(|one| one.workload == "message").collect();
    assert!(tcp.len() >= 3, "latency, throughput, bandwidth");
    let published = tcp.iter().flat_map(|experiment| &experiment.published);
    // Section 4: "limited to a wire speed of only 1 Gb/s". Figures have no numbers in the text.
    let numbers: Vec<_> =
        published.filter_map(|one| Some((one.metric.as_str(), one.unit.as_str(), one.high?))).collect();
    assert_eq!(numbers, [("throughput", "Mb/s", 1000.0), ("bandwidth", "Mb/s", 1000.0)]);
    for experiment in tcp {
        assert!(experiment.factors.contains_key("method"), "{}", experiment.name);
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
    /// Whatever the file says, the answer is a study or one line with file and line.
    #[test]
    fn damage_is_answered_never_with_a_panic(text in damaged()) {
        if let Err(error) = file::parse(&text, "mine.toml", &registry()) {
            let message = error.to_string();
            prop_assert!(message.starts_with("mine.toml:"), "{message}");
            prop_assert!(!message.contains('\n'), "{message}");
        }
    }
}
