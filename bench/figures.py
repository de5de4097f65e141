"""A figure: several runs of one workload, of which the median is quoted."""

from statistics import median

from msgspec import Struct


class Figure(Struct, frozen=True):
    """:param runs: one value per run, in the order they were made"""

    name: str
    unit: str
    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.runs)

    def line(self) -> str:
        """The figure as one aligned line: median, then minimum and maximum."""
        low, high = min(self.runs), max(self.runs)
        return (
            f"{self.name:<44} {self.median:>12,.2f} {self.unit:<14}"
            f" min {low:,.2f}  max {high:,.2f}  n={len(self.runs)}"
        )


def percentile(values: list[float], q: float) -> float:
    """The nearest-rank percentile of ``values``; ``q`` in (0, 1]."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * q // 1))
    return ordered[int(rank) - 1]
