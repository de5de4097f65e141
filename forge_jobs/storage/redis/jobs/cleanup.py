"""Retention: removes what is no longer kept, in bounded batches, oldest first."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from forge_jobs.clock import duration_us
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.queues import Retention
from forge_jobs.model.retention import Cleaned, Kept
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import queue_names
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.jobs.filters import PORTION
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.redis.locators.dangling import forget
from forge_jobs.storage.salvage import UNREADABLE

MINUTES_KEPT = timedelta(days=1)
"""How long minutes stay before they are folded into hours, where nothing else is said: less than
elsewhere, because here they take memory."""

MOST_EVENTS = 100_000
"""How many timeline events a queue keeps, because here they take memory."""

_FORGOTTEN_ROUNDS = 10
"""How many thousand locators of removed jobs one call takes away, per queue."""

_QUEUES_AT_ONCE = 16
"""Of how many queues one call deals with, of those where there is anything to do."""

_FOUND_AT_ONCE = 2_000
"""How many jobs of each status one script names that are to go."""

_REMOVED_AT_ONCE = 100
"""The most rows that one script removes, so that every step is short."""

_HISTORY = {
    "minutes": (":m:", ":l:"),
    "hours": (":hm:", ":hl:"),
    "gauges": (":g:",),
    "pod_hours": (":hg:",),
    "errors": (":eg:",),
    "error_hours": (":eh:",),
    "flow_minutes": (":fm:",),
    "flow_hours": (":fh:",),
}
"""Lists of minutes, hours and groups, and the keys that each has under these prefixes."""

_decode = msgspec.json.Decoder(Retention).decode


class _Overdue(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``overdue.lua``: jobs, and how many each other list has to drop."""

    jobs: list[tuple[int, JobId]]
    results: int
    events: int
    minutes: int
    gauges: int
    gone: int
    hours: int
    pod_hours: int
    folds: int
    pod_folds: int
    errors: int
    error_hours: int
    flow_minutes: int
    flow_hours: int

    @property
    def is_any(self) -> bool:
        """True when there is anything to do."""
        return any(getattr(self, name) for name in self.__struct_fields__)


class _Ages(NamedTuple):
    """The ages at which history is folded and goes, in microseconds."""

    minutes: int
    history: int
    events: int
    most_events: int
    errors: int
    series: int

    @classmethod
    def of(cls, kept: Kept) -> "_Ages":
        folded = kept.minutes_or(MINUTES_KEPT)
        ages = (folded, kept.hours, kept.events, kept.errors, kept.series)
        minutes, history, events, errors, series = map(duration_us, ages)
        return cls(minutes, history, events, MOST_EVENTS, errors, series)

    def of_history(self, name: str) -> int:
        """Return the age at which what a list of ``_HISTORY`` has goes."""
        ages = {"flow_minutes": self.minutes, "flow_hours": self.series}
        return self.errors if name.startswith("error") else ages.get(name, self.history)


