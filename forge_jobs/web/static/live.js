// Writes what changes into the page: numbers and states in their places, and nothing else moves.
//
// An element with data-live="FIELD" shows a field of the queue or job that an element around names
// by data-queue or data-job. Whatever has changed beyond such values, a note says, with a link that
// loads the page again. Without this script the page shows the moment of the request.
//
// An event tells of a reading for all viewers, which may be older than this page. Nothing older than
// the page is written: a queue that was resumed just now does not read as paused again.
"use strict";
(() => {
  const place = document.getElementById("live");
  // A page of the past has nothing to follow.
  if (!place || !window.EventSource || new URLSearchParams(location.search).has("at")) return;

  const MOST_JOBS = 100;
  const SILENT_MS = 15000;
  const POLL_MS = 5000;
  const POLLS_PER_TRY = 12;
  const HIDDEN_MS = 30000;
  const KEPT = "forge-live";
  const NONE = "\u2013";
  const WORDS = {
    blocked: ["blocked", "idle"], pending: ["waiting", "idle"], in_progress: ["running", "run"],
    failed: ["retrying", "warn"], done: ["done", "good"], dead: ["dead", "bad"],
    cancelled: ["cancelled", ""],
  };

  const all = (what, within = document) => [...within.querySelectorAll(what)];
  const ids = [...new Set(all("[data-job]").map((each) => each.dataset.job))].slice(0, MOST_JOBS);
  const address = place.dataset.address + (ids.length ? "?" + ids.map((id) => "job=" + id).join("&") : "");
  const button = place.querySelector("button");
  const words = button.querySelector("span");
  const note = document.createElement("p");
  note.className = "live-note";
  note.setAttribute("role", "status");
  document.getElementById("main").append(note);

  // -- numbers and states, written as the server writes them ---------------------------------

  function number(value) {
    const digits = Number.isInteger(value) ? 0 : 1;
    return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  function length(seconds) {
    if (seconds < 1) return Math.max(seconds, 0) * 1000 < 1 && seconds > 0 ? "<1 ms" : `${Math.round(Math.max(seconds, 0) * 1000)} ms`;
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    const parts = [];
    let whole = Math.floor(seconds);
    for (const [step, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
      const count = Math.floor(whole / step);
      whole %= step;
      if (count && parts.length < 2) parts.push(`${count} ${unit}`);
      else if (parts.length) break;
    }
    return parts.join(" ");
  }

  // -- writing into the page ------------------------------------------------------------------

  const waiting = new Map();

  function isSelected(element) {
    const selection = document.getSelection();
    return Boolean(selection) && !selection.isCollapsed && selection.containsNode(element, true);
  }

  // Text that the reader has selected waits until the selection is gone.
  function write(element, change) {
    if (isSelected(element)) waiting.set(element, change);
    else { waiting.delete(element); change(); }
  }

  document.addEventListener("selectionchange", () => {
    for (const [element, change] of [...waiting]) write(element, change);
  });

  let is_first = true;

  function tint(element) {
    element.classList.remove("fresh");
    void element.offsetWidth; // starts the animation again
    if (!is_first && element.dataset.live !== "oldest") element.classList.add("fresh");
  }

  function say(element, text) {
    if (element.textContent === text) return;
    write(element, () => { element.textContent = text; tint(element); });
  }

  function mark(element, text, name) {
    if (element.textContent === text && (!name || element.classList.contains(name))) return;
    write(element, () => {
      element.textContent = text;
      element.className = `state ${name}`;
      tint(element);
    });
  }

  const shows = (kind, name) =>
    all(`[data-${kind}="${CSS.escape(name)}"]`).flatMap((each) =>
      each.dataset.live ? [each] : all("[data-live]", each));

  const loadedAt = Date.parse(place.dataset.readAt) || 0;
  const isNews = (at) => Date.parse(at) > loadedAt;
  // What the page may show of queues and jobs, and what was told of them.
  const news = { fleet: false, counts: false, jobs: false };
  const queues = new Map();
  const jobs = new Map();
  let now = 0;

  function counted(queue, status) {
    return number(queue.by_status[status] || 0) + (queue.more.includes(status) ? "+" : "");
  }

  function standing(queue) {
    if (queue.standing.startsWith("cannot be read")) return "bad";
    if (queue.paused || queue.cooling) return "warn";
    if (queue.unserved) return "bad";
    return queue.pods ? "good" : "idle";
  }

  function slots(element, queue) {
    const svg = element.querySelector("svg");
    const top = Math.max(queue.max_workers, queue.granted, queue.running, 1);
    const width = (part) => Math.round(1000 * part / top) / 10;
    svg.querySelector(".granted").setAttribute("width", width(queue.granted));
    svg.querySelector(".used").setAttribute("width", width(queue.running));
    svg.setAttribute("aria-label", `${queue.running} in use, ${queue.granted} granted, ${queue.max_workers} at most`);
  }

  const OF_QUEUES = {
    due: (queue) => number(queue.due),
    running: (queue) => number(queue.running),
    slots: (queue) => `${queue.running}/${queue.granted}/${queue.max_workers}`,
    oldest: (queue) => queue.oldest_due_since
      ? length(Math.max((now - Date.parse(queue.oldest_due_since)) / 1000, 0)) : NONE,
  };

  function isOpen(field) {
    if (field === "standing") return news.fleet;
    return news.counts && (news.fleet || (field !== "meter" && field !== "slots"));
  }

  function showQueue(queue) {
    for (const element of shows("queue", queue.name)) {
      const field = element.dataset.live;
      if (!isOpen(field)) continue;
      if (field === "standing") mark(element, queue.standing, standing(queue));
      else if (field === "meter") slots(element, queue);
      else if (field in OF_QUEUES) say(element, OF_QUEUES[field](queue));
      else if (field in WORDS) say(element, counted(queue, field));
    }
  }

  function sums() {
    if (!news.counts) return;
    const list = [...queues.values()];
    for (const element of all("[data-sum]")) {
      const field = element.dataset.sum;
      const of = (queue) => field in WORDS ? queue.by_status[field] || 0 : queue[field];
      const more = list.some((queue) => queue.more.includes(field)) ? "+" : "";
      say(element, number(list.reduce((sum, queue) => sum + of(queue), 0)) + more);
    }
  }

  const stateOf = (id) => {
    const found = shows("job", id).find((each) => each.dataset.live === "status");
    return found && (found.querySelector(".state") || found);
  };
  const loaded = new Map(ids.map((id) => [id, stateOf(id)?.textContent]));

  function showJob(job) {
    for (const element of shows("job", job.id)) {
      const field = element.dataset.live;
      const progress = job.progress;
      if (field === "status") mark(stateOf(job.id), ...WORDS[job.status]);
      else if (field === "attempt") say(element, job.attempt + (element.dataset.most || ""));
      else if (field === "progress" && progress) {
        const percent = progress.total ? ` (${Math.round(100 * Math.min(progress.current / progress.total, 1))} %)` : "";
        const of = progress.total === null ? "" : ` of ${number(progress.total)}`;
        say(element, `${number(progress.current)}${of}${percent} ${progress.message}`.trim());
        element.closest("section").hidden = false;
      } else if (field === "share" && progress && progress.total) {
        const share = Math.min(100 * progress.current / progress.total, 100);
        element.querySelector(".used").setAttribute("width", share.toFixed(1));
      }
    }
  }

  // -- changes beyond values --------------------------------------------------------------------

  let problems = null;
  let pods = null;
  let podsShown = null;

  function offer(text, href = location.href) {
    if (note.dataset.text === text) return;
    note.dataset.text = text;
    const link = document.createElement("a");
    link.href = href;
    link.textContent = href === location.href ? "Load the page again" : "Look";
    note.replaceChildren(`${text} `, link);
  }

  function compareProblems(found) {
    const names = new Set(found.map((each) => `${each.code} ${each.page}`));
    if (problems) {
      const more = [...names].filter((each) => !problems.has(each)).length;
      if (more) offer(more === 1 ? "A new problem is seen." : `${more} new problems are seen.`, place.dataset.home);
    }
    problems = names;
  }

  function comparePods(found) {
    const names = found.map((pod) => `${pod.host_id} ${pod.standing}`).sort().join();
    if (podsShown !== null && podsShown !== names && document.querySelector("[data-list=pods]")) offer("The pods have changed.");
    podsShown = names;
  }

  const gone = new Set();

  function compareJobs() {
    const changed = ids.filter((id) => stateOf(id) && stateOf(id).textContent !== loaded.get(id)).length;
    const count = changed + [...gone].filter((id) => loaded.get(id)).length;
    if (!count) return;
    if (ids.length === 1) offer("The job has changed.");
    else offer(count === 1 ? "A job of this list has changed." : `${count} jobs of this list have changed.`);
  }

  function compareQueues() {
    const listed = new Set(all("[data-list=queues] [data-queue]").map((each) => each.dataset.queue));
    if (!document.querySelector("[data-list=queues]")) return;
    if (queues.size !== listed.size || [...queues.keys()].some((name) => !listed.has(name))) offer("The queues have changed.");
  }

  function take(state) {
    now = Date.parse(state.at);
    if (state.whole) [queues, jobs, gone].forEach((each) => each.clear());
    state.queues.forEach((each) => queues.set(each.name, each));
    state.jobs.forEach((each) => { jobs.set(each.id, each); gone.delete(each.id); });
    state.gone.forEach((each) => { gone.add(each); jobs.delete(each); });
    if (state.pods) pods = state.pods;
    const first = { ...news };
    news.fleet ||= isNews(state.fleet_at);
    news.counts ||= isNews(state.counts_at);
    news.jobs ||= isNews(state.at);
    const isMore = Object.keys(news).some((part) => news[part] !== first[part]);
    (isMore ? [...queues.values()] : state.queues).forEach(showQueue);
    if (news.jobs) (isMore ? [...jobs.values()] : state.jobs).forEach(showJob);
    sums();
    if (state.problems) compareProblems(state.problems);
    if (news.fleet && pods) comparePods(pods);
    if (news.fleet && (state.whole || !first.fleet)) compareQueues();
    if (news.jobs) compareJobs();
    is_first = false;
  }

  // -- the dot ----------------------------------------------------------------------------------

  let heard = 0;
  let is_paused = sessionStorage.getItem(KEPT) === "paused";

  function dot(state) {
    const at = now ? `, showing ${new Date(now).toISOString().slice(11, 19)}` : "";
    const text = state === "live" ? "live" : state + at;
    place.dataset.state = state;
    if (words.textContent !== text) words.textContent = text;
    button.title = is_paused ? "Follow again" : "Pause";
  }

  // -- the stream, or polls where there is no place for one --------------------------------------

  let source = null;
  let timer = 0;

  function hear(state) {
    if (is_paused) return;
    heard = Date.now();
    take(state);
    dot("live");
  }

  function follow() {
    stop();
    if (is_paused) { dot("paused"); return; }
    heard = Date.now();
    source = new EventSource(address);
    source.addEventListener("state", (event) => hear(JSON.parse(event.data)));
    source.addEventListener("lost", () => { heard = Date.now(); dot("lost"); });
    source.onerror = () => {
      dot("lost");
      // Else the browser tries again by itself.
      if (source.readyState === EventSource.CLOSED) { stop(); poll(POLLS_PER_TRY); }
    };
  }

  function stop() {
    if (source) source.close();
    source = null;
    clearTimeout(timer);
  }

  async function poll(left) {
    if (!left) { follow(); return; }
    try {
      const answer = await fetch(address, { headers: { Accept: "application/json" } });
      if (answer.ok) hear(await answer.json());
      else dot("lost");
    } catch { dot("lost"); }
    if (!is_paused && !source) timer = setTimeout(() => poll(left - 1), POLL_MS);
  }

  button.addEventListener("click", () => {
    is_paused = !is_paused;
    if (is_paused) sessionStorage.setItem(KEPT, "paused");
    else sessionStorage.removeItem(KEPT);
    follow();
  });

  setInterval(() => {
    if (is_paused) return;
    if (Date.now() - heard > SILENT_MS) dot("lost");
    else if (place.dataset.state === "live") {
      now += 1000;
      queues.forEach((queue) => {
        if (!queue.oldest_due_since) return;
        shows("queue", queue.name).filter((each) => each.dataset.live === "oldest")
          .forEach((each) => { if (!isSelected(each)) each.textContent = OF_QUEUES.oldest(queue); });
      });
    }
  }, 1000);

  let hiding = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(stop, HIDDEN_MS);
    else if (!source) follow();
  });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) follow(); });

  place.hidden = false;
  follow();
})();
