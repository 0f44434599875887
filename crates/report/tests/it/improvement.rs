//! The page of a closed loop whose numbers are known.

use crate::common::hosts;
use crate::common::improvement;
use crate::common::improvement::{hostile, loop_of_five, nothing, runs};
use clearstream_report::{Made, improvement_html};
use clearstream_schema::improvement::{Improvement, LoopEnd, Runs, Verdict};

const HOSTILE: &str = "</title></style><script>alert(1)</script><img src=x onerror=alert(2)>\"' onload='x' {{ 7*7 }} </text></svg>";

/// Without the spaces that keep units on their line; the template writes a slash as its number.
fn page(found: &Improvement) -> String {
    improvement_html(found, None).unwrap().replace('\u{a0}', " ").replace("&#x2f;", "/")
}

/// Text between two texts, the first time.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split(from).nth(1).unwrap_or_else(|| panic!("{from}")).split(to).next().unwrap()
}

#[test]
fn the_head_agrees_with_a_computation_by_hand() {
    let page = page(&loop_of_five());
    // The middle ones of 2.8 .. 2.95 and of 17.4 .. 18.0.
    assert!(
        page.contains("<h1>dtn1 to dtn2: from 2.90 to 17.5 Gb/s</h1>"),
        "{}",
        between(&page, "<h1>", "</h1>")
    );
    assert!(page.contains("2 of 6 changes kept · nothing was left to try"));
    // 17.5 / 2.9 = 6.03; the interval of five values is their range: 17.4 / 2.95 = 5.90, 18.0 / 2.8 = 6.43.
    let cards = between(&page, "<div class=\"cards\">", "</div>");
    assert!(cards.contains("<strong>6.03 times</strong>"), "{cards}");
    let interval = between(cards, "ratio of the medians 6.03, range of 5 pairs ", ";");
    let (low, high) = interval.split_once(" to ").unwrap();
    let [low, high]: [f64; 2] = [low, high].map(|end| end.parse().unwrap());
    assert!((5.89..=6.03).contains(&low) && (6.03..=6.43).contains(&high), "{interval}");
    // All five pairs have the same sign: 2 of 2^5 = 32 signs, 0.0625.
    assert!(cards.contains("; p = 0.062"), "{cards}");
    assert!(page.contains("<h2 id=\"notices-title\">Warnings</h2>"), "as in a report");
    assert!(page.contains("Before and now come from 5 pairs of their own"));
    // Five tests: 2/252 is the least of them four times over, 2/252 x 5 / 4 = 0.00992.
    assert!(
        page.contains("5 changes were tested; the least sure of those kept has p = 0.008, and p = 0.010")
    );
    assert!(page.contains("17.8 Gb/s is what it can hand to the kernel"), "what limits now");
}

#[test]
fn every_verdict_stands_in_figure_table_and_text() {
    let page = page(&loop_of_five());
    let figure = between(&page, "<figure id=\"figure-steps\">", "</figure>");
    assert!(
        figure.contains("1 without proven gain, 1 worse, 1 at too high a cost and 1 failed."),
        "the finding"
    );
    for (mark, label, times) in [
        ("kept", "kept", 2),
        ("not-proven", "no proven gain", 1),
        ("worse", "worse", 1),
        ("side-effect", "cost too high", 1),
        ("failed", "failed", 1),
    ] {
        // Wide and narrow.
        assert_eq!(figure.matches(&format!("class=\"verdict {mark}\"")).count(), 2 * times, "{mark}");
        assert_eq!(figure.matches(&format!("<td>{label}</td>")).count(), times, "{label} in the table");
        let badge = format!("aria-hidden=\"true\"></span>{label}</span>");
        assert_eq!(page.matches(&badge).count(), times, "{label} change by change");
    }
    // A dot per run: five steps of five pairs and the pairs of the end, in two drawings.
    assert_eq!(figure.matches("class=\"dot hollow\"").count(), 2 * 30);
    assert_eq!(figure.matches("class=\"dot with s0\"").count(), 2 * 30);
    assert_eq!(figure.matches("class=\"median s7\"").count(), 2 * 6);
    assert!(page.contains(
        "p = 0.008, CPU seconds per GB rose from 0.270 to 0.550 for 23 % more goodput. Rolled back."
    ));
    assert!(page.contains(
        "Failed: eth2 at the server refuses an MTU of 9000: invalid argument. Nothing was changed."
    ));
}

