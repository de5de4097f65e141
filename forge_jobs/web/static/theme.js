// The scheme that the reader chose, before anything is painted.
"use strict";
(() => {
  try {
    const scheme = localStorage.getItem("forge_jobs.scheme");
    if (scheme === "light" || scheme === "dark") document.documentElement.dataset.scheme = scheme;
  } catch { /* No storage: the system's scheme. */ }
})();