class Cleaner:
    """Cleans up."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def cleanup(self, limit: int, rest: object | None, kept: Kept) -> Cleaned:
        """See ``JobStore.cleanup``. At most ``limit`` rows of each sort.

        :param rest: bases where there may be more
        """
        ages = _Ages.of(kept)
        if isinstance(rest, tuple):
            bases = rest
        else:
            bases = await self._bases(ages)
        first, later = bases[:_QUEUES_AT_ONCE], bases[_QUEUES_AT_ONCE:]
        rules, _ = await self._rules_of(first)
        overdue = await self._overdue(first, limit, ages, rules)
        await self._forget_removed(overdue)
        removed = await self._remove_jobs(overdue, limit)
        removed += await self._drop("drop_results", overdue, "results", limit)
        removed += await self._drop(
            "drop_events", overdue, "events", limit, age=ages.events, most=ages.most_events
        )
        for name, prefixes in _HISTORY.items():
            of_list = {"age": ages.of_history(name), "list": f":{name}", "prefixes": prefixes}
            removed += await self._drop("drop_minutes", overdue, name, limit, **of_list)
        folded = 0
        for name, script in (("folds", "fold_hours"), ("pod_folds", "fold_gauges")):
            kept_for = {"minutes_kept": ages.minutes, "hours_kept": ages.history}
            folded += await self._drop(script, overdue, name, limit, **kept_for)
        # Asked once more, unless nothing could be done here.
        again = tuple(base for base in overdue if removed + folded and overdue[base].is_any)
        return Cleaned(removed=removed, rest=(again + later) or None)

    async def _bases(self, ages: _Ages) -> tuple[str, ...]:
        """Where anything may be overdue, queue by queue."""
        db = self._db
        bases = [db.keys.queue(name) for name in sorted(await queue_names(db))]
        bases.append(db.keys.fleet)
        rules, silent = await self._rules_of(bases)
        overdue = await self._overdue(bases, 1, ages, rules)
        deleted = [base for base in bases[:-1] if base not in rules and base not in silent]
        await self._leave(deleted)
        return tuple(base for base, each in overdue.items() if each.is_any)

    async def _rules_of(self, bases: Sequence[str]) -> tuple[dict[str, list[object]], set[str]]:
        """Return what each queue that has a record may lose, and the queues that do not answer."""
        queues = [base for base in bases if base != self._db.keys.fleet]
        asked = [("HGET", f"{base}:queue", "retention") for base in queues]
        texts = dict(zip(queues, await self._db.commands(asked, some=True), strict=True))
        silent = {base for base, text in texts.items() if isinstance(text, Unavailable)}
        rules = {
            base: list(_rules(text))
            for base, text in texts.items()
            if text is not None and base not in silent
        }
        return rules, silent

    async def _leave(self, deleted: Sequence[str]) -> None:
        """Take those queues that were deleted, and have no history any more, off the list."""
        left, _ = await self._db.run_some("leave_queue", dict.fromkeys(deleted, True), bool)
        names = [queue_of(base) for base, is_left in left.items() if is_left]
        if names:
            # A caller that comes in between lists the queue again, or the sweep does.
            gone = ("SREM", f"{self._db.keys.fleet}:queues", *names)
            await self._db.commands([gone], some=True)

    async def _overdue(
        self,
        bases: Sequence[str],
        limit: int,
        ages: _Ages,
        rules: Mapping[str, list[object]],
    ) -> dict[str, _Overdue]:
        """Return what the lists hold, in the order of the bases, where there is an answer.

        :param ages: at which the rest goes
        """
        limit = min(limit, max(1, _FOUND_AT_ONCE // max(1, len(bases))))
        requests = {
            base: request_of("overdue", rules=rules.get(base, []), limit=limit, **ages._asdict())
            for base in bases
        }
        found, _ = await self._db.run_some("overdue", requests, _Overdue)
        return {base: found[base] for base in bases if base in found}

    async def _remove_jobs(self, overdue: Mapping[str, _Overdue], limit: int) -> int:
        found = [(base, job) for base, each in overdue.items() for job in each.jobs][:limit]
        portions: defaultdict[str, list[list[tuple[int, JobId]]]] = defaultdict(list)
        for base, job in found:
            if not portions[base] or len(portions[base][-1]) >= _REMOVED_AT_ONCE:
                portions[base].append([])
            portions[base][-1].append(job)
        removed = 0
        while portions:
            requests = {base: parts.pop(0) for base, parts in portions.items()}
            removed += sum((await self._db.run_some("remove", requests, int)).found.values())
            portions = defaultdict(list, {base: parts for base, parts in portions.items() if parts})
        return removed

    async def _drop(
        self, script: str, overdue: Mapping[str, _Overdue], name: str, limit: int, **parts: object
    ) -> int:
        """Run ``script`` queue by queue until ``limit`` have gone."""
        dropped = 0
        for base, each in overdue.items():
            left = min(getattr(each, name), limit - dropped)
            while left > 0:
                size = min(left, _REMOVED_AT_ONCE)
                request = request_of(script, **parts, limit=size) if parts else size
                answers, _ = await self._db.run_some(script, {base: request}, int)
                gone = answers.get(base, 0)
                dropped += gone
                left = left - gone if gone else 0
        return dropped

    # -- locators ------------------------------------------------------------------------------

    async def _forget_removed(self, overdue: Mapping[str, _Overdue]) -> None:
        """Take the locators of removed jobs away, then the notes that they have to go."""
        bases = [base for base, each in overdue.items() if each.gone]
        for _ in range(_FORGOTTEN_ROUNDS):
            requests = dict.fromkeys(bases, PORTION)
            found, _ = await self._db.run_some("gone", requests, list[JobId])
            bases = []
            for base, gone in found.items():
                _, silent = await forget(self._db, {queue_of(base): gone})
                # Those whose locators do not answer stay.
                over = [job_id for job_id in gone if job_id not in silent]
                if over:
                    await self._db.commands([("ZREM", f"{base}:gone", *over)], some=True)
                if len(over) == PORTION:
                    bases.append(base)


def _rules(text: bytes) -> Iterator[object]:
    try:
        retention = _decode(text)
    except UNREADABLE:
        return  # What cannot be read may have said that they stay; the state of the queue says so.
    for status in ("done", "dead", "cancelled"):
        most = getattr(retention, f"max_{status}")
        # A time less this is a number that Lua holds exactly.
        age = min(duration_us(getattr(retention, status)), 2**52)
        most = -1 if most is None else most
        yield item_of("overdue", "rule", status=status, age=age, most=most)
