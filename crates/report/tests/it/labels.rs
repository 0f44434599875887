//! Labels in a real browser: none over another, none struck through by a line or
//! covered by a bar, in the window of a desktop and in that of a phone; what is
//! printed; values by keyboard.

use crate::common::hosts;
use crate::common::improvement;
use crate::common::run;
use std::{collections::BTreeMap, path::Path};

use crate::common::chromium::{both_widths, evaluated};
use clearstream_record::{
    Reader,
    synthetic::{Shape, clearstream_40ge},
};
use clearstream_report::{history_html, html, improvement_html, machine_svg};
use clearstream_schema::{
    ByteCount,
    outcome::{Metric, Outcome, Unit},
    record::TrialOutcome,
};
use serde_json::{Value, json};

/// Every text of every drawing that is shown against every other text, line, bar and curve. Boxes
/// are less than the type: a fifth of its height above and below has no ink. Grid lines may
/// pass behind a text with a halo, which covers them.
const STRUCK: &str = r#"
var problems = [];
function box(e) {
  var r = e.getBoundingClientRect(), h = r.height / 5;
  return { left: r.left + 1, right: r.right - 1, top: r.top + h, bottom: r.bottom - h };
}
function meets(a, b) { return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom; }
function has(b, x, y) { return x > b.left && x < b.right && y > b.top && y < b.bottom; }
function points(shape, count) {
  var m = shape.getScreenCTM(), length = shape.getTotalLength(), all = [];
  for (var i = 0; i <= count; i++) {
    var p = shape.getPointAtLength(length * i / count);
    all.push([m.a * p.x + m.c * p.y + m.e, m.b * p.x + m.d * p.y + m.f]);
  }
  return all;
}
function kind(e, name) { return e.classList.contains(name); }
[].forEach.call(inside.querySelectorAll('figure svg'), function (svg) {
  var outer = svg.getBoundingClientRect();
  if (outer.width === 0) { return; }
  var where = svg.querySelector('title').textContent;
  var texts = [].filter.call(svg.querySelectorAll('text'), function (t) { return t.textContent.trim(); });
  var boxes = texts.map(box);
  function report(i, what) { problems.push(where + ': "' + texts[i].textContent + '" ' + what); }
  boxes.forEach(function (b, i) {
    if (b.right > outer.right + 2 || b.left < outer.left - 2) { report(i, 'leaves the drawing'); }
    for (var j = i + 1; j < boxes.length; j++) {
      if (meets(b, boxes[j])) { report(i, 'meets "' + texts[j].textContent + '"'); }
    }
  });
  // Points along a shape are checked only where its own box meets that of a text.
  function near(shape) {
    var r = shape.getBoundingClientRect();
    var wide = { left: r.left - 1, right: r.right + 1, top: r.top - 1, bottom: r.bottom + 1 };
    return boxes.map(function (b, i) { return i; }).filter(function (i) { return meets(boxes[i], wide); });
  }
  [].forEach.call(svg.querySelectorAll('line'), function (line) {
    var close = near(line);
    if (!close.length) { return; }
    var all = points(line, 200), behind = kind(line, 'grid') || kind(line, 'axis');
    close.forEach(function (i) {
      var b = boxes[i];
      if (behind && kind(texts[i], 'halo')) { return; }
      if (all.some(function (p) { return has(b, p[0], p[1]); })) { report(i, 'is struck through by ' + line.getAttribute('class')); }
    });
  });
  [].forEach.call(svg.querySelectorAll('path.line, path.model'), function (path) {
    var close = kind(path, 'faint') ? [] : near(path);
    if (!close.length) { return; }
    var all = points(path, 400);
    close.forEach(function (i) {
      var b = boxes[i];
      if (all.some(function (p) { return has(b, p[0], p[1]); })) { report(i, 'is struck through by a curve'); }
    });
  });
  [].forEach.call(svg.querySelectorAll('rect.bar'), function (bar) {
    var r = bar.getBoundingClientRect();
    boxes.forEach(function (b, i) { if (meets(b, r)) { report(i, 'lies over a bar'); } });
  });
});
return problems.slice(0, 20).join('\n');
"#;

