// What a script adds to every page: times, theme, keys, copying, and completion of filters.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const kept = {
    get(name, usual) {
      try { return localStorage.getItem(`forge_jobs.${name}`) || usual; } catch { return usual; }
    },
    set(name, value) {
      try { localStorage.setItem(`forge_jobs.${name}`, value); } catch { /* For this page only. */ }
    },
  };

  // A button that goes through choices.
  const choice = (name, values, apply) => {
    const button = document.querySelector(`[data-tool="${name}"]`);
    if (!button) return;
    let value = kept.get(name, values[0]);
    if (!values.includes(value)) value = values[0];
    const show = () => {
      button.querySelector("b").textContent = value;
      apply(value);
      document.dispatchEvent(new CustomEvent("forge:view"));
    };
    button.addEventListener("click", () => {
      value = values[(values.indexOf(value) + 1) % values.length];
      kept.set(name, value);
      show();
    });
    show();
  };

  const two = (number) => String(number).padStart(2, "0");
  const local = (at) =>
    `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const utc = (at) => at.toISOString().slice(0, 19).replace("T", " ");

  const showTimes = (mode) => {
    document.documentElement.dataset.zone = mode === "local" ? "local" : "utc";
    for (const time of all("time[datetime]")) {
      const at = new Date(time.dateTime);
      time.dataset.ago ??= time.textContent;
      time.title = `${utc(at)} UTC, ${local(at)} here`;
      if (mode === "ago") time.textContent = time.dataset.ago;
      else time.textContent = mode === "local" ? local(at) : utc(at);
    }
    for (const zone of all("[data-zone-name]")) zone.textContent = mode === "local" ? "local" : "UTC";
  };
  // The exact time of what has the focus, for readers without a mouse.
  document.addEventListener("focusin", (event) => {
    const row = event.target.closest("tr, .problem, .mark");
    for (const time of all("time.exact")) {
      time.classList.remove("exact");
      if (kept.get("times", "ago") === "ago") time.textContent = time.dataset.ago;
    }
    if (!row || row.contains(document.querySelector("input:focus"))) return;
    for (const time of all("time[datetime]", row)) {
      time.classList.add("exact");
      const at = new Date(time.dateTime);
      time.textContent = document.documentElement.dataset.zone === "local" ? local(at) : utc(at);
    }
  });

  const showScheme = (scheme) => {
    if (scheme === "system") delete document.documentElement.dataset.scheme;
    else document.documentElement.dataset.scheme = scheme;
  };

  for (const tools of all(".tools")) tools.hidden = false;
  choice("times", ["ago", "utc", "local"], showTimes);
  document.addEventListener("forge:new", () => showTimes(kept.get("times", "ago")));
  choice("scheme", ["system", "light", "dark"], showScheme);

  // Copying, where the browser allows that.
  if (navigator.clipboard) {
    for (const code of all("code.copyable, .foot code")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "small copy-button";
      button.textContent = "copy";
      button.setAttribute("aria-label", `Copy ${code.textContent}`);
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
      });
      code.after(button);
    }
  }

  // Completion: the browser completes a whole field, and here the last word of a line.
  for (const input of all("input[data-complete]")) {
    const list = document.getElementById(input.dataset.complete);
    if (!list) continue;
    const words = all("option", list).map((option) => option.value);
    let asking = 0;
    input.setAttribute("list", list.id);
    input.addEventListener("input", () => {
      const cut = input.value.lastIndexOf(" ") + 1;
      const start = input.value.slice(0, cut);
      const word = input.value.slice(cut);
      const fitting = word ? words.filter((each) => each.startsWith(word)).slice(0, 20) : [];
      const offer = (found) => list.replaceChildren(...found.map((each) => new Option(start + each, start + each)));
      offer(fitting);
      // Names come from the store: the page holds the first of them only.
      clearTimeout(asking);
      if (!word.includes(":")) return;
      const line = input.value;
      asking = setTimeout(async () => {
        try {
          const answer = await fetch(`${input.dataset.hints}?line=${encodeURIComponent(line)}`);
          const words = answer.ok ? (await answer.json()).words : [];
          if (words.length && input.value === line) offer(words);
        } catch { /* The words of the page stay. */ }
      }, 150);
    });
  }

  // Keys. Letters go and look, capitals act, and an action always has a page before.
  const help = document.getElementById("keys");
  const openHelp = () => { if (help && !help.open) help.showModal(); };
  for (const button of all('[data-tool="keys"]')) button.addEventListener("click", openHelp);
  const rows = () => all("main tbody tr").filter((row) => row.querySelector("a.main, a.id"));
  const step = (by) => {
    const found = rows();
    const here = found.findIndex((row) => row.contains(document.activeElement));
    const row = found[Math.min(Math.max(here + by, 0), found.length - 1)];
    row?.querySelector("a.main, a.id").focus();
  };
  const boxes = (root) => all('input[type="checkbox"][name="id"]', root);
  let goes = false;
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest("input:not([type=checkbox]), select, textarea, dialog");
    if (field || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key;
    if (key === "Shift") return;
    const wasGoing = goes;
    goes = false;
    let did = true;
    if (wasGoing) document.querySelector(`.tabs a[data-go="${CSS.escape(key)}"]`)?.click();
    else if (key === "/") document.getElementById("search")?.focus();
    else if (key === "?") openHelp();
    else if (key === "g") goes = true;
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "x") {
      const row = document.activeElement?.closest("tr");
      for (const box of row ? boxes(row) : []) box.checked = !box.checked;
    } else if (key === "A") {
      const found = boxes(document);
      const none = found.every((box) => box.checked);
      for (const box of found) box.checked = !none;
    } else {
      const found = /^[B-Z]$/.test(key) && document.querySelector(`main [data-key="${key}"]`);
      did = Boolean(found);
      if (found) found.click();
    }
    if (did) event.preventDefault();
  });
})();
