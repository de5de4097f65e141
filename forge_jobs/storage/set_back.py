"""Shared rules for a store's clock that has been set back."""

from datetime import timedelta

from forge_jobs.model.jobs import Cause

TOLERANCE_US = 1_000_000
"""How far ahead of the store's time a stamp may lie before the clock counts as set back.

A call reads the clock once, and another call may store a later time before the first looks.
"""

UNBELIEVABLE_US = 86_400_000_000
"""A lease longer than this has been spoilt, and counts as run out."""

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

Other jobs were due too: of the cause ``enqueued`` those due at their enqueue, of
``parents_settled``, ``succeeded`` and ``restored`` those without a requested time, and of
``crashed`` those with one crash, since only a further crash makes a job pause.
"""