/// The page as the printer gets it: rules for print on, those for screens off.
const PRINTED: &str = r#"
[].forEach.call(inside.styleSheets, function (sheet) {
  [].forEach.call(sheet.cssRules, function (rule) {
    if (!rule.media) { return; }
    if (/print/.test(rule.media.mediaText)) { rule.media.mediaText = 'all'; }
    else if (/screen|max-width/.test(rule.media.mediaText)) { rule.media.mediaText = 'not all'; }
  });
});
var width = inside.documentElement.clientWidth, problems = [];
[].forEach.call(inside.querySelectorAll('figure'), function (figure) {
  var table = figure.querySelector('.data table').getBoundingClientRect();
  if (table.height < 20) { problems.push(figure.id + ': its table is not printed'); }
  if (table.right > width + 1) { problems.push(figure.id + ': its table reaches to ' + table.right + ' of ' + width); }
  if (figure.querySelector('.wide svg').getBoundingClientRect().width < 300) { problems.push(figure.id + ': no drawing'); }
  if (inside.defaultView.getComputedStyle(figure).breakInside !== 'auto') { problems.push(figure.id + ': cannot flow over a page'); }
});
return problems.join('\n');
"#;

const WALKED: &str = r#"
var drawing = [].filter.call(inside.querySelectorAll('.drawing'), function (d) { return d.getBoundingClientRect().width > 0; })[0];
function press(key) {
  drawing.dispatchEvent(new inside.defaultView.KeyboardEvent('keydown', { key: key, bubbles: true, cancelable: true }));
  return inside.querySelector('[role=status]').textContent;
}
var marks = drawing.querySelectorAll('[data-tip]');
var spoken = [press('ArrowRight'), press('ArrowRight'), press('ArrowLeft'), press('ArrowLeft')];
var wanted = [marks[0], marks[1 % marks.length], marks[0], marks[marks.length - 1]].map(function (m) { return m.getAttribute('data-tip'); });
var shown = inside.querySelector('.tip.shown');
return JSON.stringify(spoken) === JSON.stringify(wanted) && shown && shown.textContent === spoken[3] ? 'walked' : JSON.stringify([spoken, wanted]);
"#;

fn report(folder: &Path, matrices: Vec<u32>) -> String {
    // A large matrix has thousands of cells: one short trial of each is enough.
    let (repetitions, seconds) = if matrices.contains(&48) { (1, 3) } else { (3, 12) };
    let shape = Shape { repetitions, seconds, matrices, failing_trial: Some(5), ..Shape::default() };
    let run = folder.join("run");
    let reader =
        clearstream_40ge(&run, &hosts::nehalem("dtn1"), &hosts::magny_cours("dtn2"), &shape).unwrap();
    html(&reader).unwrap()
}

#[test]
fn browser_shows_no_label_over_a_mark_on_desktop_and_phone() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(folder.path(), vec![8]);
    assert_eq!(evaluated(&both_widths(&page), folder.path(), STRUCK), ["", ""]);
}

#[test]
fn browser_shows_no_label_over_a_mark_of_histories_and_loops() {
    let folder = tempfile::tempdir().unwrap();
    let readers: Vec<_> = [40, 41, 42]
        .map(|seed| {
            let shape = Shape { seed, seconds: 3, matrices: vec![], ..Shape::default() };
            let run = folder.path().join(seed.to_string());
            clearstream_40ge(&run, &hosts::nehalem("dtn1"), &hosts::nehalem("dtn2"), &shape).unwrap()
        })
        .into();
    let pages =
        [history_html(&readers).unwrap(), improvement_html(&improvement::loop_of_five(), None).unwrap()];
    let windows: Vec<_> = pages.iter().flat_map(|page| both_widths(page)).collect();
    assert_eq!(evaluated(&windows, folder.path(), STRUCK), [""; 4]);
}

/// Latency and bandwidth by message size and method, and RDMA operations side by side.
fn metrics(folder: &Path) -> Reader {
    let experiment = |name: &str, workload: &str, figure: &str, metric: &str| json!({ "name": name, "title": name, "workload": workload, "figure": figure, "metric": metric });
    let study = serde_json::from_value(json!({
        "schema": "clearstream.study", "version": 1, "name": "by-hand", "title": "Metrics",
        "experiment": [
            experiment("sizes", "message", "curve", "latency"),
            experiment("operations", "rdma", "bars", "bandwidth"),
        ],
    }));
    let mut trials = Vec::new();
    let mut add = |name: &str, factors: &[(&str, Value)], metric: Metric| {
        let number = u32::try_from(trials.len()).unwrap();
        let outcome = Outcome { metrics: vec![metric], ..Outcome::default() };
        trials.push(run::trial(number, name, number, factors, TrialOutcome::Measured(Box::new(outcome))));
    };
    for (method, base) in [("blocking", 9_000.0), ("busy-poll", 4_000.0), ("io-uring", 11_000.0)] {
        for power in 0..11 {
            let size = 1u64 << (2 * power);
            let latency = Metric::lower("latency", Unit::Nanoseconds, base + size as f64 / 2.0);
            add("sizes", &[("size", json!(format!("{size}B"))), ("method", json!(method))], latency);
        }
    }
    for (operation, gbps) in [("send", 11.0), ("write", 12.5), ("read", 0.09)] {
        for inline in [true, false] {
            let bandwidth = Metric::higher("bandwidth", Unit::BitsPerSecond, gbps * 1e9);
            add("operations", &[("operation", json!(operation)), ("inline", json!(inline))], bandwidth);
        }
    }
    run::write(folder, study.unwrap(), (hosts::nehalem("dtn1"), hosts::nehalem("dtn2")), trials)
}

