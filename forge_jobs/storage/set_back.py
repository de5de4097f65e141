"""What stores share about a clock that has been set back."""

from datetime import timedelta

from forge_jobs.model.jobs import Cause

TOLERANCE_US = 1_000_000
"""How far ahead of the store's time a stamp may lie before the clock counts as set back.

A call reads the clock once, and another may write a later time before it looks.
"""

UNBELIEVABLE_US = 86_400_000_000
"""A lease that is longer than this has been spoilt: it counts as run out."""

LONGEST_TURN = timedelta(minutes=15)
"""A job that waits for a rate limit is due no later than this: a limit may be raised, and jobs that
have turns may be deleted."""

DUE_WHEN_STORED = (
    Cause.RELEASED,
    Cause.INTERRUPTED,
    Cause.THROTTLED,
    Cause.REQUEUED,
)
"""Causes of a pending job that was due when it became pending.

Others were due too: those of the cause ``enqueued`` that were due at their enqueue, those of
``parents_settled`` that no time was asked for, and those of ``crashed`` with one crash, since only
a further one makes a job pause.
"""