#[test]
fn marks_are_at_the_positions_of_the_scale() {
    let page = page(&loop_of_five());
    let wide = between(&page, "<div class=\"drawing wide\"", "</svg>");
    // 0 at 72, the highest tick at 890 - 70 = 820. First step without: 2.9 Gb/s; bars are 3 wide.
    let ticks: Vec<f64> = wide
        .split("class=\"tick ")
        .skip(1)
        .filter_map(|rest| rest.split('>').nth(1)?.split('<').next()?.parse().ok())
        .collect();
    let highest = ticks.iter().copied().fold(0.0, f64::max);
    assert!(highest >= 22.4, "{ticks:?}");
    let bar = &wide[..wide.find("class=\"median s7\"").unwrap()];
    let x: f64 = between(&bar[bar.rfind('<').unwrap()..], " x=\"", "\"").parse().unwrap();
    assert!((x + 1.5 - (72.0 + 2.9 / highest * 748.0)).abs() < 0.02, "{x}");
}

#[test]
fn runs_and_changes_stand_in_full() {
    let page = page(&loop_of_five());
    let step = between(&page, "<article class=\"step\" id=\"step-1\"", "</article>");
    // First pair: goodput 2.80 and 12.1, CPU 0.31 and 0.33, retransmits 0 and 0.40, RTT 17.0 and 17.4 ms.
    let cells = ["2.80", "12.1", "0.31", "0.33", "0", "0.40", "17.0", "17.4"];
    let row: String = cells.iter().map(|cell| format!("<td class=\"num\">{cell}</td>")).collect();
    assert!(step.contains(&format!("<th scope=\"row\">1</th>{row}")), "{step}");
    assert!(step.contains("<th scope=\"row\">median</th>"));
    assert!(step.contains("the sender must hold a window of unacknowledged data too"), "a reason of its own");
    // Effective settings.
    let effective = between(&page, "<section id=\"effective\"", "</section>");
    assert!(
        effective.contains("<th scope=\"row\">receiver-cores</th><td>not given</td><td>4</td>"),
        "{effective}"
    );
    assert!(
        effective
            .contains("<td>4096 131072 6291456</td><td>4096 131072 169869312</td><td>for new sockets</td>")
    );
    assert!(!effective.contains("eth2") && !effective.contains("bbr"), "rejected changes are not effective");
    let newest = effective.find("clearstream plan revert 20260102T030406Z-77ff").unwrap();
    assert!(newest < effective.find("clearstream plan revert 20260102T030405Z-1a2b").unwrap());
    assert!(page.contains("CAP_SYS_ADMIN is missing"), "notices");
}

#[test]
fn the_last_of_several_changes_of_one_setting_is_effective() {
    let mut found = loop_of_five();
    let mut later = found.steps[0].clone();
    later.candidate.changes = vec![improvement::sysctl(
        clearstream_schema::diagnosis::End::Server,
        "net.ipv4.tcp_rmem",
        "4096 131072 169869312",
        "4096 131072 339738624",
        "twice the product",
    )];
    found.steps.push(later);
    let page = page(&found);
    let effective = between(&page, "<section id=\"effective\"", "</section>");
    assert!(effective.contains("<td>4096 131072 6291456</td><td>4096 131072 339738624</td>"), "{effective}");
    assert!(!effective.contains("169869312</td><td>for new sockets</td><td>the receiver"), "{effective}");
    assert_eq!(effective.matches("net.ipv4.tcp_rmem").count(), 1);
}

