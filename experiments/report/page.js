"use strict";
// Candidates are raw 16-bit samples in base64; a WAV header is put before them when one is played. One sound at a time.
const sounds = JSON.parse(document.getElementById("sounds").textContent);
const leadIn = document.getElementById("lead-in");
const player = new Audio();
let playing = null;

const bytes = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

function wav(parts, rate) {
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  const header = new DataView(new ArrayBuffer(44));
  const word = (at, text) => [...text].forEach((letter, i) => header.setUint8(at + i, letter.charCodeAt(0)));
  word(0, "RIFF"); header.setUint32(4, 36 + size, true); word(8, "WAVEfmt "); header.setUint32(16, 16, true);
  header.setUint16(20, 1, true); header.setUint16(22, 1, true); header.setUint32(24, rate, true);
  header.setUint32(28, rate * 2, true); header.setUint16(32, 2, true); header.setUint16(34, 16, true);
  word(36, "data"); header.setUint32(40, size, true);
  return new Blob([header, ...parts], { type: "audio/wav" });
}

function stop() {
  player.pause();
  if (!playing) return;
  URL.revokeObjectURL(player.src);
  playing.button.setAttribute("aria-pressed", "false");
  playing.outline.style.setProperty("--playing", 0);
  playing = null;
}

function play(button) {
  const again = playing && playing.button === button;
  stop();
  document.querySelectorAll("audio").forEach((audio) => audio.pause());
  if (again) return;
  const take = document.getElementById(button.dataset.take);
  const rate = Number(take.dataset.rate);
  const own = bytes(sounds[button.dataset.sound]);
  const parts = [own];
  let before = 0;
  if (leadIn.checked) {
    const end = 44 + 2 * Number(button.dataset.start);
    const committed = bytes(take.querySelector("audio").src.split(",")[1]).slice(Math.max(44, end - 2 * rate), end);
    before = committed.length / 2 / rate;
    parts.unshift(committed);
  }
  playing = { button, outline: button.parentElement.querySelector(".outline"), before, length: own.length / 2 / rate };
  button.setAttribute("aria-pressed", "true");
  player.src = URL.createObjectURL(wav(parts, rate));
  player.play();
  follow();
}

function mark(outline, share, visible) {
  outline.style.setProperty("--played", Math.min(1, Math.max(0, share)));
  outline.style.setProperty("--playing", visible ? 1 : 0);
}

function follow() {
  if (playing) {
    mark(playing.outline, (player.currentTime - playing.before) / playing.length, player.currentTime >= playing.before);
    requestAnimationFrame(follow);
  }
}

player.addEventListener("ended", stop);
document.querySelectorAll("button[data-sound]").forEach((button) => button.addEventListener("click", () => play(button)));
document.querySelectorAll(".take audio").forEach((audio) => {
  const outline = audio.closest(".take").querySelector(".outline");
  audio.addEventListener("play", () => {
    stop();
    document.querySelectorAll("audio").forEach((other) => other !== audio && other.pause());
  });
  audio.addEventListener("timeupdate", () => mark(outline, audio.currentTime / audio.duration, !audio.ended));
});
document.querySelectorAll(".commits a").forEach((link) => link.addEventListener("click", () => {
  const step = document.querySelector(link.getAttribute("href"));
  if (step) step.closest("details").open = true;
}));
