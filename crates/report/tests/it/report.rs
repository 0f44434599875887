//! The report of records whose numbers are known.

use crate::common::hosts;
use crate::common::run;
use std::path::Path;

use clearstream_record::synthetic::{Shape, clearstream_40ge};
use clearstream_report::{csv, html, markdown};

const HOSTILE: &str =
    "</title></style><script>alert(1)</script><img src=x onerror=alert(2)>\"' onload='x' {{ 7*7 }} |`=1+1";

fn servers() -> (clearstream_schema::host::HostReport, clearstream_schema::host::HostReport) {
    (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"))
}

#[test]
fn the_summary_agrees_with_a_computation_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let reader = run::write(folder.path(), run::study("Two servers"), servers(), run::round_numbers());
    let text = markdown(&reader).unwrap();
    // The middle one of 21, 22 and 24.
    let best = "**Best single-flow goodput: 22.0 Gb/s** (median of 3, range of 3: 21.0 to 24.0 Gb/s; the highest of 4 cells, chosen after measuring: expect a lower value when repeated)";
    assert!(text.contains(best), "{text}");
    assert!(text.contains("published 20.7 to 23.3 Gb/s (Two servers)"));
    // 26 / 21 = 1.238, 27.5 / 22 = 1.25, 28 / 24 = 1.167: the middle of their means is 1.223.
    assert!(
        text.contains("2 flows: 27.5 Gb/s (median of 3") && text.contains("; one flow: 22.0 Gb/s"),
        "{text}"
    );
    let pairs = "2 flows against 1 flow: no difference proven, +22.3 % (3 pairs, range of 3: +16.7 to +25 %)";
    assert!(text.contains(pairs), "{text}");
    // 40 MB = 38.1 MiB over 10 ms allow 32 Gb/s, the cards 40 x 8948 / 9038 = 39.6: 16 are half of what
    // could be. 39.6 Gb/s x 10 ms / 8 = 49.5 MB = 47.2 MiB.
    assert!(text.contains("Plateau of the window curve, of what window and link allow: 50 %**"), "{text}");
    assert!(text.contains("38.1 MiB is the smallest window within 5 % of the highest median, 16.0 Gb/s; the bandwidth-delay product of 39.6 Gb/s and 10.0 ms is 47.2 MiB"));
    // 21 / 20 = +5 %, 22 / 20 = +10 %, each for four senders once: shown, not claimed, no headline.
    let on_core = "Reader on the interrupt core against readers on other packages: no difference proven, +5 % (4 pairs, range of 4: +5 %)";
    assert!(text.contains(on_core), "{text}");
    assert!(
        text.contains("against readers on other packages: no difference proven, +10 % (4 pairs"),
        "{text}"
    );
    assert!(!text.contains("- **Reader on the interrupt core"), "no headline: {text}");
    assert!(text.contains("Read 21.0 Gb/s on the interrupt core (7), 22.0 Gb/s by other cores of its package, 20.0 Gb/s by other packages."), "{text}");
    // 29.05 Gb/s is the upper end of the slot: 27.5 / 29.05 = 94.7 %.
    assert!(text.contains("the best goodput, 27.5 Gb/s, is 94.7 % of its upper end"), "{text}");
}

/// Where no interface has a line rate the highest goodput is taken for the rate of the path.
#[test]
fn a_window_curve_without_a_line_rate_is_measured_against_itself() {
    let folder = tempfile::tempdir().unwrap();
    let machines = (hosts::virtual_machine("alpha"), hosts::virtual_machine("beta"));
    let text =
        markdown(&run::write(folder.path(), run::study("Two machines"), machines, run::round_numbers()))
            .unwrap();
    // 3.8 of 4 and 7.6 of 8 Gb/s; 16 Gb/s x 10 ms / 8 = 20 MB = 19.1 MiB; knee at 40 MB = 38.1 MiB.
    assert!(text.contains("Goodput as % of window/RTT (window-limited region): 95 %** (trials at 2 windows together: median of 2, range of 2: 95 %)"), "{text}");
    assert!(text.contains("38.1 MiB is the smallest window within 5 % of the highest median, 16.0 Gb/s; the bandwidth-delay product of 16.0 Gb/s and 10.0 ms is 19.1 MiB"));
}

