"""Stores whose jobs have limits by key or are of sequences, with a recorder in each."""

from collections.abc import Mapping
from typing import ClassVar

from forge_jobs import HandlerRegistry
from tests.chaos.pace import WORK
from tests.chaos.producer import Producer
from tests.chaos.recorders import PostgresRecorder, Recorder, RedisRecorder, SqliteRecorder
from tests.chaos.sequenced import SequencedLoad
from tests.chaos.stores import ChaosStore, PostgresStore, RedisStore, SqliteStore
from tests.support.limited_handlers import limited

_PODS = 8


class _Limited(ChaosStore):
    queues: ClassVar[Mapping[str, int]] = {WORK: _PODS * 10}
    pods: ClassVar[int] = _PODS
    load: ClassVar[type[Producer]] = SequencedLoad
    has_limits: ClassVar[bool] = True
    handlers: ClassVar[HandlerRegistry | None] = limited


class LimitedSqlite(_Limited, SqliteStore):
    """A file."""

    def recorder(self) -> Recorder:
        """Return a trigger."""
        return SqliteRecorder(self.url)


class LimitedPostgres(_Limited, PostgresStore):
    """A server."""

    def recorder(self) -> Recorder:
        """Return a trigger."""
        return PostgresRecorder(self.url)


class LimitedRedis(_Limited, RedisStore):
    """A server."""

    def recorder(self) -> Recorder:
        """Return a script that is run over and over."""
        return RedisRecorder(self.url)
