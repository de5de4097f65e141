// Appends the lines that a job logs while its page is open. A new attempt begins a new log.
//
// Asks for what came behind the last line, while the page is live and somebody looks. Without this
// script the page shows the lines of the moment of the request.
"use strict";
(() => {
  const place = document.querySelector("[data-log]");
  const live = document.getElementById("live");
  const status = document.querySelector("[data-live=status]");
  if (!place || !live || new URLSearchParams(location.search).has("at")) return;

  const EVERY_MS = 1000;
  const MOST_LINES = 2000;
  const text = place.querySelector("pre");
  const title = place.querySelector("h2 span");
  const address = place.dataset.log;
  let attempt = Number(place.dataset.attempt);
  let after = Number(place.dataset.after);
  let was_running = true;

  const moment = (at) => new Date(at).toISOString().slice(0, 19).replace("T", " ");

  async function page(from) {
    const answer = await fetch(`${address}?after=${from}`, { headers: { Accept: "application/json" } });
    return answer.ok ? answer.json() : null;
  }

  function append(lines) {
    const written = document.createTextNode(lines.map((line) => `${moment(line.at)}  ${line.text}\n`).join(""));
    text.append(written);
    // A job may log for days: the page keeps the newest lines.
    const all = text.textContent.split("\n");
    if (all.length > MOST_LINES + 1) text.textContent = all.slice(-MOST_LINES - 1).join("\n");
    after = lines[lines.length - 1].number;
    place.hidden = false;
  }

  async function look() {
    let found = await page(after);
    if (found && found.attempt !== attempt) {
      [attempt, after] = [found.attempt, 0];
      text.textContent = "";
      title.textContent = `attempt ${attempt}`;
      found = await page(after);
    }
    if (found && found.attempt === attempt && found.lines.length) append(found.lines);
  }

  async function follow() {
    // Once more behind the end of a run: its last lines may have come with the end.
    const is_running = status.textContent.trim() === "running";
    if (live.dataset.state === "live" && !document.hidden && (is_running || was_running)) {
      was_running = is_running;
      try { await look(); } catch { /* The next look finds the lines. */ }
    }
    setTimeout(follow, EVERY_MS);
  }

  setTimeout(follow, EVERY_MS);
})();
