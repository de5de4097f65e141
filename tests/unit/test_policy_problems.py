"""Problems: each from the instant on at which its rule holds, worst first, causes for effects."""

import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.model.metrics import Histogram
from forge_jobs.model.objectives import Objective
from forge_jobs.model.processes import OutboxGauge
from forge_jobs.policy.judgement.objectives import Delays, standing
from forge_jobs.policy.judgement.problems.judging import RULES, problems
from forge_jobs.policy.judgement.problems.problem import (
    Code,
    Problem,
    Severity,
    clock,
    for_long,
    jobs_page,
    number,
    page_of,
    waits,
)
from forge_jobs.policy.judgement.problems.snapshot import (
    CrashesSeen,
    ErrorsSeen,
    FullKeySeen,
    Growth,
    HeldKind,
    LimitSeen,
    PodSeen,
    QueueSeen,
    RunSeen,
    ScheduleSeen,
    Snapshot,
    StoreSeen,
    StruckSeen,
)
from tests.support.pages import check_command
from tests.support.simulated_queues import histogram

SINCE = datetime(2026, 11, 23, 13, 58, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
TICK = timedelta(microseconds=1)
AFTER = {rule.code: rule.after for rule in RULES}
BURNING = standing(
    Objective(0.95, 30 * SECOND),
    [Delays(start=SINCE - MINUTE, delays=histogram([300.0] * 50))],
    SINCE,
)


def queue(**seen: Any) -> dict[str, Any]:
    """A part of a snapshot: a queue with 4,120 jobs due for a long time."""
    due: dict[str, Any] = {"name": "mail", "due": 4_120, "oldest_due_at": SINCE - MINUTE}
    return {"queues": (QueueSeen(**due | seen),)}


def pod(**seen: Any) -> dict[str, Any]:
    """A part of a snapshot: a pod that has just beaten."""
    known: dict[str, Any] = {
        "name": "web-1",
        "version": "8f2c",
        "last_beat_at": SINCE + timedelta(days=1),
    }
    return {"pods": (PodSeen(**known | seen),)}


def run(**seen: Any) -> dict[str, Any]:
    known: dict[str, Any] = {"job_id": "01J", "queue": "gh", "kind": "image.crop", "pod": "web-3"}
    return {"runs": (RunSeen(**known | seen),)}


def store(**seen: Any) -> dict[str, Any]:
    return {"store": StoreSeen(**seen)}


CASES: dict[Code, dict[str, Any]] = {
    Code.UNSERVED_QUEUE: queue(pods=0, unserved_since=SINCE, served_by="pods of version 7a11"),
    Code.SLOTS_NOT_GRANTED: queue(granted=0, ungranted_since=SINCE),
    Code.PAUSED_WITH_WORK: queue(paused_since=SINCE, paused_by="ada"),
    Code.COOLING_WITH_WORK: queue(cooling_since=SINCE, cooling_until=SINCE + 9 * MINUTE),
    Code.BACKLOG_GROWING: queue(growth=Growth(since=SINCE, a_minute=40, arrivals=201, ends=161)),
    Code.OBJECTIVE_MISSED: queue(standing=BURNING, burning_since=SINCE),
    Code.UNKNOWN_KIND: queue(
        due=0, held=(HeldKind(kind="a", jobs=3, since=SINCE, known_by="pods of version 7a11"),)
    ),
    Code.STRUCK_WITH_WORK: {
        "struck": (StruckSeen(strike="no mail", queue="gh", jobs=3, since=SINCE, by="ada"),)
    },
    Code.CHILDREN_HELD: queue(
        due=0,
        children=2,
        children_since=SINCE,
        holding_parent="01KQ",
        mended_by="forge-jobs jobs requeue 01KQ",
    ),
    Code.ERROR_BURST: {
        "errors": (
            ErrorsSeen(
                queue="gh",
                kind="card",
                type="ValueError",
                message="card declined",
                failures=40,
                usual=2,
                first_at=SINCE,
                dead=37,
            ),
        )
    },
    Code.CRASH_LOOP: {
        "crashes": (
            CrashesSeen(queue="gh", kind="image.crop", crashes=3, first_at=SINCE, memory="95 %"),
        )
    },
    Code.LONG_RUNNER: run(started_at=SINCE - 20 * MINUTE, usual=2 * MINUTE),
    Code.CANCEL_IGNORED: run(started_at=SINCE - MINUTE, cancel_requested_at=SINCE),
    Code.LIMIT_STARVING: {
        "limits": (LimitSeen(scope="gh", waiting=60, oldest_since=SINCE, refill_a_minute=6),)
    },
    Code.KEY_STARVING: {
        "keys": (
            FullKeySeen(
                queue="gh",
                limit="hosts",
                key="example.org",
                running=2,
                waiting=60,
                since=SINCE - 2 * MINUTE,
                kinds=("page.fetch",),
                usual=2 * MINUTE,
            ),
        )
    },
    Code.OUTBOX_WAITING: {"outboxes": (OutboxGauge(name="jobs", waiting=60, waiting_since=SINCE),)},
    Code.OUTBOX_SET_ASIDE: {
        "outboxes": (OutboxGauge(name="jobs", set_aside=2, aside_since=SINCE),)
    },
    Code.POD_SILENT: pod(last_beat_at=SINCE, running=3),
    Code.POD_FLAPPING: pod(starts=3, first_start_at=SINCE),
    Code.LOOP_BLOCKED: pod(blocked_since=SINCE, blocked_in="shop.pay in parse_all", running=3),
    Code.DRAIN_STUCK: pod(draining_since=SINCE - 30 * SECOND, running=1),
    Code.CLOCK_SKEW: pod(skewed_since=SINCE, skew=-3 * SECOND),
    Code.POLLING_ONLY: pod(polling_since=SINCE),
    Code.POOL_EXHAUSTED: pod(exhausted_since=SINCE, pool_size=5, running=9),
    Code.NO_LEADER: {"leaderless_since": SINCE} | pod(),
    Code.SCHEDULE_BROKEN: {
        "schedules": (ScheduleSeen(name="nightly", error="no such day", error_at=SINCE),)
    },
    Code.SCHEDULE_LATE: {"schedules": (ScheduleSeen(name="nightly", next_at=SINCE),)},
    Code.STORE_SLOW: store(slow_since=SINCE, slowest="exchange", slowest_p99=2 * SECOND),
    Code.STORE_FULL: store(full_since=SINCE, used=95 * 2**20, bound=100 * 2**20),
    Code.OLD_TRANSACTION: store(transaction_since=SINCE),
    Code.ROLL_UP_BEHIND: store(rolled_up_to=SINCE) | pod(),
}


def at(now: datetime, parts: dict[str, Any]) -> tuple[Problem, ...]:
    return problems(Snapshot(now=now, **parts))


def codes(now: datetime, parts: dict[str, Any]) -> list[Code]:
    return [problem.code for problem in at(now, parts)]


@pytest.mark.parametrize("code", Code)
def test_a_problem_holds_from_its_instant_on_and_not_before(code: Code) -> None:
    first = SINCE + AFTER[code]

    assert codes(first - TICK, CASES[code]) == []
    [problem] = at(first, CASES[code])
    assert (problem.code, problem.since) == (code, SINCE)
    assert codes(first + timedelta(hours=3), CASES[code]) == [code]


@pytest.mark.parametrize("code", Code)
def test_people_on_call_read_sentences(code: Code) -> None:
    [problem] = at(SINCE + timedelta(hours=3), CASES[code])

    for text in (problem.evidence, problem.why, problem.action):
        assert re.fullmatch(r"[A-Z0-9].*\.", text), text
        assert not re.search(r"None|  |\.\.|\bit\b|;", text), text
        assert len(text) < 260, text
    assert problem.page.startswith("/")
    assert problem.about or code is Code.NO_LEADER
    if problem.command:
        command, *words = shlex.split(problem.command)
        assert command == "forge-jobs"
        check_command(words)


def test_every_code_has_one_rule_and_a_case() -> None:
    assert sorted(rule.code for rule in RULES) == sorted(Code)
    assert set(CASES) == set(Code)
    assert all(rule.look.__doc__ for rule in RULES)


def test_the_page_says_what_the_wireframe_says() -> None:
    [problem] = at(SINCE + 21 * MINUTE, CASES[Code.UNSERVED_QUEUE])

    assert problem.severity is Severity.CRITICAL
    assert problem.evidence == ("Queue mail is not served. 4,120 jobs wait, the oldest for 22 min.")
    assert problem.why == (
        "No live pod serves the queue since 13:58:00 UTC. Until then pods of version 7a11 did."
    )
    assert problem.command == "forge-jobs worker MODULE:ATTR --queues mail"
    assert problem.page == "/queues/mail"


HEALTHY: dict[str, Any] = {
    "queues": (
        QueueSeen(name="gh", due=12, oldest_due_at=SINCE - 2 * SECOND, pods=3, max_workers=8,
                  granted=8, standing=standing(Objective(0.95, MINUTE), [], SINCE)),
        QueueSeen(name="night", pods=0, unserved_since=SINCE - 9 * MINUTE, granted=0),
        QueueSeen(name="off", paused_since=SINCE - 9 * MINUTE, cooling_since=SINCE - 9 * MINUTE),
    ),
    "errors": (ErrorsSeen(queue="gh", kind="a", type="E", message="", failures=9, usual=0,
                          first_at=SINCE - MINUTE),
               ErrorsSeen(queue="gh", kind="b", type="E", message="", failures=50, usual=20,
                          first_at=SINCE - MINUTE)),
    "crashes": (CrashesSeen(queue="gh", kind="a", crashes=2, first_at=SINCE - MINUTE),),
    "runs": (RunSeen(job_id="01J", queue="gh", kind="a", pod="web-1",
                     started_at=SINCE - 50 * SECOND, usual=SECOND),
             RunSeen(job_id="01K", queue="gh", kind="new", pod="web-1",
                     started_at=SINCE - 500 * MINUTE)),
    "pods": (PodSeen(name="web-1", last_beat_at=SINCE - 4 * SECOND, running=8, starts=2,
                     first_start_at=SINCE - 9 * MINUTE),
             PodSeen(name="web-2", last_beat_at=SINCE, draining_since=SINCE - 60 * MINUTE)),
    "limits": (LimitSeen(scope="gh", waiting=3, oldest_since=SINCE - MINUTE, refill_a_minute=60),
               LimitSeen(scope="x", waiting=0, oldest_since=SINCE - 60 * MINUTE,
                         refill_a_minute=0)),
    "schedules": (ScheduleSeen(name="nightly", next_at=SINCE + MINUTE),
                  ScheduleSeen(name="hourly", next_at=SINCE - 30 * SECOND)),
    "store": StoreSeen(used=50, bound=100, transaction_since=SINCE - SECOND,
                       rolled_up_to=SINCE - 90 * SECOND),
}  # fmt: skip


def test_a_healthy_installation_has_no_problem() -> None:
    assert at(SINCE, HEALTHY) == ()
    assert at(SINCE, {}) == ()


def test_jobs_that_came_after_the_cause_wait_since_they_are_due() -> None:
    late = queue(pods=0, unserved_since=SINCE - 60 * MINUTE, oldest_due_at=SINCE)

    assert codes(SINCE + 29 * SECOND, late) == []
    [problem] = at(SINCE + 30 * SECOND, late)
    assert problem.since == SINCE


@pytest.mark.parametrize(
    "cause",
    [
        {"pods": 0, "unserved_since": SINCE - MINUTE},
        {"granted": 0, "ungranted_since": SINCE - MINUTE},
        {"paused_since": SINCE - MINUTE},
        {"cooling_since": SINCE - MINUTE},
    ],
)
def test_a_cause_stands_for_what_follows_from_it(cause: dict[str, Any]) -> None:
    growth = Growth(since=SINCE - 60 * MINUTE, a_minute=40, arrivals=40, ends=0)
    follows = {"growth": growth, "standing": BURNING, "burning_since": SINCE - MINUTE}

    assert codes(SINCE, queue(**follows)) == [Code.OBJECTIVE_MISSED, Code.BACKLOG_GROWING]
    assert len(codes(SINCE + MINUTE, queue(**follows, **cause))) == 1


@pytest.mark.parametrize("cause", ["paused_since", "cooling_since"])
def test_more_workers_are_no_help_where_nothing_may_run(cause: str) -> None:
    """Also in the first minute, in which the pause is no problem yet."""
    growth = Growth(since=SINCE - 60 * MINUTE, a_minute=1, arrivals=1, ends=0)

    [found] = at(SINCE, queue(growth=growth))
    assert found.evidence.startswith("Queue mail grows by 1 job a minute.")
    assert codes(SINCE, queue(growth=growth, **{cause: SINCE - SECOND})) == []


def test_a_cause_explains_its_own_queue_alone() -> None:
    other = QueueSeen(name="gh", due=9, standing=BURNING, burning_since=SINCE)
    parts = queue(pods=0, unserved_since=SINCE)
    parts["queues"] += (other,)

    assert codes(SINCE + MINUTE, parts) == [Code.UNSERVED_QUEUE, Code.OBJECTIVE_MISSED]


def test_without_a_leader_slots_and_schedules_are_no_problem_of_their_own() -> None:
    parts = (
        CASES[Code.SLOTS_NOT_GRANTED]
        | CASES[Code.SCHEDULE_LATE]
        | CASES[Code.ROLL_UP_BEHIND]
        | CASES[Code.NO_LEADER]
    )

    assert codes(SINCE + 9 * MINUTE, parts) == [Code.NO_LEADER]


def test_a_kind_of_this_package_comes_with_an_include() -> None:
    held = (HeldKind(kind="forge.group", jobs=1, since=SINCE),)

    [found] = at(SINCE + 9 * MINUTE, queue(due=0, held=held))

    assert "handlers.include(group_handlers())." in found.why


def test_the_worst_comes_first() -> None:
    held = (HeldKind(kind="few", jobs=2, since=SINCE), HeldKind(kind="many", jobs=9, since=SINCE))
    older = HeldKind(kind="older", jobs=2, since=SINCE - MINUTE)
    parts = queue(due=0, held=(*held, older)) | CASES[Code.NO_LEADER] | pod(polling_since=SINCE)

    found = at(SINCE + 9 * MINUTE, parts)

    assert [problem.about for problem in found] == ["", "many", "older", "few", "web-1"]
    assert [problem.severity for problem in found] == ["critical", *["warning"] * 3, "notice"]


def test_more_slots_are_offered_only_when_all_are_granted() -> None:
    growth = Growth(since=SINCE, a_minute=4, arrivals=9, ends=5)

    [full] = at(SINCE + 10 * MINUTE, queue(growth=growth, max_workers=8, granted=8))
    [part] = at(SINCE + 10 * MINUTE, queue(growth=growth, max_workers=8, granted=3))

    assert full.command == "forge-jobs queues set mail --max-workers 16"
    assert part.command == "forge-jobs worker MODULE:ATTR --queues mail"


def test_names_are_quoted_in_commands_and_pages() -> None:
    odd = "a b/'<x>"
    parts = {"schedules": (ScheduleSeen(name=odd, next_at=SINCE),)}

    [problem] = at(SINCE + MINUTE, parts)

    assert shlex.split(problem.command)[-1] == odd
    assert problem.page == "/cron/a%20b%2F%27%3Cx%3E"


def test_problems_are_json() -> None:
    found = at(SINCE + timedelta(hours=3), CASES[Code.UNSERVED_QUEUE])

    [document] = msgspec.json.decode(msgspec.json.encode(found))
    assert {"code", "severity", "since", "evidence", "why", "action", "page"} <= set(document)


MOMENTS = st.none() | st.integers(-10_000, 10_000).map(lambda s: SINCE + s * SECOND)
QUEUES = st.builds(
    QueueSeen,
    name=st.sampled_from(["a", "b"]),
    due=st.integers(0, 5),
    oldest_due_at=MOMENTS,
    pods=st.integers(0, 2),
    max_workers=st.integers(0, 3),
    granted=st.integers(0, 3),
    unserved_since=MOMENTS,
    ungranted_since=MOMENTS,
    paused_since=MOMENTS,
    cooling_since=MOMENTS,
    cooling_until=MOMENTS,
    children=st.integers(0, 2),
    children_since=MOMENTS,
)
PODS = st.builds(
    PodSeen,
    name=st.sampled_from(["x", "y"]),
    last_beat_at=MOMENTS.filter(bool),
    running=st.integers(0, 2),
    starts=st.integers(0, 5),
    first_start_at=MOMENTS,
    blocked_since=MOMENTS,
    draining_since=MOMENTS,
    polling_since=MOMENTS,
    skewed_since=MOMENTS,
    exhausted_since=MOMENTS,
)
_RANKS = list(Severity)


@given(st.lists(QUEUES, max_size=4).map(tuple), st.lists(PODS, max_size=4).map(tuple), MOMENTS)
def test_any_snapshot_is_judged_and_in_order(
    queues: tuple[QueueSeen, ...], pods: tuple[PodSeen, ...], leaderless: datetime | None
) -> None:
    found = at(SINCE, {"queues": queues, "pods": pods, "leaderless_since": leaderless})

    ranks = [_RANKS.index(problem.severity) for problem in found]
    assert ranks == sorted(ranks)
    assert all(problem.since + AFTER[problem.code] <= SINCE for problem in found)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: for_long(timedelta(seconds=-3)), "0 s"),
        (lambda: for_long(119 * SECOND), "119 s"),
        (lambda: for_long(120 * SECOND), "2 min"),
        (lambda: for_long(119 * MINUTE), "119 min"),
        (lambda: for_long(47 * 60 * MINUTE), "47 h"),
        (lambda: for_long(timedelta(days=3)), "3 days"),
        (lambda: number(1, "job"), "1 job"),
        (lambda: number(4_120, "job"), "4,120 jobs"),
        (lambda: waits(1, "job"), "1 job waits"),
        (lambda: waits(2, "job"), "2 jobs wait"),
        (lambda: clock(SINCE, SINCE + MINUTE), "13:58:00 UTC"),
        (lambda: clock(SINCE, SINCE + timedelta(days=1)), "2026-11-23 13:58:00 UTC"),
        (lambda: page_of("pods"), "/pods"),
        (lambda: jobs_page("queue:gh kind:a"), "/jobs?q=queue%3Agh%20kind%3Aa"),
    ],
)
def test_words(make: Callable[[], str], text: str) -> None:
    assert make() == text


def test_no_histogram_burns_nothing() -> None:
    empty = Delays(start=SINCE - MINUTE, delays=Histogram({}))
    stands = standing(Objective(0.95, MINUTE), [empty], SINCE)

    assert codes(SINCE, queue(standing=stands, burning_since=SINCE)) == []
