// What the pages have in common: text without markup, and the connection to the command.
"use strict";

const element = (name, text, kind) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
};
const clock = date => date.toTimeString().slice(0, 8);

// Calls a handler with each event of its name; #state says whether the command is there.
function follow(handlers) {
  const state = document.getElementById("state");
  const events = new EventSource("events?token=" + document.body.dataset.token);
  let ended = false, missed = 0;
  events.onopen = () => { state.textContent = "connected"; state.className = ""; };
  events.onerror = () => {
    if (!ended && state.className !== "bad") {
      state.textContent = "connection to the command lost since " + clock(new Date()) + "; retrying";
      state.className = "bad";
    }
  };
  for (const name in handlers) events.addEventListener(name, event => handlers[name](JSON.parse(event.data)));
  events.addEventListener("missed", event => {
    missed += Number(event.data);
    state.textContent = missed + " events were dropped: this browser read too slowly";
  });
  events.addEventListener("end", () => {
    ended = true;
    events.close();
    state.textContent = "ended at " + clock(new Date());
  });
}
