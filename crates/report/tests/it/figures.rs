//! Drawings of records whose every number is known: positions of marks, which colour a
//! label has, and the sentence of a drawing of one trial.

use crate::common::hosts;
use crate::common::run;
use std::collections::{BTreeMap, BTreeSet};

use clearstream_report::{html, markdown};
use clearstream_schema::{
    ByteCount, counters::InterfaceCounters, flow::SideInterval, record::TrialDocument, study::Figure,
};
use serde_json::json;

/// A page without the spaces that keep units on their line; the template writes a slash as its number.
fn plain(page: &str) -> String {
    page.replace('\u{a0}', " ").replace("&#x2f;", "/")
}

/// 19 Gb/s over 17 ms, and a flow that stays near 10.6.
fn windows() -> Vec<TrialDocument> {
    let windows = [(8u64, 3.9), (32, 10.3), (64, 10.6), (128, 10.4)];
    let trials = (0..).zip(windows).map(|(number, (mebibytes, gbps))| {
        let outcome = run::flow(gbps, |s| {
            s.requested.window = Some(ByteCount(mebibytes << 20));
            s.min_rtt_ns = Some(17_000_000);
        });
        run::trial(number, "window", number, &[("window", json!(format!("{mebibytes}MiB")))], outcome)
    });
    trials.collect()
}

/// The picture of all interfaces is one of one trial, and its sentence names it.
#[test]
fn peaks_of_one_trial_are_called_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut study = run::study("Live");
    study.experiments.retain(|experiment| experiment.name == "flows");
    study.experiments[0].figure = Some(Figure::LiveTraffic);
    let trials = [20.0, 21.0, 30.0].into_iter().zip(0..).map(|(gbps, repetition)| {
        let one = run::trial(repetition, "flows", 0, &[("flows", json!(1))], run::flow(gbps, |_| ()));
        TrialDocument { repetition, ..one }
    });
    let moved = |gbps: f64| {
        move |side: &mut SideInterval| {
            side.interfaces = vec![InterfaceCounters {
                name: "eth2".to_owned(),
                send_bytes: (gbps / 8.0 * 1e9) as u64,
                ..InterfaceCounters::default()
            }];
        }
    };
    let samples = [20.0, 21.0, 30.0].into_iter().zip(0..);
    let samples = samples.map(|(gbps, trial)| (trial, run::samples(&[gbps; 3], moved(gbps)))).collect();
    let servers = (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"));
    let reader = run::write_with(folder.path(), study, servers, trials.collect(), &samples, |_| ());
    let text = markdown(&reader).unwrap();
    // Trial 1 is the one in the middle; another peaks at 30.
    let sentence = text.lines().find(|line| line.contains("In trial 1 the busiest interface, eth2 of dtn"));
    assert!(sentence.is_some_and(|line| line.contains("(out), peaks at 21.0 Gb/s")), "{text}");
}

/// Circles of a drawing that have these classes, as centres.
fn circles(drawing: &str, classes: &str) -> Vec<(f64, f64)> {
    let value = |tag: &str, name: &str| -> f64 {
        let text = tag.split(&format!(" {name}=\"")).nth(1).unwrap();
        text.split('"').next().unwrap().parse().unwrap()
    };
    let tags = drawing.split("<circle").skip(1).map(|tag| tag.split('>').next().unwrap());
    tags.filter(|tag| tag.contains(&format!("class=\"{classes}\"")))
        .map(|tag| (value(tag, "cx"), value(tag, "cy")))
        .collect()
}

