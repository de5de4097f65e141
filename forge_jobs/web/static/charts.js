// Draws the charts of a page again, by uPlot, with one cursor for all and a zoom by dragging.
"use strict";
(() => {
  const holder = document.querySelector(".charts");
  if (!holder || typeof uPlot === "undefined") return;
  const drawn = [];

  const length = (seconds) => {
    if (seconds < 0.001) return seconds ? "<1 ms" : "0 ms";
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
    let rest = Math.floor(seconds);
    const parts = [];
    for (const [step, unit] of units) {
      const count = Math.floor(rest / step);
      rest %= step;
      if (count && parts.length < 2) parts.push(`${count} ${unit}`);
      else if (parts.length) break;
    }
    return parts.join(" ");
  };
  // One unit, for a scale.
  const brief = (seconds) => {
    for (const [step, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (seconds >= step) return `${+(seconds / step).toFixed(1)} ${unit}`;
    }
    return length(seconds);
  };
  const lengths = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600,
    7200, 14400, 28800, 86400, 172800, 604800, 2592000];
  const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });
  const briefly = (value) => (value < 100000 ? number(value) : value.toLocaleString("en", { notation: "compact" }));
  const said = (line, value) =>
    value === null || value === undefined ? "\u2013" : (line.seconds ? length : number)(value);

  const zoom = (chart) => {
    const { left, width } = chart.select;
    if (width < 5 || !("zoom" in holder.dataset)) return;
    const text = (at) => new Date(at * 1000).toISOString().slice(0, 16) + "Z";
    const since = chart.posToVal(left, "x");
    const until = Math.max(chart.posToVal(left + width, "x"), since + 120);
    const address = new URL(holder.dataset.zoom, location.href);
    address.searchParams.set("since", text(since));
    address.searchParams.set("until", text(until));
    location.assign(address);
  };

  const draw = (figure) => {
    const plot = figure.querySelector(".plot");
    if (!plot) return;
    const svg = plot.querySelector("svg");
    const { begin, step, lines } = JSON.parse(figure.dataset.points);
    const times = lines[0].values.map((_, index) => begin + index * step);
    const marks = figure.dataset.marks.split(" ").filter(Boolean).map(Number);
    const colours = lines.map((line) => {
      const name = line.mark.split(" ").map((each) => `.${each}`).join("");
      return getComputedStyle(svg.querySelector(`.line${name}`)).stroke;
    });
    const quiet = getComputedStyle(plot.querySelector(".y")).color;
    const faint = getComputedStyle(svg.querySelector(".grid")).stroke;
    const known = [...figure.querySelectorAll(".legend b")];
    const usual = known.map((each) => each.textContent);
    const series = [{}];
    const data = [times];
    lines.forEach((line, index) => {
      // A line of one value would not be seen.
      const isAlone = line.values.filter((value) => value !== null).length === 1;
      const shared = { scale: line.seconds ? "s" : "y", stroke: colours[index], points: { show: isAlone, size: 5 } };
      series.push({ ...shared, width: 1.6, dash: line.mark.startsWith("run") ? [4, 2] : undefined });
      data.push(line.values);
    });
    lines.forEach((line, index) => {
      if (!line.before.length) return;
      series.push({ scale: line.seconds ? "s" : "y", stroke: colours[index], width: 1, alpha: 0.35, points: { show: false } });
      data.push(line.before);
    });
    const scales = { x: { time: true } };
    const isLong = times[times.length - 1] - times[0] > 86400;
    const isLocal = document.documentElement.dataset.zone === "local";
    const tick = new Intl.DateTimeFormat("en-GB", {
      timeZone: isLocal ? undefined : "UTC",
      ...(isLong ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit" }),
    });
    const axes = [{ values: (chart, found) => found.map((at) => tick.format(at * 1000)), space: 70, stroke: quiet, grid: { stroke: faint, width: 1 }, ticks: { show: false }, font: "11px sans-serif", size: 24 }];
    for (const [scale, seconds] of [["y", false], ["s", true]]) {
      if (!lines.some((line) => line.seconds === seconds)) continue;
      scales[scale] = { range: (chart, low, high) => [0, high > 0 ? high * 1.05 : 1] };
      axes.push({
        scale,
        side: scale === "s" && lines.some((line) => !line.seconds) ? 1 : 3,
        stroke: quiet,
        grid: { show: axes.length === 1, stroke: faint, width: 1 },
        ticks: { show: false },
        font: "11px sans-serif",
        size: 56,
        incrs: seconds ? lengths : undefined,
        values: (chart, found) => found.map((value) => (seconds ? brief : briefly)(value)),
      });
    }
    const chart = new uPlot(
      {
        width: plot.clientWidth,
        height: 150,
        tzDate: (at) => (isLocal ? new Date(at * 1000) : uPlot.tzDate(new Date(at * 1000), "Etc/UTC")),
        legend: { show: false },
        cursor: { sync: { key: "page" }, drag: { x: true, y: false, setScale: false }, points: { size: 5 } },
        scales,
        axes,
        series,
        hooks: {
          setSelect: [zoom],
          setCursor: [(self) => {
            const at = self.cursor.idx;
            known.forEach((each, index) => {
              const away = at === null || at === undefined;
              each.textContent = away ? usual[index] : said(lines[index], lines[index].values[at]);
            });
          }],
          draw: [(self) => {
            self.ctx.save();
            self.ctx.strokeStyle = quiet;
            self.ctx.setLineDash([2, 3]);
            for (const mark of marks) {
              const x = Math.round(self.valToPos(mark, "x", true)) + 0.5;
              self.ctx.beginPath();
              self.ctx.moveTo(x, self.bbox.top);
              self.ctx.lineTo(x, self.bbox.top + self.bbox.height);
              self.ctx.stroke();
            }
            self.ctx.restore();
          }],
        },
      },
      data,
      plot,
    );
    chart.root.setAttribute("role", "img");
    chart.root.setAttribute("aria-label", svg.getAttribute("aria-label"));
    figure.classList.add("drawn");
    drawn.push({ chart, figure, plot });
  };

  const drawAll = () => {
    for (const each of drawn.splice(0)) {
      each.chart.destroy();
      each.figure.classList.remove("drawn");
    }
    for (const figure of holder.querySelectorAll(".chart")) draw(figure);
  };
  drawAll();
  document.addEventListener("forge:view", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  new ResizeObserver(() => {
    for (const { chart, plot } of drawn) {
      if (plot.clientWidth !== chart.width) chart.setSize({ width: plot.clientWidth, height: 150 });
    }
  }).observe(holder);
})();