/// A rate that this machine's delay line limited is no rate of the path.
#[test]
fn trials_that_the_delay_line_limited_are_counted_once() {
    use clearstream_schema::lab::{DELAY_LINE_LIMIT_NOTICE, DelayLineStats};
    let text = |limited: &[usize]| {
        let mut trials = run::round_numbers();
        for (number, trial) in trials.iter_mut().enumerate() {
            let relay_limited = limited.contains(&number);
            trial.delay_lines = vec![DelayLineStats { relay_limited, ..DelayLineStats::default() }; 2];
            if let (true, clearstream_schema::record::TrialOutcome::Measured(outcome)) =
                (relay_limited, &mut trial.outcome)
            {
                let message = format!("the delay line was the limit: figures of trial {number}");
                let id = DELAY_LINE_LIMIT_NOTICE.to_owned();
                outcome.notices.push(clearstream_schema::notice::Notice { id, message });
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let reader = run::write(folder.path(), run::study("Two servers"), servers(), trials);
        markdown(&reader).unwrap()
    };
    let line = "the delay line, not the path, was the limit";
    assert!(!text(&[]).contains(line));
    let count = run::round_numbers().len();
    let marked = text(&[0, 3]);
    assert!(marked.contains(&format!("In 2 of {count} trials {line}")), "{marked}");
    assert!(!marked.contains("figures of trial"), "not one line for each: {marked}");
}

#[test]
fn marks_are_at_the_positions_of_the_scales() {
    let folder = tempfile::tempdir().unwrap();
    let reader = run::write(folder.path(), run::study("Two servers"), servers(), run::round_numbers());
    let page = html(&reader).unwrap();
    let figure = page.split("<figure id=\"figure-flows-goodput\">").nth(1).unwrap();
    // Wide: 0 at the axis, 30 Gb/s at 890 - 70 = 820. The mark of the median (22) is 3.5 wide,
    // the published range starts at 20.7 less one unit of padding.
    let wide = figure.split("class=\"drawing narrow\"").next().unwrap();
    let left: f64 = attribute_before(wide, "class=\"median s0\"", "x");
    let axis: f64 = attribute_before(wide, "class=\"axis\"", "x1");
    let published: f64 = attribute_before(wide, "class=\"theirs-range\"", "x");
    let end = 820.0;
    assert!((left + 1.75 - (axis + 22.0 / 30.0 * (end - axis))).abs() < 0.02, "{left} {axis}");
    assert!((published + 1.0 - (axis + 20.7 / 30.0 * (end - axis))).abs() < 0.02, "{published}");
}

/// The number of the attribute nearest before a class.
fn attribute_before(text: &str, class: &str, name: &str) -> f64 {
    let head = &text[..text.find(class).unwrap()];
    let element = &head[head.rfind('<').unwrap()..];
    element.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
}

#[test]
fn hostile_text_is_text_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let (client, server) = servers();
    let hosts = (run::hostile_host(client, HOSTILE), run::hostile_host(server, HOSTILE));
    let reader = run::write(folder.path(), run::study(HOSTILE), hosts, run::hostile(HOSTILE));
    let page = html(&reader).unwrap();
    assert_eq!(page.matches("<script").count(), 1, "only our own script");
    assert_eq!(page.matches("<img").count(), 0);
    assert_eq!(page.matches("<style").count(), 1);
    assert!(!page.contains(" onload='x'") && !page.contains("\" onload="));
    assert!(page.contains("{{ 7*7 }}"), "text of a record is never a template");
    let text = markdown(&reader).unwrap();
    assert!(!text.contains("<script") && !text.contains("<img"));
    for line in csv(&reader).unwrap().split("\r\n") {
        assert!(!line.starts_with('=') && !line.contains(",="), "{line}");
    }
}

#[test]
fn a_full_record_has_every_figure_and_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape { repetitions: 3, matrices: vec![8], failing_trial: Some(5), ..Shape::default() };
    let reader =
        clearstream_40ge(folder.path(), &hosts::nehalem("dtn1"), &hosts::magny_cours("dtn2"), &shape)
            .unwrap();
    let page = html(&reader).unwrap();
    let text = markdown(&reader).unwrap();
    for id in FIGURES {
        assert!(page.contains(&format!("<figure id=\"{id}\">")), "{id} is missing");
    }
    // Wide and narrow, each named and described for screen readers.
    let figures = page.matches("<figure id=").count();
    assert_eq!(page.matches("<svg ").count(), 2 * figures);
    assert_eq!(page.matches("role=\"img\" aria-labelledby=").count(), 2 * figures);
    assert_eq!(page.matches("<desc id=").count(), 2 * figures);
    assert_eq!(page.matches("<details><summary>Data as a table").count(), figures);
    assert!(figures >= FIGURES.len());
    // Nothing from elsewhere: the only address in the page names SVG's vocabulary.
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    for mark in ["http:", "https:", "//cdn", "@import", "url(", "src=", "<link rel=\"stylesheet\""] {
        assert!(!elsewhere.contains(mark), "{mark}");
    }
    assert!(page.starts_with("<!doctype html>"), "{}", &page[..60]);
    assert!(page.contains("published knee 38.5 MiB"));
    for part in [
        "## Summary",
        "## Settings: requested and effective",
        "## Failed trials",
        "## Warnings",
        "## Provenance",
    ] {
        assert!(text.contains(part), "{part}");
    }
    for head in ["| Min, ms |", "Median, ms |", "| Jitter, ms |", "| sender 0, Gb/s |"] {
        assert!(text.contains(head), "a unit in every head: {head}");
    }
    // Contents: every section once.
    let contents = page.split("<nav class=\"toc\"").nth(1).unwrap().split("</nav>").next().unwrap();
    for section in page.split("<section id=\"").skip(2).map(|rest| rest.split('"').next().unwrap()) {
        assert_eq!(contents.matches(&format!("href=\"#{section}\"")).count(), 1, "{section}");
    }
    // Both axes of the window figure are logarithmic, and the ratio to the model is below.
    let window = page.split("<figure id=\"figure-window-window\">").nth(1).unwrap();
    let window = window.split("</figure>").next().unwrap();
    for axis in [">goodput, Gb/s (log scale)<", ">TCP window (log scale)<", ">of the model<"] {
        assert_eq!(window.matches(axis).count(), 2, "wide and narrow: {axis}");
    }
    assert!(window.contains("published knee 38.5 MiB") && !window.contains("BDP 40"), "one unit");
    // A phone has the values too.
    let goodput = page.split("<figure id=\"figure-local-throughput-goodput\">").nth(1).unwrap();
    let narrow = goodput.split("class=\"drawing narrow\"").nth(1).unwrap().split("</svg>").next().unwrap();
    assert_eq!(narrow.matches("class=\"value halo end\"").count(), 3, "one per row");
    assert!(text.contains("port 5001 is in use on the server"), "the failed trial");
    assert!(page.len() < 5_000_000, "{}", page.len());
}

