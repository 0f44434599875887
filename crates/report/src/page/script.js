(function () {
  "use strict";
  // Values under the pointer. The page is complete without this.
  var box = document.createElement("div");
  box.className = "tip";
  box.setAttribute("aria-hidden", "true");
  document.body.appendChild(box);
  function hide() { box.classList.remove("shown"); }
  function show(event) {
    var mark = event.target instanceof Element && event.target.closest("[data-tip]");
    if (!mark) { hide(); return; }
    box.textContent = mark.getAttribute("data-tip");
    box.classList.add("shown");
    var gap = 14, width = box.offsetWidth, height = box.offsetHeight;
    var left = Math.min(event.clientX + gap, window.innerWidth - width - 8);
    var top = event.clientY - height - gap;
    if (top < 8) { top = event.clientY + gap; }
    box.style.transform = "translate(" + Math.max(8, left) + "px," + top + "px)";
  }
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("pointerleave", hide);
  window.addEventListener("scroll", hide, { passive: true });
})();
