"""The list of problems that every surface shows: Overview, doctor, top, API and metrics."""

from datetime import timedelta

from msgspec import structs

from forge_jobs.policy.judgement.problems import fleet, jobs, limits, outboxes, queues, store
from forge_jobs.policy.judgement.problems.problem import Code, Look, Problem, Rule, Severity
from forge_jobs.policy.judgement.problems.snapshot import Snapshot

_AT_ONCE = timedelta(0)
_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)
_CLOSED = frozenset(
    {
        Code.UNSERVED_QUEUE,
        Code.SLOTS_NOT_GRANTED,
        Code.PAUSED_WITH_WORK,
        Code.COOLING_WITH_WORK,
    }
)
"""Codes that explain why jobs of a queue start late."""


def _rule(
    code: Code,
    severity: Severity,
    after: timedelta,
    look: Look,
    explained_by: frozenset[Code] = frozenset(),
) -> Rule:
    return Rule(code=code, severity=severity, after=after, look=look, explained_by=explained_by)


_C, _W, _N = Severity.CRITICAL, Severity.WARNING, Severity.NOTICE

RULES: tuple[Rule, ...] = (
    _rule(Code.NO_LEADER, _C, 15 * _SECOND, fleet.no_leader),
    _rule(Code.UNSERVED_QUEUE, _C, 30 * _SECOND, queues.unserved),
    _rule(
        Code.SLOTS_NOT_GRANTED,
        _C,
        15 * _SECOND,
        queues.not_granted,
        frozenset({Code.NO_LEADER}),
    ),
    _rule(Code.STORE_FULL, _C, _AT_ONCE, store.full),
    _rule(Code.CRASH_LOOP, _C, _AT_ONCE, jobs.crash_loop),
    _rule(Code.SCHEDULE_BROKEN, _C, _AT_ONCE, fleet.schedule_broken),
    _rule(Code.OBJECTIVE_MISSED, _C, _AT_ONCE, queues.objective_missed, _CLOSED),
    _rule(Code.ERROR_BURST, _W, _AT_ONCE, jobs.error_burst),
    _rule(Code.UNKNOWN_KIND, _W, _MINUTE, queues.unknown_kind),
    _rule(Code.BACKLOG_GROWING, _W, 10 * _MINUTE, queues.growing, _CLOSED),
    _rule(Code.LOOP_BLOCKED, _W, 5 * _SECOND, fleet.loop_blocked),
    _rule(Code.POD_SILENT, _W, 15 * _SECOND, fleet.pod_silent),
    _rule(Code.POD_FLAPPING, _W, _AT_ONCE, fleet.pod_flapping),
    _rule(Code.DRAIN_STUCK, _W, 10 * _SECOND, fleet.drain_stuck),
    _rule(Code.CANCEL_IGNORED, _W, 30 * _SECOND, jobs.cancel_ignored),
    _rule(Code.LONG_RUNNER, _W, _AT_ONCE, jobs.long_runner),
    _rule(Code.LIMIT_STARVING, _W, 5 * _MINUTE, limits.limit_starving),
    _rule(Code.KEY_STARVING, _W, 5 * _MINUTE, limits.key_starving),
    _rule(Code.CHILDREN_HELD, _W, _MINUTE, queues.children_held),
    _rule(Code.SCHEDULE_LATE, _W, _MINUTE, fleet.schedule_late, frozenset({Code.NO_LEADER})),
    _rule(Code.STORE_SLOW, _W, 2 * _MINUTE, store.slow),
    _rule(
        Code.POOL_EXHAUSTED, _W, 30 * _SECOND, fleet.pool_exhausted, frozenset({Code.STORE_SLOW})
    ),
    _rule(Code.OLD_TRANSACTION, _W, 5 * _MINUTE, store.old_transaction),
    _rule(Code.ROLL_UP_BEHIND, _W, 5 * _MINUTE, store.roll_up_behind, frozenset({Code.NO_LEADER})),
    _rule(Code.OUTBOX_WAITING, _W, 5 * _MINUTE, outboxes.waiting),
    _rule(Code.OUTBOX_SET_ASIDE, _W, _MINUTE, outboxes.set_aside),
    _rule(Code.PAUSED_WITH_WORK, _N, _MINUTE, queues.paused),
    _rule(Code.STRUCK_WITH_WORK, _N, _MINUTE, jobs.struck),
    _rule(Code.COOLING_WITH_WORK, _N, _MINUTE, queues.cooling),
    _rule(Code.CLOCK_SKEW, _N, _MINUTE, fleet.clock_skew),
    # The first gauges of a pod may be from before its connection to listen is there.
    _rule(Code.POLLING_ONLY, _N, 2 * _MINUTE, fleet.polling_only),
)
"""The rules: code, severity, and how long the cause must have lasted."""

_RANK = {severity: rank for rank, severity in enumerate(Severity)}


def problems(seen: Snapshot) -> tuple[Problem, ...]:
    """Return what is wrong, the worst first: by severity, by how many jobs suffer, by how long.

    A problem that another one explains is left out, so that the first lines name causes: a queue
    without a pod also grows and also misses its objective.
    """
    found = [
        Problem(code=rule.code, severity=rule.severity, **structs.asdict(finding))
        for rule in RULES
        for finding in rule.look(seen)
        if seen.now >= finding.since + rule.after
    ]
    causes = {(problem.code, problem.queue) for problem in found}
    left = [
        problem
        for problem in found
        if not any(
            (code, queue) in causes
            for code in _BY_CODE[problem.code].explained_by
            for queue in (problem.queue, "")
        )
    ]
    return tuple(
        sorted(
            left,
            key=lambda problem: (
                _RANK[problem.severity],
                -problem.jobs,
                problem.since,
                problem.code,
                problem.about,
            ),
        )
    )


_BY_CODE = {rule.code: rule for rule in RULES}
