"""Draws the JSON of benches as SVG, in an environment that holds matplotlib and nothing of ours.

A picture names the file that it was drawn from by the digest of that file. A test notices a picture
that is older than its figures, without drawing.
"""

import hashlib
import json
import re
import sys
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

DRAINS = {"drain-10": "10 workers", "drain-100": "100 workers", "drain-2x100": "2 x 100 workers"}
ENQUEUES = {
    "enqueue-one": "one after another",
    "enqueue-callers": "100 callers",
    "enqueue-bulk": "10,000 in one call",
}
CURVES = {"pods": r"([\d,]+) pods x 10, jobs wait 5 ms", "queues": r"([\d,]+) queues$"}
OURS, OTHERS = "#b5421f", ("#3b6ea5", "#7a9e5f", "#8d6a9f", "#c9a13b", "#5f8d8d", "#777777")

mpl.rcParams |= {
    "svg.hashsalt": "forge_jobs",  # the same figures make the same file
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def bars(
    path: Path, found: dict[str, Any], folder: Path, name: str, groups: dict[str, str]
) -> None:
    """Draw one group of bars per workload: the median of each side, with the least and the most."""
    rows = [row for row in found["rows"] if row["workload"] in groups]
    sides = list(dict.fromkeys(row["side"] for row in rows))
    if not rows:
        return
    figure, axes = plt.subplots(figsize=(8, 3.6))
    width = 0.8 / len(sides)
    for index, side in enumerate(sides):
        for place, workload in enumerate(groups):
            runs = _runs(rows, side, workload)
            if not runs:
                continue
            middle = median(runs)
            axes.bar(
                place + (index - (len(sides) - 1) / 2) * width,
                middle,
                width * 0.92,
                yerr=[[middle - min(runs)], [max(runs) - middle]],
                color=OURS if index == 0 else OTHERS[(index - 1) % len(OTHERS)],
                ecolor="#333333",
                label=side if place == 0 else None,
            )
    axes.set_xticks(range(len(groups)), list(groups.values()))
    axes.set_ylabel("jobs per second")
    axes.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    _save(figure, path, found, folder / f"{rows[0]['store']}-{name}.svg")


def _runs(rows: list[dict[str, Any]], side: str, workload: str) -> list[float]:
    return [
        run
        for row in rows
        if (row["side"], row["workload"]) == (side, workload)
        for run in row["runs"]
        if run is not None
    ]


def curve(path: Path, found: dict[str, Any], folder: Path, name: str, pattern: str) -> None:
    """Draw throughput over a growing number: the median, and a band from least to most."""
    points: dict[int, list[float]] = {}
    for figure in found["figures"]:
        if number := re.match(pattern, figure["name"]):
            points[int(number.group(1).replace(",", ""))] = figure["runs"]
    if not points:
        return
    numbers = sorted(points)
    picture, axes = plt.subplots(figsize=(8, 3.6))
    lows, highs = ([pick(points[n]) for n in numbers] for pick in (min, max))
    axes.fill_between(numbers, lows, highs, color=OURS, alpha=0.2, linewidth=0)
    axes.plot(numbers, [median(points[n]) for n in numbers], color=OURS, marker="o")
    axes.set_xscale("log", base=2 if name == "pods" else 10)
    axes.set_xticks(numbers, [f"{n:,}" for n in numbers], minor=False)
    axes.minorticks_off()
    axes.set_xlabel(name)
    axes.set_ylabel("jobs per second")
    axes.set_ylim(bottom=0)
    _save(picture, path, found, folder / f"{found['figures'][0]['store']}-over-{name}.svg")


def _save(picture: Any, path: Path, found: dict[str, Any], target: Path) -> None:
    made = found["made"]
    picture.text(0.01, 0.01, f"{made['at'][:10]}  {made['command']}", fontsize=7, color="#666666")
    picture.tight_layout(rect=(0, 0.04, 1, 1))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    metadata = {"Date": None, "Creator": None, "Source": f"{path.name} {digest}"}
    picture.savefig(target, metadata=metadata)
    plt.close(picture)


def main(results: Path, pictures: Path) -> None:
    """Draw whatever the files hold."""
    mpl.use("svg")
    pictures.mkdir(parents=True, exist_ok=True)
    for path in sorted(results.glob("*.json")):
        found = json.loads(path.read_text())
        if "rows" in found:
            bars(path, found, pictures, "drains", DRAINS)
            bars(path, found, pictures, "enqueues", ENQUEUES)
        for name, pattern in CURVES.items():
            if "figures" in found:
                curve(path, found, pictures, name, pattern)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
