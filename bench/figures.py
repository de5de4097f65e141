"""A figure: several runs of one workload, of which the median is quoted."""

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct


class Figure(Struct, frozen=True, kw_only=True):
    """A figure of several runs.

    :param runs: one value per run, in the order of the runs
    :param target: the aim in words, "" where a comparison has the aim
    :param costs: medians, by name with unit
    """

    store: str
    name: str
    unit: str
    runs: tuple[float, ...]
    target: str = ""
    costs: Mapping[str, float] = {}

    @property
    def median(self) -> float:
        return median(self.runs)

    def lines(self) -> str:
        """Return median, minimum and maximum in an aligned line, and the costs in a second line."""
        low, high = min(self.runs), max(self.runs)
        text = (
            f"{self.store:<9} {self.name:<52} {self.median:>12,.2f} {self.unit:<10}"
            f" min {low:,.2f}  max {high:,.2f}  n={len(self.runs)}"
        )
        if self.target:
            text += f"  target {self.target}"
        if self.costs:
            costs = (f"{name} {value:,.2f}" for name, value in self.costs.items())
            text += f"\n{'':10}  {'; '.join(costs)}"
        return text


def percentile(values: Sequence[float], q: float) -> float:
    """Return the nearest-rank percentile of ``values``, with ``q`` in (0, 1]."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * q // 1))
    return ordered[int(rank) - 1]


def median_costs(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each cost over the runs that have it."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: median([run[name] for run in runs if name in run]) for name in names}


def ratios(ours: Sequence[float | None], theirs: Sequence[float | None]) -> tuple[float, ...]:
    """Ours over theirs, round by round, so that a drift of the machine touches both sides of each
    pair. A round that one side did not finish (None) counts for neither."""
    return tuple(a / b for a, b in zip(ours, theirs, strict=True) if a is not None and b)
