"""Reads of the store for the screen, each part as often as that part can change."""

from collections.abc import Sequence
from datetime import timedelta

import anyio
from msgspec import Struct

from forge_jobs.cli.commands.terminal.screen.limits import rows_of
from forge_jobs.cli.commands.terminal.screen.view import View
from forge_jobs.operating.board.documents import Board
from forge_jobs.operating.metrics.latencies import QueueStats
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.settings.concurrency import ConcurrencyLine
from forge_jobs.operating.settings.documents import RateLimitView
from forge_jobs.policy.judgement.problems.problem import Problem

OVER = timedelta(minutes=5)
PROBLEMS_EVERY_S = 5.0
RATES_EVERY_S = 15.0
"""Pods add to their counts with a beat, and the rates are means of five minutes."""


class Reading(Struct, frozen=True, kw_only=True):
    """A look at the store.

    :param rates: attempts of the last five minutes
    :param limits: by key, with what runs and waits there
    :param rate_limits: with their tokens
    """

    board: Board
    problems: Sequence[Problem]
    rates: Sequence[QueueStats]
    limits: Sequence[ConcurrencyLine] = ()
    rate_limits: Sequence[RateLimitView] = ()

    @classmethod
    async def of(cls, operator: Operator) -> "Reading":
        """Read everything."""
        return await Reader(operator).read()

    def view(self) -> View:
        """Return a view that shows this."""
        view = View()
        self.put_into(view)
        return view

    def put_into(self, view: View) -> None:
        """Show this in a view, and leave alone what people have chosen there."""
        view.store, view.board, view.problems = self.board.store, self.board, self.problems
        view.rates = {each.queue: each for each in self.rates}
        view.limit_rows = rows_of(self.limits, self.rate_limits)


class Reader:
    """Reads again and again. Problems, limits and rates are read less often than the rest."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._problems: Sequence[Problem] = ()
        self._problems_at = self._rates_at = float("-inf")
        self._rates: Sequence[QueueStats] = ()
        self._limits: Sequence[ConcurrencyLine] = ()
        self._rate_limits: Sequence[RateLimitView] = ()

    async def read(self) -> Reading:
        """Read what is due to be read.

        :raises Unavailable: the store is silent
        """
        board = await self._operator.board()
        now = anyio.current_time()
        if now - self._problems_at >= PROBLEMS_EVERY_S:
            self._problems, self._problems_at = (await self._operator.problems()).problems, now
            self._limits = (await self._operator.list_concurrency()).limits
            self._rate_limits = (await self._operator.list_limits()).rate_limits
        if now - self._rates_at >= RATES_EVERY_S:
            self._rates = (await self._operator.queue_stats(over=OVER)).queues
            self._rates_at = now
        return Reading(
            board=board,
            problems=self._problems,
            rates=self._rates,
            limits=self._limits,
            rate_limits=self._rate_limits,
        )
