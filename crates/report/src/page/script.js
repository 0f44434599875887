(function () {
  "use strict";
  // Values under the pointer. The page is complete without this.
  var box = document.createElement("div");
  box.className = "tip";
  box.setAttribute("aria-hidden", "true");
  document.body.appendChild(box);
  var spoken = document.createElement("div");
  spoken.className = "visually-hidden";
  spoken.setAttribute("role", "status");
  document.body.appendChild(spoken);
  function hide() { box.classList.remove("shown"); }
  function place(text, x, y) {
    box.textContent = text;
    box.classList.add("shown");
    var gap = 14, width = box.offsetWidth, height = box.offsetHeight;
    var left = Math.min(x + gap, window.innerWidth - width - 8);
    var top = y - height - gap;
    if (top < 8) { top = y + gap; }
    box.style.transform = "translate(" + Math.max(8, left) + "px," + top + "px)";
  }
  function show(event) {
    var mark = event.target instanceof Element && event.target.closest("[data-tip]");
    if (!mark) { hide(); return; }
    place(mark.getAttribute("data-tip"), event.clientX, event.clientY);
  }
  // Arrow keys walk through the values of the drawing that has the focus.
  function walk(event) {
    var drawing = event.target instanceof Element && event.target.closest(".drawing");
    var step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") { hide(); }
    if (!drawing || !step) { return; }
    var marks = drawing.querySelectorAll("[data-tip]");
    if (!marks.length) { return; }
    event.preventDefault();
    var first = step > 0 ? 0 : marks.length - 1;
    var at = drawing.hasAttribute("data-at") ? Number(drawing.getAttribute("data-at")) + step : first;
    at = (at + marks.length) % marks.length;
    drawing.setAttribute("data-at", at);
    var bounds = marks[at].getBoundingClientRect();
    spoken.textContent = marks[at].getAttribute("data-tip");
    place(spoken.textContent, bounds.left + bounds.width / 2, bounds.top);
  }
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("pointerleave", hide);
  document.addEventListener("keydown", walk);
  document.addEventListener("focusout", hide);
  window.addEventListener("scroll", hide, { passive: true });
})();