/// Required contents of a run of the study.
const FIGURES: [&str; 10] = [
    "figure-local-throughput-goodput",
    "figure-local-throughput-time",
    "figure-local-throughput-cost",
    "figure-window-window",
    "figure-live-traffic-live",
    "figure-pin-matrix-matrix",
    "figure-pin-row-sending-row",
    "figure-host-client",
    "figure-host-server",
    "figure-pcie-both-hosts",
];

#[test]
fn csv_has_a_line_per_trial_with_units_in_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let reader = run::write(folder.path(), run::study("Two servers"), servers(), run::round_numbers());
    let text = csv(&reader).unwrap();
    let lines: Vec<&str> = text.trim_end().split("\r\n").collect();
    assert_eq!(lines.len(), 1 + run::round_numbers().len());
    let names: Vec<&str> = lines[0].split(',').collect();
    assert_eq!(
        names[..9],
        [
            "experiment",
            "trial",
            "cell",
            "repetition",
            "started",
            "level_flows",
            "level_receiver_cores",
            "level_sender_cores",
            "level_window"
        ]
    );
    let column = |name: &str| names.iter().position(|known| *known == name).unwrap();
    for line in &lines[1..] {
        assert_eq!(line.split(',').count(), names.len(), "{line}");
    }
    let second: Vec<&str> = lines[2].split(',').collect();
    assert_eq!(second[column("goodput_bps")], "22000000000");
    assert_eq!(second[column("outcome")], "flow");
    // Nothing was probed and nothing failed.
    for name in ["loss_ratio", "rtt_p50_ns", "failure", "stuck_count"] {
        assert!(!names.contains(&name), "{name} is empty in every line");
    }
}

