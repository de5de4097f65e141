// Says while a person types what the text of a schedule means. Without this script "Check" does.
"use strict";
(() => {
  const form = document.querySelector("form[data-check]");
  const place = document.getElementById("times");
  if (!form || !place) return;
  const PAUSE_MS = 250;
  const stored = place.innerHTML;
  const fields = ["expression", "timezone"].map((name) => form.elements[name]);
  const first = fields.map((field) => field.value).join("\n");
  let timer = 0;
  let asking = null;

  const show = (html) => {
    place.innerHTML = html;
    form.elements.expression.setAttribute("aria-invalid", String(Boolean(place.querySelector(".note.bad"))));
    document.dispatchEvent(new CustomEvent("forge:new"));
  };

  const ask = async () => {
    asking?.abort();
    asking = new AbortController();
    const query = new URLSearchParams({ part: "times" });
    for (const field of fields) query.set(field.name, field.value);
    try {
      const answer = await fetch(`${form.dataset.check}?${query}`, { signal: asking.signal });
      if (answer.ok) show(await answer.text());
    } catch { /* A newer text is asked for, or the server is away: "Check" says so. */ }
  };

  form.addEventListener("input", () => {
    clearTimeout(timer);
    const now = fields.map((field) => field.value).join("\n");
    if (now === first) { asking?.abort(); show(stored); }
    else timer = setTimeout(ask, PAUSE_MS);
  });
})();