#[test]
fn a_loop_without_steps_is_reported_as_such() {
    let page = page(&nothing());
    assert!(page.contains("<h1>dtn1 to dtn2: nothing was tried</h1>"));
    assert!(page.contains("Nothing: no known setting removes this limit."));
    assert!(page.contains("there is nothing to restore") && page.contains("Not available."));
    assert!(!page.contains("<figure"));
    let page = improvement_html(&Improvement { end: LoopEnd::TimeOver, ..nothing() }, None).unwrap();
    assert!(page.contains("Nothing: the time was over") && !page.contains("worth a trial"));
}

#[test]
fn nothing_kept_is_never_called_a_gain() {
    let mut found = loop_of_five();
    found.steps.drain(..2);
    found.kept = found.requested.clone();
    found.journals.clear();
    found.before = found.steps[0].before.clone();
    found.after = found.steps[2].before.clone();
    let page = page(&found);
    assert!(page.contains("<h1>dtn1 to dtn2: nothing tried was better</h1>"));
    assert!(page.contains("None of 4 changes was kept"));
    let cards = between(&page, "<div class=\"cards\">", "</div>");
    assert!(cards.contains("drift") && !cards.contains(">Gain<"), "{cards}");
    // 13.2 to 22.4 Gb/s: below 0.6 of the highest, so the axis starts at zero.
    assert!(!page.contains("not at zero"));
    found.steps.truncate(1);
    let page = improvement_html(&found, None).unwrap();
    assert!(page.contains("not at zero"), "17.1 to 17.9 Gb/s are all far from it");
}

#[test]
fn a_stopped_loop_reports_that_its_ends_are_not_interleaved() {
    let mut found = loop_of_five();
    found.end = LoopEnd::Stopped;
    found.before = found.steps[0].before.clone();
    found.after = found.steps[1].after.clone();
    let page = page(&found);
    assert!(page.contains("made at different times") && page.contains("stopped by hand"));
    assert!(!page.contains("All kept changes, against the initial state"));
}

#[test]
fn odd_documents_give_a_page() {
    let mut found = loop_of_five();
    found.before = runs(&[0.0, 0.0, f64::NAN], 0.0, 0.0, None);
    found.after = Runs { goodput_bps: vec![1e9], ..Runs::default() };
    found.steps[0].before.cpu_seconds_per_gb.truncate(1);
    found.steps[0].after.rtt_ns.clear();
    found.steps[1].gain_ratio = Some(f64::INFINITY);
    found.steps[2].probability_ratio = None;
    found.steps[3].verdict = Verdict::Kept;
    found.steps[4].before = Runs::default();
    for _ in 0..60 {
        found.steps.push(found.steps[2].clone());
    }
    let page = page(&found);
    assert!(!page.contains("NaN") && !page.contains("inf "), "no such numbers");
    assert!(page.contains("Drawn are the first 30 changes"));
    assert_eq!(page.matches("<article class=\"step\"").count(), 66);
}

#[test]
fn hostile_text_is_text_and_nothing_is_loaded() {
    let page = page(&hostile(HOSTILE));
    assert_eq!(page.matches("<script").count(), 1, "only our own script");
    assert_eq!(page.matches("<img").count(), 0);
    assert_eq!(page.matches("<style").count(), 1);
    assert_eq!(page.matches("<svg ").count(), 2);
    assert_eq!(page.matches("</svg>").count(), 2);
    assert!(!page.contains(" onload='x'") && !page.contains("\" onload="));
    assert!(page.contains("{{ 7*7 }}"), "text of a document is never a template");
    assert!(
        page.contains("clearstream plan revert &#x27;") || page.contains("clearstream plan revert &#39;"),
        "a hostile journal is quoted for the shell"
    );
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    for mark in ["http:", "https:", "//cdn", "@import", "url(", "<link rel=\"stylesheet\""] {
        assert!(!elsewhere.contains(mark), "{mark}");
    }
    assert!(page.starts_with("<!doctype html>"), "{}", &page[..60]);
    // Wide and narrow, each named and described for screen readers.
    assert_eq!(page.matches("role=\"img\" aria-labelledby=").count(), 2);
    assert_eq!(page.matches("<desc id=").count(), 2);
}

