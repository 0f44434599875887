//! The page in a real browser. `make test` installs chromium; without it these
//! tests fail, because a page that was not loaded may not load.

use crate::common::hosts;
use crate::common::improvement;
use std::{fs, path::Path};

use crate::common::chromium::{console, load};
use clearstream_record::synthetic::{Shape, clearstream_40ge};
use clearstream_report::{html, improvement_html, machine_svg};

fn report(folder: &Path) -> String {
    let shape =
        Shape { repetitions: 3, seconds: 12, matrices: vec![8], failing_trial: Some(5), ..Shape::default() };
    let run = folder.join("run");
    let reader =
        clearstream_40ge(&run, &hosts::nehalem("dtn1"), &hosts::magny_cours("dtn2"), &shape).unwrap();
    html(&reader).unwrap()
}

#[test]
fn browser_loads_the_report_without_an_error_and_finds_every_figure() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(folder.path());
    let file = folder.path().join("report.html");
    fs::write(&file, &page).unwrap();
    let ids: Vec<&str> =
        page.split("<figure id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(ids.len() >= 10, "{ids:?}");
    for scheme in ["light", "dark"] {
        let loaded = load(&file, scheme);
        assert_eq!(console(&loaded.log), Vec::<&str>::new(), "{scheme}");
        for id in &ids {
            assert!(loaded.document.contains(&format!("<figure id=\"{id}\"")), "{id} in {scheme}");
        }
        // The script ran: its hash in the page's policy is right.
        assert!(loaded.document.contains("class=\"tip\""), "the script did not run: {}", loaded.log);
    }
}

/// Width of the page, drawings shown and their right end, in a window of a width with all tables open.
fn widths(page: &str, width: u32, folder: &Path) -> Vec<usize> {
    let inner = page.replace('&', "&amp;").replace('"', "&quot;");
    // The page in a frame as wide as the window; the frame's owner may query how wide
    // its content became.
    let owner = format!(
        "<!doctype html><html><head><meta charset=\"utf-8\"></head><body><iframe id=\"phone\" width=\"{width}\" height=\"844\" style=\"border:0\" srcdoc=\"{inner}\"></iframe>\
         <script>document.getElementById('phone').addEventListener('load', function () {{\
           var inside = this.contentDocument;\
           inside.querySelectorAll('details').forEach(function (d) {{ d.open = true; }});\
           var shown = [].filter.call(inside.querySelectorAll('figure svg'), function (s) {{ return s.getBoundingClientRect().width > 0; }});\
           var widest = Math.max.apply(null, shown.map(function (s) {{ return s.getBoundingClientRect().right; }}));\
           var texts = [].concat.apply([], shown.map(function (s) {{ return [].slice.call(s.querySelectorAll('text')); }}));\
           var outside = texts.filter(function (t) {{ return t.getBoundingClientRect().right > t.ownerSVGElement.getBoundingClientRect().right + 1; }});\
           document.body.setAttribute('data-result', [inside.documentElement.scrollWidth, shown.length, Math.ceil(widest), outside.length].join(' '));\
         }});</script></body></html>"
    );
    let file = folder.join(format!("window-{width}.html"));
    fs::write(&file, owner).unwrap();
    let loaded = load(&file, "light");
    let result = loaded.document.split("data-result=\"").nth(1).expect("the frame loaded");
    result.split('"').next().unwrap().split(' ').map(|n| n.parse().unwrap()).collect()
}

#[test]
fn browser_shows_the_page_on_a_phone_without_sideways_scrolling() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(folder.path());
    let numbers = widths(&page, 390, folder.path());
    let figures = page.matches("<figure id=").count();
    assert!(numbers[0] <= 390, "the page is {} wide", numbers[0]);
    assert_eq!(numbers[1], figures, "one drawing of each figure is shown");
    assert!(numbers[2] <= 390, "a drawing reaches to {}", numbers[2]);
}

#[test]
fn browser_shows_what_a_loop_tried_on_a_desktop_and_on_a_phone() {
    let folder = tempfile::tempdir().unwrap();
    let page = improvement_html(&improvement::loop_of_five(), None).unwrap();
    let file = folder.path().join("improvement.html");
    fs::write(&file, &page).unwrap();
    for scheme in ["light", "dark"] {
        let loaded = load(&file, scheme);
        assert_eq!(console(&loaded.log), Vec::<&str>::new(), "{scheme}");
        assert!(loaded.document.contains("class=\"tip\""), "the script did not run: {}", loaded.log);
    }
    for width in [390, 1200] {
        let numbers = widths(&page, width, folder.path());
        assert!(numbers[0] <= width as usize, "the page is {} wide in {width}", numbers[0]);
        assert_eq!(numbers[1], 1, "the drawing for this width alone");
        assert!(numbers[2] <= width as usize, "the drawing reaches to {} in {width}", numbers[2]);
        assert_eq!(numbers[3], 0, "texts that leave the drawing in {width}");
    }
    // Text of others does not break out of its place in a real browser either.
    let hostile =
        improvement_html(&improvement::hostile("</text></svg><script>document.title = 1</script>"), None)
            .unwrap();
    fs::write(&file, hostile).unwrap();
    let loaded = load(&file, "light");
    assert_eq!(console(&loaded.log), Vec::<&str>::new());
    assert_eq!(loaded.document.matches("<script").count(), 1);
}

#[test]
fn browser_reads_the_picture_of_a_machine() {
    let folder = tempfile::tempdir().unwrap();
    for host in [hosts::virtual_machine("vm"), hosts::nehalem("dtn1"), hosts::magny_cours("dtn2")] {
        let file = folder.path().join("machine.svg");
        fs::write(&file, machine_svg(&host)).unwrap();
        let loaded = load(&file, "dark");
        assert_eq!(console(&loaded.log), Vec::<&str>::new());
        assert!(!loaded.document.contains("parsererror"), "{}: not well-formed", host.name);
        assert_eq!(
            loaded.document.matches("data-tip=\"core ").count(),
            host.processing_units.len(),
            "{}",
            host.name
        );
    }
}
