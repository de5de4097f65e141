"""Writes a scrape as the text that Prometheus reads. Needs the extra ``metrics``."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
except ImportError as error:
    raise ImportError(
        "/metrics needs prometheus-client; install it by pip install 'forge-jobs[metrics]'"
    ) from error

from forge_jobs.model.metrics import Histogram
from forge_jobs.model.series import FlowTotal
from forge_jobs.operating.metrics.reading import Scrape
from forge_jobs.policy.percentiles import bucket_of, cumulative, total_seconds, upper_bound

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NEAR = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 14400)
_EDGES = tuple(bucket_of(seconds) for seconds in _NEAR)
"""Stored buckets, so that what is counted below an edge is exact."""

_FLOW = {
    "enqueued": "Jobs that were stored.",
    "deduplicated": "Enqueues that met a job of their unique key.",
    "claimed": "Jobs that pods took.",
}


def exposition(scrape: Scrape) -> bytes:
    """Return the text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(scrape))
    return generate_latest(registry)


class _Collector:
    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape
        known = {queue.name for queue in scrape.queues}
        self._queues = [each for each in scrape.totals if each.queue in known and not each.kind]
        self._kinds = [each for each in scrape.totals if each.queue in known and each.kind]

    def collect(self) -> Iterator[Metric]:
        """Return the families, of which those of queues are exact."""
        yield from self._flow()
        yield from self._runs()
        yield from self._depth()
        yield self._slots()
        yield self._pods()
        yield self._problems()
        yield from self._limits()
        yield from self._rates()
        yield self._struck()
        yield from self._objectives()
        yield from self._outboxes()

    def _flow(self) -> Iterator[Metric]:
        for name, help in _FLOW.items():
            family = CounterMetricFamily(f"forge_jobs_{name}", help, labels=("queue",))
            for each in self._queues:
                family.add_metric((each.queue,), each.counts.get(name, 0))
            yield family
        yield _by_outcome("finished", "Ends of runs and of jobs, by cause. Exact.", self._queues)

    def _runs(self) -> Iterator[Metric]:
        labels = ("queue", "kind", "outcome")
        runs = CounterMetricFamily(
            "forge_jobs_runs", "Ends of runs as pods report them, by cause.", labels=labels
        )
        waited = _histogram("queue_wait_seconds", "From due to the start of the handler.")
        ran = _histogram("processing_duration_seconds", "From start to end of the handler.")
        for each in self._kinds:
            for outcome, count in sorted(each.counts.items()):
                runs.add_metric((each.queue, each.kind, outcome), count)
            _add(waited, each, each.delay)
            _add(ran, each, each.processing)
        yield from (runs, waited, ran)

    def _depth(self) -> Iterator[Metric]:
        depth = _gauge("queue_depth", "Jobs by status. due: could be claimed now.", "state")
        age = _gauge("oldest_available_age_seconds", "Age of the oldest due job, 0 without one.")
        for queue, counts in sorted(self._scrape.counts.items()):
            for state, count in sorted({**counts.by_status, "due": counts.due}.items()):
                depth.add_metric((queue, state), count)
            oldest = counts.oldest_due_for
            age.add_metric((queue,), oldest.total_seconds() if oldest else 0.0)
        yield from (depth, age)

    def _slots(self) -> Metric:
        family = _gauge("worker_slots", "Slots: used, granted to live pods, and at most.", "state")
        for queue in self._scrape.queues:
            counts = self._scrape.counts.get(queue.name)
            if counts is not None:
                used = counts.by_status.get("in_progress", 0)
                family.add_metric((queue.name, "used"), used)
                family.add_metric((queue.name, "granted"), self._scrape.granted(queue.name))
                family.add_metric((queue.name, "maximum"), queue.settings.max_workers)
        return family

    def _pods(self) -> Metric:
        live = len(self._scrape.live_pods)
        return GaugeMetricFamily("forge_jobs_live_pods", "Pods with a live lease.", value=live)

    def _objectives(self) -> Iterator[Metric]:
        """Queues without an objective have no samples."""
        met = _gauge("objective_met", "Share of jobs that started in time, at most 1.", "window")
        left = _gauge("objective_budget_left", "Share of the budget of 30 days, 1: all of it.")
        burn = _gauge("objective_burn", "How much too fast the budget burns, 1: just so.", "window")
        pods = _gauge("desired_pods", "Pods that keep the objective at the load of late.")
        for each in self._scrape.objectives:
            pods.add_metric((each.queue,), each.desired.pods)
            shares = {"1h": each.met_1h, "24h": each.met_24h, "30d": each.met_30d}
            for window, share in shares.items():
                if share is not None:
                    met.add_metric((each.queue, window), share)
            left.add_metric((each.queue,), each.budget_left)
            for window, rate in (("5m", each.burn_5m), ("1h", each.burn_1h)):
                burn.add_metric((each.queue, window), rate)
        yield from (met, left, burn, pods)

    def _limits(self) -> Iterator[Metric]:
        """Of each limit, and never of a key: there may be 50,000 of these."""
        jobs = _gauge("limit_jobs", "Jobs of a limit: running hold a permit.", "limit", "state")
        full = _gauge("limit_full_keys", "Keys of which as many jobs run as may.", "limit")
        oldest = _gauge(
            "limit_oldest_waiting_seconds", "Age of the oldest waiting job, 0 without.", "limit"
        )
        known = {queue.name for queue in self._scrape.queues}
        for each in self._scrape.limits:
            # Limits were read before the queues, of which one may have gone since.
            if each.queue not in known:
                continue
            of = (each.queue, each.name)
            jobs.add_metric((*of, "running"), each.running)
            jobs.add_metric((*of, "waiting"), each.waiting)
            full.add_metric(of, each.full)
            oldest.add_metric(of, self._age(each.oldest_due_at))
        yield from (jobs, full, oldest)

    def _rates(self) -> Iterator[Metric]:
        waiting = _of_rate("waiting", "Jobs that wait for tokens, of the 200 with the next turns.")
        oldest = _of_rate("oldest_waiting_seconds", "For how long the oldest of them has waited.")
        for each in self._scrape.rates:
            waiting.add_metric((each.scope,), each.waiting)
            oldest.add_metric((each.scope,), self._age(each.oldest_since))
        yield from (waiting, oldest)
        taken = _of_rate("taken_per_minute", "Tokens taken in the last minute, as pods report.")
        refused = _of_rate("refused_per_minute", "Tokens asked for in that minute and not given.")
        for tokens in self._scrape.tokens:
            taken.add_metric((tokens.scope,), tokens.taken)
            refused.add_metric((tokens.scope,), tokens.refused)
        yield from (taken, refused)

    def _age(self, since: datetime | None) -> float:
        now = self._scrape.judged_at
        return 0.0 if since is None or now is None else max((now - since).total_seconds(), 0.0)

    def _outboxes(self) -> Iterator[Metric]:
        waiting = _of_outbox("waiting", "Jobs of the outbox that wait for their destination.")
        aside = _of_outbox("set_aside", "Jobs that the destination refuses, for a person to mend.")
        oldest = _of_outbox("oldest_seconds", "Age of the oldest job that waits, 0 without one.")
        for name, state in sorted(self._scrape.outboxes.items()):
            waiting.add_metric((name,), state.waiting)
            aside.add_metric((name,), state.set_aside)
            oldest.add_metric((name,), state.oldest.total_seconds() if state.oldest else 0.0)
        yield from (waiting, aside, oldest)

    def _problems(self) -> Metric:
        labels = ("code", "severity")
        text = "What is wrong, as 'forge-jobs problems' lists, at most a minute old."
        family = GaugeMetricFamily("forge_jobs_problems", text, labels=labels)
        found = Counter((each.code.value, each.severity.value) for each in self._scrape.problems)
        for of, count in sorted(found.items()):
            family.add_metric(of, count)
        return family

    def _struck(self) -> Metric:
        text = "Jobs that a strike holds, of at most 20 strikes, at most a minute old."
        family = GaugeMetricFamily("forge_jobs_struck_jobs", text, labels=("queue", "strike"))
        for each in self._scrape.struck:
            family.add_metric((each.queue, each.strike), each.jobs)
        return family


def _by_outcome(name: str, text: str, totals: list[FlowTotal]) -> Metric:
    family = CounterMetricFamily(f"forge_jobs_{name}", text, labels=("queue", "outcome"))
    for each in totals:
        for outcome, count in sorted(each.counts.items()):
            if outcome not in _FLOW:
                family.add_metric((each.queue, outcome), count)
    return family


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"forge_jobs_{name}", text, labels=("queue", *labels))


def _of_outbox(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"forge_jobs_outbox_{name}", text, labels=("destination",))


def _of_rate(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"forge_jobs_rate_limit_{name}", text, labels=("limit",))


def _histogram(name: str, text: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"forge_jobs_{name}", text, labels=("queue", "kind"))


def _add(family: HistogramMetricFamily, total: FlowTotal, histogram: Histogram) -> None:
    below = zip(_EDGES, cumulative(histogram, _EDGES), strict=True)
    buckets = [(f"{upper_bound(edge):.6g}", float(count)) for edge, count in below]
    buckets.append(("+Inf", float(sum(histogram.counts.values()))))
    family.add_metric((total.queue, total.kind), buckets, total_seconds(histogram))
