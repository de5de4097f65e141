"""Rows of the comparison."""

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct

from bench.figures import ratios
from bench.peers.catalog import BEST


class Row(Struct, kw_only=True):
    """A side in a workload.

    :param runs: one per round. None for a round that was not finished
    :param versus: ours over this, round by round
    :param error: why rounds are missing
    """

    store: str
    workload: str
    side: str
    unit: str
    acknowledges_after: bool
    runs: list[float | None]
    costs: dict[str, float]
    versus: tuple[float, ...] = ()
    error: str = ""

    @property
    def finished(self) -> list[float]:
        """The rounds that have a figure."""
        return [run for run in self.runs if run is not None]


def compare(rows: Sequence[Row], ours: str) -> None:
    """Set how ours relates to each of the others."""
    mine = next(row for row in rows if row.side == ours)
    for row in rows:
        if row is not mine:
            row.versus = ratios(mine.runs, row.runs)


def lines(rows: Sequence[Row]) -> list[str]:
    """A heading and a line per side, fastest first."""
    lines = [f"\n{rows[0].store}: {rows[0].workload}, {rows[0].unit}"]
    lines += [_line(row) for row in sorted(rows, key=_by_figure, reverse=True)]
    return lines


def _by_figure(row: Row) -> float:
    return median(row.finished) if row.finished else 0.0


def _line(row: Row) -> str:
    if not row.finished:
        return f"  {row.side:<18} -  {_short(row.error)}"
    low, high = min(row.finished), max(row.finished)
    text = f"  {row.side:<18} {median(row.finished):>12,.2f}  {low:>12,.2f} to {high:<12,.2f}"
    if row.versus:
        each = f"{min(row.versus):.2f} to {max(row.versus):.2f}"
        text += f" ours is {median(row.versus):6.2f} x ({each})"
    costs = (f"{name} {value:,.2f}" for name, value in row.costs.items() if "RSS" not in name)
    text += f"  {'; '.join(costs)}"
    return text + (f"  [{_short(row.error)}]" if row.error else "")


def _short(error: str) -> str:
    # The place of the error and its last line. The results in JSON hold all.
    lines = error.splitlines()
    return lines[0] if len(lines) < 3 else f"{lines[0]}: {lines[-2]}"


def verdicts(rows: Sequence[Row], targets: Mapping[str, float]) -> list[str]:
    """Return a line per target: the figure reached, and the side that reached it."""
    lines = []
    for name, least in targets.items():
        peer = best(rows) if name == BEST else _named(rows, name)
        if peer is None:
            lines.append(f"  target {least:g} x {name}: no figure to compare with")
            continue
        reached = median(peer.versus)
        word = "reached" if reached >= least else "MISSED"
        lines.append(f"  target {least:g} x {name} ({peer.side}): {reached:.2f} x, {word}")
    return lines


def best(rows: Sequence[Row]) -> Row | None:
    """Return the fastest peer that acknowledges after the run, by the median."""
    peers = [row for row in rows if row.versus and row.acknowledges_after]
    return max(peers, key=_by_figure, default=None)


def _named(rows: Sequence[Row], name: str) -> Row | None:
    return next((row for row in rows if row.side == name and row.versus), None)
