"""Words that complete a line of the filter language."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from forge_jobs.errors import InvalidInput
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queries.terms import CHOICES, COMPARED, PAYLOAD
from forge_jobs.operating.access import Right
from forge_jobs.operating.base import Calls
from forge_jobs.operating.kinds.schemas import entry_in

MOST_HINTS = 100

_STARTS = (*(f"{name}:" for name in (*CHOICES, *COMPARED)), f"{PAYLOAD}.")
_EXAMPLES = ("attempt:>2", "crashes:>0", "running:>10m", "enqueued:<1h", "finished:<1h", "due:<1h")


class Hints(Struct, frozen=True, kw_only=True):
    """Words that may stand at the end of a line.

    :param start: the line without the last word
    :param words: whole last words, those that fit best first
    """

    start: str
    words: tuple[str, ...]


class HintCalls(Calls):
    """A part of the methods of an operator. See ``Operator``."""

    async def job_hints(self, line: str = "", *, limit: int = 20) -> Hints:
        """Words that complete the last word of a line of the filter language.

        Names of terms, and the queues, kinds, schedules and pods that are there.

        :param line: as far as typed
        :param limit: 1 to 100
        :raises InvalidInput: the limit is another number
        """
        self.actor.need(Right.READ)
        if not 1 <= limit <= MOST_HINTS:
            raise InvalidInput("limit", f"is {limit}", f"give 1 to {MOST_HINTS}")
        start, word = _last_word(line)
        minus = "-" if word.startswith("-") else ""
        name, colon, typed = word.removeprefix("-").partition(":")
        if not colon:
            known = [*_STARTS, *(() if minus else _EXAMPLES)]
            found = [each for each in known if each.startswith(name)]
            return Hints(start=start, words=tuple(f"{minus}{each}" for each in found[:limit]))
        before, comma, last = typed.rpartition(",")
        values = [each for each in await self._values(name) if _fits(each, last)]
        # Names that begin alike stand before those that hold the text elsewhere.
        values.sort(key=lambda each: (not each.startswith(last.strip('"')), each))
        first = f"{minus}{name}:{before}{comma}"
        words = tuple(f"{first}{_quoted(each)}" for each in values[:limit])
        return Hints(start=start, words=words)

    async def _values(self, name: str) -> list[str]:
        storage = self.storage
        if name == "status":
            return [each.in_words for each in JobStatus]
        if name == "cause":
            return [each.value for each in Cause]
        if name == "queue":
            names: Iterable[str] = (each.name for each in await storage.config.queues())
            return [each for each in names if self.actor.sees(each)]
        if name == "schedule":
            schedules = await storage.cron.schedules()
            return [each.spec.name for each in schedules if self.actor.sees(each.spec.queue)]
        if name == "kind":
            return await self._kinds()
        if name == "pod" and self.actor.access.queues is None:
            return [str(each.pod.host_id) for each in await storage.procs.pods()]
        return []

    async def _kinds(self) -> list[str]:
        found = set()
        for each in await self.storage.procs.published_kinds():
            entry = entry_in(each.document)
            if entry and (entry.queue is None or self.actor.sees(entry.queue)):
                found.add(each.kind)
        if self.actor.access.queues is None:
            found.update(await self.storage.procs.routes())
        return list(found)


def _last_word(line: str) -> tuple[str, str]:
    """Return the line up to the last word, and the word. A blank in quotes ends no word."""
    begin, is_quoted, is_escaped = 0, False, False
    for at, letter in enumerate(line):
        if is_escaped:
            is_escaped = False
        elif letter == "\\" and is_quoted:
            is_escaped = True
        elif letter == '"':
            is_quoted = not is_quoted
        elif letter.isspace() and not is_quoted:
            begin = at + 1
    return line[:begin], line[begin:]


def _fits(value: str, typed: str) -> bool:
    return typed.strip('"').casefold() in value.casefold()


def _quoted(value: str) -> str:
    plain = value and all(each.isalnum() or each in "_-./@" for each in value)
    return value if plain else msgspec.json.encode(value).decode()