/// A window curve that ends below its model.
fn short_plateau(folder: &Path) -> Reader {
    let windows = [(1u64, 0.49), (8, 3.9), (32, 10.3), (64, 10.6), (128, 10.4)];
    let trials = (0..).zip(windows).map(|(number, (mebibytes, gbps))| {
        let outcome = run::flow(gbps, |summary| {
            summary.requested.window = Some(ByteCount(mebibytes << 20));
            summary.min_rtt_ns = Some(17_000_000);
        });
        run::trial(number, "window", number, &[("window", json!(format!("{mebibytes}MiB")))], outcome)
    });
    let servers = (hosts::nehalem("dtn1"), hosts::nehalem("dtn2"));
    run::write(folder, run::study("Over 1650 km"), servers, trials.collect())
}

#[test]
fn browser_shows_no_label_over_a_mark_of_other_workloads() {
    let folder = tempfile::tempdir().unwrap();
    let gateways = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records/native-client");
    let readers = [
        metrics(&folder.path().join("metrics")),
        short_plateau(&folder.path().join("short")),
        Reader::open(&gateways).unwrap(),
    ];
    let pages = readers.map(|reader| html(&reader).unwrap());
    assert!(pages.iter().all(|page| page.contains("<figure id=")));
    let windows: Vec<_> = pages.iter().flat_map(|page| both_widths(page)).collect();
    assert_eq!(evaluated(&windows, folder.path(), STRUCK), [""; 6]);
}

/// `inspect --svg` is a drawing by itself, shown at its own width.
#[test]
fn browser_shows_no_label_over_a_mark_of_a_host() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = [hosts::virtual_machine("vm"), hosts::nehalem("dtn1"), hosts::magny_cours("dtn2")];
    let pages = drawn.map(|host| {
        format!("<!doctype html><html><body><figure>{}</figure></body></html>", machine_svg(&host))
    });
    let windows: Vec<_> = pages.iter().map(|page| (page.as_str(), 1440)).collect();
    assert_eq!(evaluated(&windows, folder.path(), STRUCK), [""; 3]);
}

#[test]
fn browser_prints_the_tables_behind_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(folder.path(), vec![8, 48]);
    // A4 less the margins of the page, in the 96ths of an inch that CSS calls pixels.
    assert_eq!(evaluated(&[(&page, 687)], folder.path(), PRINTED), [""]);
}

#[test]
fn browser_reads_values_by_keyboard() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(folder.path(), vec![8]);
    assert_eq!(evaluated(&both_widths(&page), folder.path(), WALKED), ["walked", "walked"]);
}

/// One colour, one meaning on a page; the first of the palette is that of our trials.
#[test]
fn no_colour_has_two_meanings() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(folder.path(), vec![8]);
    let mut meanings: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for item in page.split("<span class=\"swatch ").skip(1) {
        let (classes, rest) = item.split_once('"').unwrap();
        let label = rest.split("</span>").nth(1).unwrap().split("</li>").next().unwrap();
        let is_colour = |class: &&str| {
            class.len() == 2
                && class.starts_with(['s', 'k', 't'])
                && class.ends_with(|c: char| c.is_ascii_digit())
        };
        // A further interface has the colour of its direction and another stroke.
        let label = label.rsplit(' ').next().filter(|last| ["in", "out"].contains(last)).unwrap_or(label);
        for class in classes.split(' ').filter(is_colour).filter(|class| *class != "s0") {
            let known = meanings.entry(class.to_owned()).or_default();
            if !known.contains(&label.to_owned()) {
                known.push(label.to_owned());
            }
        }
    }
    assert!(meanings.len() >= 6, "{meanings:?}");
    assert!(meanings.values().all(|labels| labels.len() == 1), "{meanings:?}");
}
