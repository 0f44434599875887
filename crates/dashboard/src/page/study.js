// Follows a study: progress, and its report so far. All text of events is untrusted: it becomes text nodes, never markup.
"use strict";

const LISTED = 200;     // trials; the report has all of them
const find = id => document.getElementById(id);
const report = find("report");
let wanted = 0, shown = 0, loading = false;

// The next report is loaded beside the one that is shown, so that nothing blinks and the place on the page stays.
function load() {
  if (loading || wanted === shown) return;
  const version = wanted, frame = element("iframe");
  loading = true;
  frame.title = "report so far";
  frame.className = "loading";
  frame.addEventListener("load", () => {
    const height = () => {
      const page = frame.contentDocument && frame.contentDocument.documentElement;
      if (page) frame.style.height = page.scrollHeight + "px";
    };
    height();
    new ResizeObserver(height).observe(report);
    for (const old of [...report.children]) if (old !== frame) old.remove();
    frame.className = "";
    loading = false;
    shown = version;
    load();
  });
  frame.src = "report?token=" + document.body.dataset.token + "&version=" + version;
  report.append(frame);
}

const time = seconds => seconds >= 5400 ? (seconds / 3600).toFixed(1) + " h"
  : seconds >= 90 ? Math.round(seconds / 60) + " min" : Math.round(seconds) + " s";

follow({
  progress: progress => {
    const done = progress.done_count + progress.skipped_count;
    find("bar").max = Math.max(1, progress.planned_count);
    find("bar").value = done;
    const failed = progress.failed_count ? ", " + progress.failed_count + " failed" : "";
    const skipped = progress.skipped_count ? ", " + progress.skipped_count + " skipped" : "";
    find("counts").textContent = progress.done_count + " of " + progress.planned_count + " trials" + failed + skipped
      + "; time left " + time(progress.left_ns / 1e9);
    find("counts").className = progress.failed_count ? "bad" : "";
    find("cell").textContent = progress.cell || "";
  },
  value: value => { find("cell").textContent = value.cell + "  " + value.text; },
  trial: trial => {
    const list = find("trials");
    list.prepend(element("li", trial.cell + ": " + trial.text, trial.failed ? "bad" : ""));
    if (list.children.length > LISTED) list.lastElementChild.remove();
  },
  notice: notice => { find("notices").append(element("li", notice.message)); },
  report: found => { wanted = found.version; load(); },
  finished: finished => {
    find("counts").textContent = finished.text;
    find("cell").textContent = "";
    find("progress").classList.add("over");
  },
});
