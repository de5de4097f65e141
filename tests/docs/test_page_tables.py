"""Tables of the manual say what the code says."""

import inspect
import random
import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest

import forge_jobs
from forge_jobs.handlers.options import HandlerOptions, JobOptions
from forge_jobs.handlers.requests import EnqueueOptions
from forge_jobs.model.ids import HostId, new_job_id
from forge_jobs.model.jobs import (
    DEFAULT_MAX_ATTEMPTS,
    TERMINAL,
    Cause,
    Claim,
    ClaimedJob,
    Hold,
    JobStatus,
)
from forge_jobs.model.transitions import Occurrence, StaleClaim, Transition
from forge_jobs.policy.transitions import AttemptEnd, Rules, next_transition, stale_transition
from tests.support.pages import ROOT


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The first table under a heading: first cell -> the others."""
    rows = re.search(r"(?:^\|.*\n)+", _section(page, heading), re.MULTILINE)
    assert rows is not None
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows.group().splitlines()[2:]]
    return {first.strip(): [cell.strip() for cell in rest] for first, *rest in cells}


def _section(page: str, heading: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.split(rf"^#+ {re.escape(heading)}$", text, flags=re.MULTILINE)[1].split("\n#")[0]


def names_in(rows: dict[str, list[str]]) -> list[str]:
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


# -- enqueue and handlers --------------------------------------------------------------------------


def test_the_page_on_enqueue_has_every_option() -> None:
    shown = table("enqueue.md", "Every option")
    assert sorted(names_in(shown)) == sorted(EnqueueOptions.__annotations__)


def test_the_page_on_enqueue_has_the_defaults() -> None:
    shown = {row.strip("`"): cells[0] for row, cells in table("enqueue.md", "Every option").items()}
    defaults = HandlerOptions()
    assert shown["priority"] == str(defaults.priority)
    assert shown["max_attempts"] == str(defaults.max_attempts) == str(DEFAULT_MAX_ATTEMPTS)
    assert shown["keep_result"] == str(defaults.keep_result)
    without = set(shown) - {"queue", "priority", "max_attempts", "keep_result", "id"}
    assert {shown[name] for name in without} == {"none"}


def test_the_page_on_handlers_has_every_option_of_the_decorator() -> None:
    shown = table("handlers.md", "Options of `job(...)`")
    assert names_in(shown) == ["kind", *JobOptions.__annotations__]


def test_the_page_on_schedules_has_every_option() -> None:
    from forge_jobs import schedule

    shown = table("schedules.md", "Options")
    parameters = inspect.signature(schedule).parameters.values()
    expected = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    assert names_in(shown) == expected


# -- the glossary ----------------------------------------------------------------------------------


def test_the_words_of_the_glossary_are_sorted_and_each_is_there_once() -> None:
    words = list(table("glossary.md", "Glossary"))
    assert words == sorted(words, key=str.lower)
    rows = re.findall(r"^\| (.+?) \|", _section("glossary.md", "Glossary"), re.MULTILINE)
    assert len(rows) == len(words) + 1


@pytest.mark.parametrize(("heading", "names"), [("Statuses", JobStatus), ("Causes", Cause)])
def test_the_glossary_has_each_status_and_cause(heading: str, names: type[StrEnum]) -> None:
    assert names_in(table("glossary.md", heading)) == list(names)


_PLAIN_ENGLISH = frozenset(
    re.findall(
        r"\w+",
        "access alone answering api apply around cli closed conflict decryption depends end"
        " exponential fixed forbidden forge found from injected input invalid judging lib limited"
        " linear list locked matching metric mismatch missing not one operate operating option"
        " postgres"
        " program read redis registration slow sql sqlite state successful sync testing undecodable"
        " web wrong",
    )
)


def _forms(word: str) -> set[str]:
    """Return the word, and the words that a plural or a verb form may come from."""
    stems = {word, word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("ies") + "y"}
    for ending in ("ed", "d", "ing", "led", "ption"):
        stems.add(word.removesuffix(ending))
    return stems | {word.removesuffix("ption") + "pt", word.removesuffix("ing") + "e"}


def test_the_glossary_has_the_words_of_folders_and_of_public_classes() -> None:
    folders = [each for each in (ROOT / "forge_jobs").rglob("*") if (each / "__init__.py").exists()]
    names = [word for folder in folders for word in folder.name.split("_")]
    classes = [name for name in forge_jobs.__all__ if name[0].isupper()]
    names += [word.lower() for name in classes for word in re.findall("[A-Z][a-z]+", name)]

    explained = re.findall(r"[a-z]+", " ".join(table("glossary.md", "Glossary")).lower())
    known = _PLAIN_ENGLISH.union(explained)
    assert sorted({name for name in names if not _forms(name) & known}) == []


# -- retries and outcomes --------------------------------------------------------------------------

_ERROR = RuntimeError("the bank is busy")
_SECONDS = timedelta(seconds=1)


def _job(attempt: int = 1, snoozes: int = 0) -> ClaimedJob:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return ClaimedJob(
        claim=Claim("payments", new_job_id(), 1, HostId("pod")),
        kind="card.charge",
        payload="{}",
        attempt=attempt,
        max_attempts=5,
        crashes=0,
        snoozes=snoozes,
        priority=0,
        timeout=None,
        tags=(),
        metadata="{}",
        trace="",
        run_at=now,
        enqueued_at=now,
        keep_result=True,
    )


def _end(cause: Cause, *, attempt: int = 1, snoozes: int = 0, **parts: object) -> Transition:
    end = AttemptEnd(cause=cause, exception=_ERROR, **parts)  # type: ignore[arg-type]
    rules = Rules(max_snoozes=3 if snoozes else None)
    return next_transition(end, _job(attempt, snoozes), rules, random.Random(7))


def _crash(number: int, attempt: int = 1) -> Transition:
    stale = StaleClaim(
        claim=_job().claim,
        kind="card.charge",
        attempt=attempt,
        max_attempts=5,
        crashes=number - 1,
        started=True,
        cancel_requested=False,
    )
    # As the reaper makes the call, with the default settings.
    return stale_transition(stale, max_crashes=3, pause=15 * _SECONDS)


ENDS = {
    "the handler returned": _end(Cause.SUCCEEDED),
    "`Again(60)`": _end(
        Cause.SUCCEEDED,
        delay=60 * _SECONDS,
        again=Occurrence(
            payload="{}", metadata="{}", max_attempts=5, timeout=None, keep_result=True, trace=""
        ),
    ),
    "an exception, attempts are left": _end(Cause.FAILED),
    "an exception in the last attempt": _end(Cause.FAILED, attempt=5),
    "an exception that is not retried (`retry_on`, `never_retry_on`)": _end(
        Cause.FAILED, retryable=False
    ),
    '`Failed("...", retry_in=60)`': _end(Cause.FAILED, delay=60 * _SECONDS),
    '`Dead("...")`': _end(Cause.REJECTED),
    "the timeout, attempts are left": _end(Cause.TIMED_OUT),
    "the timeout in the last attempt": _end(Cause.TIMED_OUT, attempt=5),
    "`Snoozed(60)`": _end(Cause.SNOOZED, delay=60 * _SECONDS),
    "`Throttled(60)`": _end(Cause.THROTTLED, retry_after=60 * _SECONDS),
    "`Snoozed` or `Throttled` once too often": _end(Cause.SNOOZED, snoozes=3, delay=_SECONDS),
    '`RateLimited("smtp")`': _end(Cause.RATE_LIMITED, delay=_SECONDS, rate_limit="smtp"),
    "no token of the handler's [`rate`](limits.md#rates-of-handlers)": _end(
        Cause.RATE_LIMITED, delay=_SECONDS, rate_limit="sms.send"
    ),
    'no token, and the rate has `mode="drop"`': _end(Cause.DROPPED),
    "the pod lacks the key of an [encrypted payload](secrets.md)": _end(Cause.KEY_MISSING),
    "a [strike](limits.md#strikes) holds the job": _end(Cause.STRUCK, rate_limit="of a strike"),
    "a [strike](limits.md#strikes) cancels the job": _end(Cause.STRUCK, is_final=True),
    "the worker is stopped (deploy, scale-down, no contact to the store)": _end(Cause.INTERRUPTED),
    "the job was cancelled while a handler ran": _end(Cause.CANCELLED),
    "the process died, first time": _crash(1),
    "the process died, second time": _crash(2),
    "the process died, third time (`max_crashes`)": _crash(3),
    "the process died in the last attempt": _crash(1, attempt=5),
}


def _runs_again(transition: Transition) -> str:
    """How the page begins to say when the job runs next."""
    if transition.status in TERMINAL:
        return "no"
    if transition.hold is Hold.STRUCK:
        return "once the strike is lifted"
    if transition.delay is None:
        return "at once, in its old place"
    if transition.rate_limit is not None:
        return "when the rate limit has a token"
    if transition.cooldown is not None:
        return f"when the queue has cooled down, {transition.cooldown.length / _SECONDS:.0f} s here"
    if transition.delay >= 15 * _SECONDS:
        return f"after {transition.delay / _SECONDS:.0f} s"
    return "after the retry pause"


def test_the_table_of_outcomes_has_each_end_in_its_place() -> None:
    assert list(table("retries.md", "Retries and outcomes")) == list(ENDS)


@pytest.mark.parametrize("how", ENDS)
def test_the_table_of_outcomes_says_what_the_policy_decides(how: str) -> None:
    attempt, again, status = table("retries.md", "Retries and outcomes")[how]
    transition = ENDS[how]
    assert attempt == ("no" if transition.hand_back else "yes")
    assert again.startswith(_runs_again(transition))
    assert status == f"`{transition.status}`"


def test_every_way_to_end_is_in_the_table() -> None:
    said = {transition.cause for transition in ENDS.values()}
    # Handed back before the start: no run has ended.
    ends = {Cause.SUCCEEDED, Cause.FAILED, Cause.TIMED_OUT, Cause.REJECTED, Cause.THROTTLED} | {
        Cause.SNOOZED,
        Cause.RATE_LIMITED,
        Cause.KEY_MISSING,
        Cause.STRUCK,
        Cause.INTERRUPTED,
        Cause.CANCELLED,
        Cause.DROPPED,
        Cause.CRASHED,
    }
    assert said == ends