#[test]
fn a_discarding_receiver_is_called_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut trials = run::round_numbers();
    let number = trials.len() as u32;
    trials.push(run::trial(
        number,
        "flows",
        9,
        &[("flows", 1.into())],
        run::flow(90.0, |s| {
            s.requested.receive = clearstream_schema::flow::ReceiveMethod::Discard;
        }),
    ));
    let reader = run::write(folder.path(), run::study("Two servers"), servers(), trials);
    let text = markdown(&reader).unwrap();
    assert!(text.contains("1 flow, discard"));
    assert!(text.contains("Best single-flow goodput: 22.0 Gb/s"), "never the headline: {text}");
    assert!(csv(&reader).unwrap().contains("discard"));
}

#[test]
fn a_lab_matrix_is_drawn_once_per_steering() {
    let folder = tempfile::tempdir().unwrap();
    let mut trials = Vec::new();
    for steering in 0..2u32 {
        for sender in 0..2u32 {
            for receiver in 0..2u32 {
                let number = trials.len() as u32;
                let gbps = if receiver == steering { 60.0 } else { 80.0 };
                let factors = [
                    ("receive-steering", steering.into()),
                    ("sender-cores", sender.into()),
                    ("receiver-cores", receiver.into()),
                ];
                trials.push(run::trial(
                    number,
                    "pins",
                    number,
                    &factors,
                    run::flow(gbps, |s| {
                        s.interrupt_core = Some(clearstream_schema::flow::InterruptCore {
                            core: steering,
                            softirq_share_percent: 90,
                            confirmed: None,
                        });
                    }),
                ));
            }
        }
    }
    let hosts = (hosts::virtual_machine("alpha"), hosts::virtual_machine("beta"));
    let reader = run::write(folder.path(), run::study("One machine"), hosts, trials);
    let page = html(&reader).unwrap();
    assert!(page.contains("id=\"figure-pins-matrix\"") && page.contains("id=\"figure-pins-matrix-2\""));
    let text = markdown(&reader).unwrap();
    let place = "Reader on the interrupt core against readers on other cores: no difference proven, \u{2212}25 % (4 pairs, range of 4: \u{2212}25 %)";
    assert!(text.contains(place), "{text}");
    assert!(text.contains("No PCIe staircase"), "{text}");
}

#[test]
fn captured_hosts_are_drawn_core_by_core() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
    for (name, cores, nodes) in [("nehalem", 8, 2), ("magny-cours-igb", 48, 8)] {
        let captured = clearstream_host::capture::open(&folder.join(format!("{name}.tar.gz"))).unwrap();
        let picture = clearstream_report::machine_svg(&clearstream_host::inspect(captured.root()));
        assert_eq!(picture.matches("data-tip=\"core ").count(), cores, "{name}");
        assert_eq!(picture.matches("data-tip=\"node ").count(), nodes * nodes, "{name}");
    }
}

#[test]
fn an_empty_record_is_reported_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let reader = run::write(folder.path(), run::study("Nothing yet"), servers(), Vec::new());
    let page = html(&reader).unwrap();
    assert!(page.contains("No trial of this experiment is in the record."));
    assert_eq!(csv(&reader).unwrap(), "experiment,trial,cell,repetition,started\r\n");
}
