"""Sums over minutes, as all stores make them."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from forge_jobs.model.metrics import Histogram, MetricBucket


class Summary:
    """The counts and histograms of a queue so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._processing: dict[int, int] = {}
        self._total: dict[int, int] = {}

    def add(
        self, counts: Mapping[str, int], processing: Mapping[int, int], total: Mapping[int, int]
    ) -> None:
        """Add a minute or an hour."""
        if counts:
            self.counts.update(counts)
        _add(self._processing, processing)
        _add(self._total, total)

    def bucket(self, queue: str, since: datetime, until: datetime) -> MetricBucket:
        """Return the sums as one bucket of the whole span."""
        return MetricBucket(
            queue=queue,
            minute=since,
            counts=dict(self.counts),
            processing=Histogram(self._processing),
            total=Histogram(self._total),
            length=until - since,
        )


def _add(sums: dict[int, int], more: Mapping[int, int]) -> None:
    # The update of a counter takes twice as long, and a page adds thousands of histograms.
    for bucket, count in more.items():
        sums[bucket] = sums.get(bucket, 0) + count
