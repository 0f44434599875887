//! Labels in a real browser: none over another, none struck through by a line or
//! covered by a bar, in the window of a desktop and in that of a phone; what is
//! printed; values by keyboard.
#![allow(clippy::unwrap_used)]

#[path = "common/chromium.rs"]
mod chromium;
#[path = "common/hosts.rs"]
mod hosts;
#[path = "common/improvement.rs"]
mod improvement;

use std::{collections::BTreeMap, path::Path};

use chromium::asked;
use clearstream_record::synthetic::{Shape, clearstream_40ge};
use clearstream_report::{history_html, html, improvement_html};

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
  function say(i, what) { problems.push(where + ': "' + texts[i].textContent + '" ' + what); }
  boxes.forEach(function (b, i) {
    if (b.right > outer.right + 2 || b.left < outer.left - 2) { say(i, 'leaves the drawing'); }
    for (var j = i + 1; j < boxes.length; j++) {
      if (meets(b, boxes[j])) { say(i, 'meets "' + texts[j].textContent + '"'); }
    }
  });
  // Points along a shape are looked at only where its own box meets that of a text.
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
      if (all.some(function (p) { return has(b, p[0], p[1]); })) { say(i, 'is struck through by ' + line.getAttribute('class')); }
    });
  });
  [].forEach.call(svg.querySelectorAll('path.line, path.model'), function (path) {
    var close = kind(path, 'faint') ? [] : near(path);
    if (!close.length) { return; }
    var all = points(path, 400);
    close.forEach(function (i) {
      var b = boxes[i];
      if (all.some(function (p) { return has(b, p[0], p[1]); })) { say(i, 'is struck through by a curve'); }
    });
  });
  [].forEach.call(svg.querySelectorAll('rect.bar'), function (bar) {
    var r = bar.getBoundingClientRect();
    boxes.forEach(function (b, i) { if (meets(b, r)) { say(i, 'lies over a bar'); } });
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
var said = [press('ArrowRight'), press('ArrowRight'), press('ArrowLeft'), press('ArrowLeft')];
var wanted = [marks[0], marks[1 % marks.length], marks[0], marks[marks.length - 1]].map(function (m) { return m.getAttribute('data-tip'); });
var shown = inside.querySelector('.tip.shown');
return JSON.stringify(said) === JSON.stringify(wanted) && shown && shown.textContent === said[3] ? 'walked' : JSON.stringify([said, wanted]);
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
    for width in [1440, 390] {
        assert_eq!(asked(&page, width, folder.path(), STRUCK), "", "at {width} px");
    }
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
    for (page, width) in pages.iter().flat_map(|page| [(page, 1440), (page, 390)]) {
        assert_eq!(asked(page, width, folder.path(), STRUCK), "", "at {width} px");
    }
}

#[test]
fn browser_prints_the_tables_behind_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(folder.path(), vec![8, 48]);
    // A4 less the margins of the page, in the 96ths of an inch that CSS calls pixels.
    assert_eq!(asked(&page, 687, folder.path(), PRINTED), "");
}

#[test]
fn browser_reads_values_by_keyboard() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(folder.path(), vec![8]);
    for width in [1440, 390] {
        assert_eq!(asked(&page, width, folder.path(), WALKED), "walked");
    }
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
