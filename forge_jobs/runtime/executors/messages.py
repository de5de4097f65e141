"""The messages between a pod and its children, as frames of msgpack with a length in front."""

import struct
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Cause, ClaimedJob, ErrorRecord
from forge_jobs.model.transitions import Occurrence
from forge_jobs.policy.transitions import AttemptEnd

_LENGTH = struct.Struct("!I")


class Load(Struct, frozen=True, tag=True):
    """To a child: import the registry.

    :param log_level: of the pod's root logger
    """

    registry: str
    host_id: HostId
    log_level: int


class Loaded(Struct, frozen=True, tag=True):
    """From a child: the registry is there. Or not, and why.

    :param problem: "" when all went well
    """

    problem: str = ""


class Start(Struct, frozen=True, tag=True):
    """To a child: run a job. The payload is the stored text, which the child decodes."""

    job: ClaimedJob
    worker_id: str


class Stop(Struct, frozen=True, tag=True):
    """To a child: end the run, and say so to the handler."""

    reason: str


class Call(Struct, frozen=True, tag=True):
    """From a child: a call of the job's context, to be made in the pod.

    :param number: of the call, to be repeated in the answer. 0: no answer is wanted
    """

    number: int
    verb: str
    arguments: msgspec.Raw


class Answer(Struct, frozen=True, tag=True):
    """To a child: the value of a call, or the exception that the call raised.

    :param error: the name of a class of ``forge_jobs.errors``, "" where the call went well
    :param arguments: of the exception
    """

    number: int
    value: msgspec.Raw
    error: str = ""
    arguments: tuple[str, ...] = ()


class LogLine(Struct, frozen=True, tag=True):
    """From a child: a record of the logging module, already formatted.

    :param extra: the fields of the record that are texts and numbers
    """

    logger: str
    level: int
    message: str
    created: float
    path: str
    line: int
    function: str
    traceback: str
    extra: dict[str, str | int | float]


class Ended(Struct, frozen=True, tag=True):
    """From a child: how the run ended, as an :class:`AttemptEnd` without the exception.

    :param result: the JSON text to store
    """

    cause: Cause | None
    error: ErrorRecord | None = None
    result: str | None = None
    retryable: bool = True
    delay: timedelta | None = None
    retry_after: timedelta | None = None
    rate_limit: str | None = None
    tokens: int = 1
    again: Occurrence | None = None

    def as_end(self) -> AttemptEnd | None:
        """Return the end as the pod knows ends. None: the claim was lost."""
        if self.cause is None:
            return None
        return AttemptEnd(**{name: getattr(self, name) for name in self.__struct_fields__})


def ended(end: AttemptEnd | None) -> Ended:
    """Return the message for ``end``."""
    if end is None:
        return Ended(cause=None)
    return Ended(**{name: getattr(end, name) for name in Ended.__struct_fields__})


ToChild = Load | Start | Stop | Answer
FromChild = Loaded | Call | LogLine | Ended

_encoder = msgspec.msgpack.Encoder()


def frame(message: ToChild | FromChild) -> bytes:
    """Return the bytes of a message, with their length."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def packed(value: Any) -> msgspec.Raw:
    """Return a value within a message."""
    return msgspec.Raw(_encoder.encode(value))


class Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Return the messages that are complete with ``data``."""
        self._bytes += data
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[_LENGTH.size : end])
            del self._bytes[:end]
            yield self._decoder.decode(body)
