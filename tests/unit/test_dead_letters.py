"""Handlers of dead letters: what is refused at registration, and calls without a pod."""

import asyncio
from datetime import UTC, datetime

import pytest

from forge_jobs import (
    DEAD_LETTER_KIND,
    DeadLetter,
    HandlerRegistry,
    JobContext,
    RegistrationError,
)
from forge_jobs.model.ids import JobId, letter_job_id
from forge_jobs.model.jobs import Cause
from forge_jobs.model.letters import LETTER, read_dead_letter
from forge_jobs.testing import fake_context

NOW = datetime(2026, 6, 1, tzinfo=UTC)
A_LETTER = DeadLetter(
    queue="payments",
    job_id=JobId("0" * 26),
    kind="card.charge",
    attempts=5,
    cause=Cause.FAILED,
    enqueued_at=NOW,
    died_at=NOW,
    payload='{"order":7}',
)


def test_a_handler_of_letters_takes_a_letter() -> None:
    with pytest.raises(RegistrationError, match="take one parameter letter: DeadLetter"):

        @HandlerRegistry().job(DEAD_LETTER_KIND)
        async def park(ctx: JobContext) -> None: ...


def test_a_letter_comes_with_that_kind_alone() -> None:
    with pytest.raises(RegistrationError, match=r"write job\(DEAD_LETTER_KIND\)"):

        @HandlerRegistry().job("mine")
        async def park(letter: DeadLetter) -> None: ...

    with pytest.raises(RegistrationError, match="without aliases"):

        @HandlerRegistry().job(DEAD_LETTER_KIND, aliases=["mine"])
        async def park_too(letter: DeadLetter) -> None: ...


def test_nothing_else_comes_from_the_payload() -> None:
    with pytest.raises(RegistrationError, match=r"read letter\.payload instead of order"):

        @HandlerRegistry().job(DEAD_LETTER_KIND)
        async def park(letter: DeadLetter, order: int) -> None: ...


def test_a_handler_is_called_with_a_letter_in_a_test() -> None:
    @HandlerRegistry().job(DEAD_LETTER_KIND)
    async def park(ctx: JobContext, letter: DeadLetter) -> str:
        assert ctx.dead_letter == letter
        return letter.payload

    context: JobContext = fake_context(dead_letter=A_LETTER)
    assert asyncio.run(park(context, A_LETTER)) == A_LETTER.payload
    assert fake_context().dead_letter is None


@pytest.mark.parametrize("metadata", [{}, {LETTER: "{}"}, {LETTER: "["}, {LETTER: "7"}])
def test_what_says_of_no_dead_job_is_no_letter(metadata: dict[str, str]) -> None:
    assert read_dead_letter(metadata, "{}") is None


def test_the_id_of_a_letter_sorts_by_the_death_and_is_one_of_its_own() -> None:
    ids = [letter_job_id("q", "0" * 26, token, died) for token, died in ((7, 0), (8, 10**15))]
    assert ids == sorted(ids)
    others = [
        letter_job_id("r", "0" * 26, 7, 0),
        letter_job_id("q", "1" + "0" * 25, 7, 0),
        letter_job_id("q", "0" * 26, 8, 0),
    ]
    assert len({ids[0], *others}) == 4
    # A clock that is far off makes an id all the same.
    assert letter_job_id("q", "0" * 26, 7, -1) == ids[0]
    assert len(letter_job_id("q", "0" * 26, 7, 2**62)) == 26
