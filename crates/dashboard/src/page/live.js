// Draws samples as they come. All text of events is untrusted: it becomes text nodes, never markup.
"use strict";

const KEPT = 3600;      // samples of each interface: an hour of seconds
const POINTS = 400;     // of a drawn line; a bucket's highest value stands for it
const SVG = "http://www.w3.org/2000/svg";
const MODES = [["user", "user"], ["system", "system"], ["softirq", "softirq"], ["irq", "interrupt"], ["steal", "stolen"]];
const hosts = new Map();
let shownSeconds = 60, paused = false, drawing = false;

const vector = (name, attributes) => {
  const made = document.createElementNS(SVG, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  return made;
};
const scaled = (value, units, step) => {
  let place = 0;
  while (value >= step && place < units.length - 1) { value /= step; place += 1; }
  return (value >= 100 || value === 0 ? value.toFixed(0) : value.toPrecision(3)) + " " + units[place];
};
const rate = bps => scaled(bps, ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"], 1000);
const bytes = count => scaled(count, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const time = ns => scaled(ns, ["ns", "us", "ms", "s"], 1000);

class Curve {
  constructor() {
    this.times = new Float64Array(KEPT); this.received = new Float32Array(KEPT); this.sent = new Float32Array(KEPT);
    this.count = 0;
  }
  add(seconds, received, sent) {
    const place = this.count % KEPT;
    this.times[place] = seconds; this.received[place] = received; this.sent[place] = sent;
    this.count += 1;
  }
  // Points since a time: the highest value of each of POINTS buckets, and where samples are missing.
  points(values, from, to, interval) {
    const first = Math.max(0, this.count - KEPT), width = (to - from) / POINTS, found = [];
    let bucket = -1, before = null;
    const gaps = [];
    for (let number = first; number < this.count; number += 1) {
      const place = number % KEPT, at = this.times[place];
      if (at < from) { before = at; continue; }
      if (before !== null && at - before > 3 * interval) gaps.push([Math.max(before, from), at]);
      before = at;
      const own = Math.floor((at - from) / width);
      if (own === bucket) { found[found.length - 1][1] = Math.max(found[found.length - 1][1], values[place]); }
      else { found.push([at, values[place]]); bucket = own; }
    }
    return { found, gaps };
  }
}

class Host {
  constructor(name) {
    this.name = name; this.curves = new Map(); this.sample = null; this.at = 0; this.lost = null;
    this.section = element("section");
    this.section.setAttribute("aria-label", name);
    this.heading = element("h2", name);
    this.note = element("span", "", "bad");
    this.grid = element("div", undefined, "grid");
    this.panels = new Map();
    const title = element("div");
    title.append(this.heading, this.note);
    this.section.append(title, this.grid);
    document.getElementById("hosts").append(this.section);
  }
  add(sample) {
    this.sample = sample; this.at = Date.parse(sample.time) / 1000; this.lost = null; this.heard = Date.now();
    const seconds = sample.interval_ns / 1e9;
    for (const one of sample.counters.interfaces) {
      if (!this.curves.has(one.name)) {
        if (one.receive_bytes + one.send_bytes === 0) continue;
        this.curves.set(one.name, new Curve());
      }
      this.curves.get(one.name).add(this.at, one.receive_bytes * 8 / seconds, one.send_bytes * 8 / seconds);
    }
  }
  panel(key, title, kind) {
    if (!this.panels.has(key)) {
      const made = element("div", undefined, "panel " + (kind || ""));
      const body = element("div");
      made.append(element("h3", title), body);
      this.grid.append(made);
      this.panels.set(key, body);
    }
    return this.panels.get(key);
  }
  draw() {
    const sample = this.sample;
    const silent = this.heard ? (Date.now() - this.heard) / 1000 : 0;
    this.note.textContent = this.lost ? this.lost
      : silent > 5 && !paused ? "no samples for " + silent.toFixed(0) + " s" : "";
    if (!sample) return;
    for (const [name, curve] of this.curves) this.drawInterface(name, curve);
    this.drawCores();
    this.drawTcp();
    if (sample.connections && sample.connections.length) this.drawConnections();
    if (sample.paths && sample.paths.length) this.drawGateways();
  }
  drawInterface(name, curve) {
    const one = this.sample.counters.interfaces.find(found => found.name === name);
    const seconds = this.sample.interval_ns / 1e9, to = this.at, from = to - shownSeconds;
    const received = curve.points(curve.received, from, to, seconds), sent = curve.points(curve.sent, from, to, seconds);
    const highest = Math.max(1, ...received.found.map(at => at[1]), ...sent.found.map(at => at[1]));
    const image = vector("svg", { viewBox: "0 0 400 130", role: "img" });
    const label = vector("title", {});
    label.textContent = name + ": rate in and out over the last " + shownSeconds + " s, at most " + rate(highest);
    const x = at => 4 + 392 * (at - from) / (to - from), y = value => 112 - 96 * value / highest;
    image.append(label, vector("line", { x1: 4, x2: 396, y1: 112, y2: 112, class: "axis" }),
      vector("line", { x1: 4, x2: 396, y1: 16, y2: 16, class: "axis" }));
    for (const [begin, end] of received.gaps) {
      image.append(vector("rect", { x: x(begin), y: 16, width: x(end) - x(begin), height: 96, class: "gap" }));
    }
    for (const [text, at, anchor, height] of [[rate(highest), 4, "start", 12], ["-" + shownSeconds + " s", 4, "start", 125], [clock(new Date(to * 1000)), 396, "end", 125]]) {
      const written = vector("text", { x: at, y: height, "text-anchor": anchor, class: "label" });
      written.textContent = text;
      image.append(written);
    }
    for (const [drawn, kind] of [[received, "in"], [sent, "out"]]) {
      const path = drawn.found.map((at, place) => {
        const begins = place === 0 || drawn.gaps.some(gap => gap[1] === at[0]);
        return (begins ? "M" : "L") + x(at[0]).toFixed(1) + " " + y(at[1]).toFixed(1);
      });
      image.append(vector("path", { d: path.join(""), class: "curve " + kind }));
    }
    const figures = element("p", undefined, "figures");
    const value = count => (count || 0) / seconds;
    for (const [word, kind, rateNow, packets] of one ? [
      ["in", "key-in", value(one.receive_bytes * 8), value(one.receive_packet_count)],
      ["out", "key-out", value(one.send_bytes * 8), value(one.send_packet_count)]] : []) {
      figures.append(element("span", word + (word === "in" ? " — " : " - - "), kind), element("b", rate(rateNow) + ", " + scaled(packets, ["p/s", "kp/s", "Mp/s"], 1000)));
    }
    const drops = one ? one.receive_drop_count + one.send_drop_count : 0;
    if (drops) figures.append(element("span", drops + " dropped", "bad"));
    this.panel("interface " + name, name).replaceChildren(image, figures);
  }
  drawCores() {
    const rows = [];
    let place = null;
    const wide = this.sample.places.some(one => one.node || one.package);
    for (const core of this.sample.counters.cores) {
      const at = this.sample.places.find(one => one.core === core.core);
      const named = at ? "package " + at.package + ", node " + at.node : "";
      if (wide && named !== place) { rows.push(element("h3", named)); place = named; }
      const all = MODES.reduce((sum, [mode]) => sum + core[mode + "_ns"], core.idle_ns) || 1;
      const strip = element("div", undefined, "strip"), words = [];
      let busy = 0;
      for (const [mode, word] of MODES) {
        const share = core[mode + "_ns"] / all;
        busy += share;
        if (share < 0.005) continue;
        const part = element("span", undefined, mode);
        part.style.width = (100 * share).toFixed(1) + "%";
        strip.append(part);
        words.push(word + " " + (100 * share).toFixed(0) + " %");
      }
      strip.title = words.join(", ") || "idle";
      strip.setAttribute("role", "img");
      strip.setAttribute("aria-label", "core " + core.core + ": " + strip.title);
      const row = element("div", undefined, "core");
      row.append(element("span", "cpu" + core.core), strip, element("span", (100 * busy).toFixed(0) + " %", "share"));
      rows.push(row);
    }
    const sum = key => this.sample.counters.cores.reduce((total, core) => total + core[key], 0);
    const dropped = sum("softnet_dropped_count");
    const text = "user, system, softirq, interrupt, stolen from left to right; softnet: " + dropped + " dropped, "
      + sum("softnet_squeezed_count") + " rounds cut short";
    rows.push(element("p", text, dropped ? "figures bad" : "figures"));
    this.panel("cores", "Cores").replaceChildren(...rows);
  }
  drawTcp() {
    const tcp = this.sample.tcp, seconds = this.sample.interval_ns / 1e9;
    const bound = tcp.memory_pressure_bytes;
    const rows = [
      ["segments sent", scaled(tcp.sent_segment_count / seconds, ["/s", "k/s", "M/s"], 1000)],
      ["segments received", scaled(tcp.received_segment_count / seconds, ["/s", "k/s", "M/s"], 1000)],
      ["retransmitted", String(tcp.retransmit_count), tcp.retransmit_count > 0],
      ["resets", String(tcp.reset_count)],
      ["established", String(tcp.established_count)],
      ["memory", bytes(tcp.memory_bytes) + (bound ? " of " + bytes(bound) + " until pressure" : ""), bound && tcp.memory_bytes >= bound],
    ];
    this.panel("tcp", "TCP").replaceChildren(table([], rows.map(([name, value, bad]) => [name, [value, bad ? "bad" : ""]])));
  }
  drawConnections() {
    const rows = this.sample.connections.map(one => [
      one.program || "unknown", [rate(Math.max(one.out_bps, one.in_bps)), "number"], time(one.rtt_ns),
      one.local + " > " + one.remote, one.limit + ": " + one.sentence,
    ]);
    const title = "Busiest connections of " + this.sample.connection_count;
    const body = this.panel("connections", title, "wide");
    body.previousSibling.textContent = title;
    body.replaceChildren(table(["program", "rate", "rtt", "connection", "limit"], rows));
  }
  drawGateways() {
    const rows = this.sample.paths.flatMap(path => path.gateways.map(gateway => {
      const word = gateway.drained ? "drained" : gateway.used ? "used" : "out";
      return [path.network || "", gateway.name, [word, word === "out" ? "bad" : ""]];
    }));
    this.panel("gateways", "Gateways", "wide").replaceChildren(table(["path to", "gateway", "state"], rows));
  }
}

function table(head, rows) {
  const made = element("table");
  if (head.length) {
    const top = element("thead"), row = element("tr");
    row.append(...head.map(name => element("th", name)));
    top.append(row);
    made.append(top);
  }
  const body = element("tbody");
  for (const cells of rows) {
    const row = element("tr");
    row.append(...cells.map(cell => Array.isArray(cell) ? element("td", cell[0], cell[1]) : element("td", cell)));
    body.append(row);
  }
  made.append(body);
  return made;
}

function host(name) {
  if (!hosts.has(name)) hosts.set(name, new Host(name));
  return hosts.get(name);
}

// At most one drawing per frame, however fast samples come.
function redraw() {
  if (drawing || paused) return;
  drawing = true;
  const draw = () => { drawing = false; for (const one of hosts.values()) one.draw(); };
  if (document.hidden) { setTimeout(draw, 1000); } else { requestAnimationFrame(draw); }
}

follow({
  sample: sample => { host(sample.host).add(sample); redraw(); },
  lost: lost => {
    host(lost.host).lost = "no samples since " + clock(new Date(lost.time)) + ": " + lost.reason;
    redraw();
  },
});
setInterval(redraw, 2000);

for (const button of document.querySelectorAll("nav button[data-seconds]")) {
  button.addEventListener("click", () => {
    shownSeconds = Number(button.dataset.seconds);
    for (const other of document.querySelectorAll("nav button[data-seconds]")) other.setAttribute("aria-pressed", other === button);
    redraw();
  });
}
const pause = document.getElementById("pause");
pause.addEventListener("click", () => {
  paused = !paused;
  pause.setAttribute("aria-pressed", paused);
  redraw();
});
document.addEventListener("keydown", event => {
  if (event.key === "p" && !event.ctrlKey && !event.metaKey && !event.altKey) pause.click();
});