/// The curve is logarithmic in both directions, with a strip of the ratio to the model below:
/// marks are at the positions of logarithm and ratio, computed here.
#[test]
fn a_window_curve_is_logarithmic_with_its_ratio_below() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = (hosts::virtual_machine("alpha"), hosts::virtual_machine("beta"));
    let study = run::study("Over 1650 km");
    let reader = run::write_with(folder.path(), study, hosts, windows(), &BTreeMap::new(), |run| {
        run.lab = Some(run::lab());
    });
    let page = plain(&html(&reader).unwrap());
    let figure = page.split("id=\"figure-window-window\"").nth(1).unwrap();
    let drawing = figure.split("</svg>").next().unwrap();
    for axis in ["goodput, Gb/s (log scale)", "TCP window (log scale)", "of the model"] {
        assert!(drawing.contains(&format!(">{axis}</text>")), "{axis}");
    }
    // A large circle for each window in either part.
    let marks = circles(drawing, "dot s0");
    let (curve, ratios) = marks.split_at(4);
    assert_eq!(ratios.len(), 4, "{marks:?}");
    let near = |seen: f64, expected: f64| assert!((seen - expected).abs() < 0.3, "{seen}, not {expected}");
    // 8, 32, 64, 128 MiB: 32 is two of four doublings from 8 to 128.
    let (first, second, last) = (curve[0].0, curve[1].0, curve[3].0);
    near(second, first + (last - first) / 2.0);
    // 3.9, 10.3, 10.6 Gb/s by their logarithms.
    let share = (10.3f64 / 3.9).ln() / (10.6f64 / 3.9).ln();
    near(curve[1].1, curve[0].1 + (curve[2].1 - curve[0].1) * share);
    // The strip is linear from zero: 3.9 of 3.947, 10.3 of 15.79, 10.6 of 19 Gb/s.
    let [one, two, three] = [3.9 / 3.9476, 10.3 / 15.790, 10.6 / 19.0];
    near(ratios[1].1, ratios[0].1 + (ratios[2].1 - ratios[0].1) * (one - two) / (one - three));
    assert!(
        curve.iter().zip(ratios).all(|(above, below)| (above.0 - below.0).abs() < 0.05 && above.1 < below.1)
    );
}

/// Classes of the legends of all figures over time, by their labels.
#[test]
fn a_level_has_one_colour_in_all_figures() {
    let folder = tempfile::tempdir().unwrap();
    let mut study = run::study("Two experiments");
    study.experiments.retain(|experiment| experiment.name == "flows");
    study.experiments[0].figure = Some(Figure::Throughput);
    let mut second = study.experiments[0].clone();
    (second.name, second.title) = ("methods".to_owned(), "By method".to_owned());
    study.experiments.push(second);
    let mut trials = Vec::new();
    let levels = [("flows", "flows", json!(1)), ("flows", "flows", json!(2))];
    let others =
        [("methods", "flows", json!(2)), ("methods", "flows", json!(4)), ("methods", "flows", json!(8))];
    for (number, (experiment, factor, level)) in (0..).zip(levels.into_iter().chain(others)) {
        let flow = run::flow(20.0, |_| ());
        trials.push(run::trial(number, experiment, number, &[(factor, level)], flow));
    }
    let samples = (0..5).map(|trial| (trial, run::samples(&[20.0, 21.0, 22.0], |_| ()))).collect();
    let servers = (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"));
    let reader = run::write_with(folder.path(), study, servers, trials, &samples, |_| ());
    let page = plain(&html(&reader).unwrap());
    let mut classes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for item in page.split("<span class=\"swatch line s").skip(1) {
        let (class, rest) = item.split_once('"').unwrap();
        let label = rest.split("</span>").nth(1).unwrap().split("</li>").next().unwrap();
        classes.entry(label.trim().to_owned()).or_default().insert(class.to_owned());
    }
    assert_eq!(classes.keys().collect::<Vec<_>>(), ["1 flow", "2 flows", "4 flows", "8 flows"]);
    assert!(classes.values().all(|of_one| of_one.len() == 1), "{classes:?}");
    let all: BTreeSet<&String> = classes.values().flatten().collect();
    assert_eq!(all.len(), 4, "two levels never share a colour: {classes:?}");
}
