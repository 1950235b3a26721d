"use strict";
(() => {
  const number = (cell) => (cell.dataset.value === undefined ? NaN : Number(cell.dataset.value));
  const compare = (a, b, down) => {
    const [first, second] = [number(a), number(b)];
    if (Number.isNaN(first) && Number.isNaN(second)) {
      const words = a.textContent.trim().localeCompare(b.textContent.trim(), "en", { numeric: true });
      return down ? -words : words;
    }
    // What has no number comes last, whichever way is up.
    if (Number.isNaN(first) || Number.isNaN(second)) return Number.isNaN(first) ? 1 : -1;
    return down ? second - first : first - second;
  };
  for (const button of document.querySelectorAll("thead button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const down = head.getAttribute("aria-sort") === "ascending";
      const body = head.closest("table").tBodies[0];
      for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows];
      rows.sort((a, b) => compare(a.cells[head.cellIndex], b.cells[head.cellIndex], down));
      body.append(...rows);
    });
  }

  const excerpt = new Audio();
  let end = Infinity;
  let pressed = null;
  let playing = null;
  const release = () => {
    pressed?.setAttribute("aria-pressed", "false");
    pressed = playing = null;
  };
  // Events come late: what has paused since may be playing something else by now.
  const settle = () => {
    if (playing?.paused) release();
  };
  const silence = (but) => {
    for (const audio of [excerpt, ...document.querySelectorAll("audio")]) if (audio !== but) audio.pause();
  };
  const watch = () => {
    if (excerpt.paused) return;
    if (excerpt.currentTime >= end) excerpt.pause();
    else requestAnimationFrame(watch);
  };
  excerpt.addEventListener("playing", watch);
  excerpt.addEventListener("pause", settle);
  document.addEventListener("pause", settle, true);
  document.addEventListener("play", (event) => silence(event.target), true);

  const lead = document.getElementById("lead-in");
  const start = (button) => {
    silence(null);
    release();
    pressed = button;
    button.setAttribute("aria-pressed", "true");
    if (button.dataset.take) {
      playing = document.getElementById(button.dataset.take).querySelector("audio");
      playing.currentTime = 0;
    } else {
      playing = excerpt;
      end = Number(button.dataset.end);
      const source = new URL(button.dataset.file, document.baseURI).href;
      if (excerpt.src !== source) excerpt.src = source;
      excerpt.currentTime = Number(lead.checked ? button.dataset.lead : button.dataset.start);
    }
    const started = playing;
    started.play().catch((error) => {
      if (error.name !== "AbortError") started.pause();
    });
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.play");
    if (!button) return;
    if (button === pressed) silence(null);
    else start(button);
  });

  for (const take of document.querySelectorAll(".take")) {
    const [audio, outline] = [take.querySelector("audio"), take.querySelector(".outline")];
    audio?.addEventListener("timeupdate", () => {
      outline.style.setProperty("--played", audio.currentTime / (audio.duration || 1));
      outline.style.setProperty("--playing", audio.paused ? 0 : 1);
    });
  }
})();
