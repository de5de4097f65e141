"""The outlook of a queue with other workers or other arrivals: clears when, grows by how much."""

import math
from datetime import timedelta
from enum import StrEnum

from msgspec import Struct

from forge_jobs.errors import InvalidInput
from forge_jobs.model.queues import MAX_WORKERS_LIMIT
from forge_jobs.policy.explanations import count
from forge_jobs.policy.judgement.load import Load
from forge_jobs.policy.judgement.waiting import steady_wait
from forge_jobs.policy.percentiles import Moments

_TENTH = 0.1
_ERRORS = 3.0
"""How many standard errors of the measurement a verdict must stand away from the balance."""

_BUCKETS = 0.05
"""How far the buckets of a histogram can be off in a mean, evenly in both directions."""

_BAND = 1.645
"""Standard deviations on each side that hold nine of ten."""

_WIDEST = 20.0
"""A span of e to this is no statement any more, and wider ones overflow."""


class Verdict(StrEnum):
    """The code of an outlook."""

    CLEARS = "clears"
    GROWS = "grows"
    TOO_CLOSE = "too_close"
    """Arrivals and workers balance within a tenth, or within what the measurement can tell."""
    STANDS = "stands"
    """Nothing arrives and nothing may run."""
    UNKNOWN = "unknown"
    """No run ended in the time that was measured, so no length of a run is known."""


class Outlook(Struct, frozen=True, kw_only=True):
    """The outlook of a queue.

    :param text: one sentence for people
    :param rests_on: the measurement behind it, for people
    :param use: the part of the workers that arrivals keep busy. 1 is the balance. None where no run
        is known, or no worker
    :param clears_in: until no job waits. Of ``CLEARS``
    :param earliest: with ``latest`` a span that holds nine of ten such queues
    :param delay: from then on 95 of 100 jobs start within this. Of ``CLEARS``
    :param grows_by: jobs a minute. Of ``GROWS``
    """

    verdict: Verdict
    text: str
    rests_on: str
    use: float | None = None
    clears_in: timedelta | None = None
    earliest: timedelta | None = None
    latest: timedelta | None = None
    delay: timedelta | None = None
    grows_by: float | None = None


def what_if(load: Load, *, max_workers: int | None = None, arrivals: float = 1.0) -> Outlook:
    """Say what becomes of a queue, with another number of workers or other arrivals.

    The backlog is taken as a fluid that drains at workers / run time - arrivals (G. F. Newell,
    Applications of Queueing Theory, 1982, chapter 2). Workers that begin together have ended
    t / mean + (scv - 1) / 2 runs after t (D. R. Cox, Renewal Theory, 1962, section 4.2). The span
    is that of the first passage of a Brownian motion with that drift, and of the measurement.

    Limits by key or kind, rate limits and the room of the pods are not known here: where one of
    them binds, the queue is slower.

    :param max_workers: in place of the measured one, 0 to 100,000
    :param arrivals: a factor: 1.5 for half as many again
    :raises InvalidInput: a number out of range
    """
    workers = load.max_workers if max_workers is None else max_workers
    if not 0 <= workers <= MAX_WORKERS_LIMIT:
        raise InvalidInput("max_workers", f"is {workers}", f"give 0 to {MAX_WORKERS_LIMIT}")
    if not (math.isfinite(arrivals) and arrivals >= 0):
        raise InvalidInput("arrivals", f"is {arrivals}", "give a factor from 0, such as 1.5")
    rate = load.rate * arrivals
    runs = load.moments
    if workers == 0:
        return _without_workers(load, rate)
    if runs is None and rate == 0 and load.waiting + load.running <= workers:
        return _clears(load, 0.0, 0.0, timedelta(0), use=0.0)
    if runs is None:
        text = "not known: no run ended in the time that was measured"
        return Outlook(verdict=Verdict.UNKNOWN, text=text, rests_on=load.rests_on())
    return _at_work(load, rate, runs, workers)


def _at_work(load: Load, rate: float, runs: Moments, workers: int) -> Outlook:
    use = rate * runs.mean / workers
    error = load.error_of_use(runs)
    margin = max(_TENTH, _BUCKETS + _ERRORS * error)
    if abs(use - 1) <= margin * max(use, 1) and use > 0:
        text = (
            f"too close to call: {count(workers, 'worker')} would be busy to {use:.0%}, and the "
            f"measurement tells {margin:.0%} apart"
        )
        return Outlook(verdict=Verdict.TOO_CLOSE, text=text, rests_on=load.rests_on(), use=use)
    if use > 1:
        return _grows(load, (rate - workers / runs.mean) * 60, use)
    starters = max(workers - load.running, 0)
    ahead = load.waiting + load.running - workers
    drain = (workers / runs.mean - rate) if runs.mean > 0 else math.inf
    if ahead <= 0:
        seconds = spread = 0.0
    else:
        seconds = max(ahead - starters * (runs.scv - 1) / 2, 0.0) / drain
        passage = (use + runs.scv) / (ahead * (1 - use))
        measured = (error**2 + _BUCKETS**2 / 3) / (1 - use) ** 2
        spread = math.sqrt(passage + measured)
    wait = steady_wait(rate, runs, workers)
    delay = timedelta(seconds=wait.quantile(0.95) if wait else 0.0)
    return _clears(load, seconds, spread, delay, use=use)


def _clears(load: Load, seconds: float, spread: float, delay: timedelta, *, use: float) -> Outlook:
    factor = math.exp(min(_BAND * spread, _WIDEST))
    clears_in, earliest, latest = (
        timedelta(seconds=min(each, 1e12)) for each in (seconds, seconds / factor, seconds * factor)
    )
    then = f"then 95 of 100 jobs start within {in_words(delay)}"
    if seconds:
        between = f"between {in_words(earliest)} and {in_words(latest)}"
        text = f"clears in about {in_words(clears_in)} ({between}), {then}"
    else:
        text = f"no backlog: 95 of 100 jobs start within {in_words(delay)}"
    return Outlook(
        verdict=Verdict.CLEARS,
        text=text,
        rests_on=load.rests_on(),
        use=use,
        clears_in=clears_in,
        earliest=earliest,
        latest=latest,
        delay=delay,
    )


def _grows(load: Load, a_minute: float, use: float | None) -> Outlook:
    text = f"never clears: grows by {a_minute:.3g} jobs a minute"
    return Outlook(
        verdict=Verdict.GROWS, text=text, rests_on=load.rests_on(), use=use, grows_by=a_minute
    )


def _without_workers(load: Load, rate: float) -> Outlook:
    if rate:
        return _grows(load, rate * 60, None)
    text = "stands still: nothing arrives, and no worker is allowed"
    return Outlook(verdict=Verdict.STANDS, text=text, rests_on=load.rests_on())


_SPANS = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0))


def in_words(length: timedelta) -> str:
    """A duration for people, in one unit of two digits: ``14 min``, ``1.5 h``, ``0.2 s``."""
    seconds = length.total_seconds()
    unit, size = next((each for each in _SPANS if seconds >= each[1]), _SPANS[-1])
    number = seconds / size
    return f"{number:.0f} {unit}" if number >= 10 else f"{number:.2g} {unit}"