/// Cost of the gain, measurements where nothing was tried, and provenance.
#[test]
fn cost_next_step_and_provenance_are_on_the_page() {
    let mut found = loop_of_five();
    found.before = runs(&[2.8, 2.9, 2.85], 0.31, 0.0, Some(18.0));
    found.after = runs(&[17.6, 17.4, 18.0], 0.27, 1.5, Some(47.0));
    let text = page(&found);
    // 47 / 18 = 2.61; CPU time fell.
    let cost = "The gain was paid for: the round-trip time from 18.0 ms to 47.0 ms (2.61 times) and retransmissions from 0 to 1.50 per GB rose (medians before and now).";
    assert!(text.contains(cost), "{}", between(&text, "Cost", "Changes tried"));
    assert!(text.contains("5 pairs per change"), "the rule");
    assert!(text.contains("do not matter; seed 1"));
    found.after = runs(&[17.6, 17.4, 18.0], 0.27, 0.0, Some(18.1));
    assert!(page(&found).contains("No other measured quantity"));

    let mut empty = nothing();
    empty.end = LoopEnd::LimitUnknown;
    empty.observed_bps = Some(9.4e9);
    empty.next_step = Some("repeat with a longer run on an idle host".to_owned());
    let made = Made {
        started: "2026-01-02T03:04:05Z".to_owned(),
        program_version: "9.9.9".to_owned(),
        hosts: vec![
            ("Client".to_owned(), hosts::nehalem("dtn1")),
            ("Server".to_owned(), hosts::nehalem("dtn2")),
        ],
        ..Made::default()
    };
    let text = improvement_html(&empty, Some(&made)).unwrap().replace('\u{a0}', " ").replace("&#x2f;", "/");
    for part in [
        "<strong>9.40 Gb/s</strong>",
        "Next step:</b> repeat with a longer run on an idle host",
        "bottleneck not identified, so nothing was tried",
        "2026-01-02T03:04:05Z",
        "clearstream 9.9.9",
        "dtn2, Intel(R) Xeon(R) CPU E5620 @ 2.40GHz, Linux 6.12.0",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(!text.contains("would help"), "what is not known is not claimed");
    empty.end = LoopEnd::Contended;
    let text = page(&empty);
    assert!(text.contains("other processes held the cores in every diagnosis, so nothing was tried"));
    assert!(!text.contains("bottleneck not identified"));
}

/// A loop in a lab or over loopback is labelled so in title and band.
#[test]
fn a_loop_that_crossed_no_network_is_labelled_in_title_and_band() {
    let page = |made: &Made| {
        let page = improvement_html(&loop_of_five(), Some(made)).unwrap();
        page.replace('\u{a0}', " ").replace("&#x2f;", "/")
    };
    let heading = |page: &str| between(page, "<h1>", "</h1>").to_owned();
    let band = |page: &str| between(page, "class=\"band\"", "</p>").to_owned();
    let lab = page(&Made { lab: Some("wan-1650km".to_owned()), ..Made::default() });
    assert!(heading(&lab).ends_with(" \u{2013} in a lab on one machine"), "{}", heading(&lab));
    assert!(
        band(&lab).contains("in the lab wan-1650km")
            && band(&lab).contains("no packet crossed an Ethernet card")
    );
    let loopback = page(&Made { one_machine: true, ..Made::default() });
    assert!(heading(&loopback).ends_with(" \u{2013} on one machine"), "{}", heading(&loopback));
    assert!(band(&loopback).contains("both ends on dtn2, over its loopback"), "{}", band(&loopback));
    let real = page(&Made::default());
    assert!(!real.contains("class=\"band\"") && !heading(&real).contains("one machine"));
}
