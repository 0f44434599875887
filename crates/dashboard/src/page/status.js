// Shows the state of a daemon as tables, and its events. All text is untrusted: it becomes text nodes, never markup.
"use strict";

const LISTED = 500;     // events
const find = id => document.getElementById(id);
const isNumber = head => head.startsWith(">");
const label = head => isNumber(head) ? head.slice(1) : head;

function panel(table) {
  const made = element("section", undefined, table.head.length > 4 ? "panel wide" : "panel");
  made.append(element("h3", table.title));
  const body = element("tbody"), head = element("tr"), all = element("table"), top = element("thead");
  for (const name of table.head) head.append(element("th", label(name), isNumber(name) ? "number" : ""));
  for (const row of table.rows) {
    const line = element("tr", undefined, row.bad ? "bad" : "");
    row.cells.forEach((text, place) => {
      const cell = element("td", text, isNumber(table.head[place]) ? "number" : "");
      cell.dataset.label = label(table.head[place]);
      line.append(cell);
    });
    body.append(line);
  }
  top.append(head);
  all.append(top, body);
  made.append(table.rows.length ? all : element("p", "none"));
  return made;
}

// A table that did not change stays, with what is selected in it.
let shown = [];
function show(tables) {
  const place = find("tables");
  tables.forEach((table, at) => {
    const text = JSON.stringify(table);
    if (text === shown[at]) return;
    shown[at] = text;
    const made = panel(table);
    if (place.children[at]) place.children[at].replaceWith(made); else place.append(made);
  });
  while (place.children.length > tables.length) place.lastElementChild.remove();
  shown.length = tables.length;
}

follow({
  state: show,
  event: event => {
    const list = find("events"), line = element("li", undefined, event.bad ? "bad" : "");
    const time = element("time", event.time.slice(0, 19).replace("T", " "));
    time.dateTime = event.time;
    line.append(time, " " + event.text);
    list.prepend(line);
    if (list.children.length > LISTED) list.lastElementChild.remove();
  },
});
