"""Strikes, as people who operate set and lift them."""

import msgspec
from msgspec import Struct

from forge_jobs.clients.striking import ADD, LIFT, Lifted, lift_strike, put_strike
from forge_jobs.errors import DecryptionFailed, KeyMissing
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.strikes import Condition, Effect, Strike, StrikeRule, hidden_values
from forge_jobs.operating.access import REVEAL_JOB, Right
from forge_jobs.operating.jobs.calls import JobCalls
from forge_jobs.policy.strikes import holds

_LOOKED_AT, _AT_ONCE = 1_000, 100
_MOST_TEXT = 16 * 1024 * 1024
_WAITING = (JobStatus.PENDING, JobStatus.BLOCKED)


class StrikeList(Struct, frozen=True):
    """All strikes, by name."""

    strikes: tuple[Strike, ...]


class StrikePreview(Struct, frozen=True, kw_only=True):
    """The waiting jobs that a strike would mean now. Nothing has changed.

    :param count: of the jobs that were looked at, how many the strike means
    :param looked_at: how many jobs were looked at, the newest first: up to 1,000
    :param more: further jobs wait that were not looked at
    :param unknown: of the jobs that were looked at, how many have a payload that cannot be
        decrypted here. Pods judge these
    """

    count: int
    looked_at: int
    more: bool
    unknown: int = 0


class StrikeCalls(JobCalls):
    """A part of the methods of an operator. See ``Operator``."""

    async def list_strikes(self) -> StrikeList:
        """All strikes. A strike belongs to no queue, so an actor of some queues sees none.

        Without the right to payloads the values of conditions are asterisks.
        """
        self.actor.need(Right.READ)
        self.actor.need(Right.QUEUES)
        found = await self.storage.config.strikes()
        if not self.actor.access.payloads:
            found = [hidden_values(strike) for strike in found]
        return StrikeList(tuple(found))

    async def add_strike(self, name: str, rule: StrikeRule) -> Strike:
        """Keep jobs of a kind, or with a payload that a condition means, from running.

        A strike of the same name is set anew. Jobs that the old one held and the new one does not
        mean by the same rule are ready, to be judged again. Running jobs go on.
        """
        self._may_strike(ADD)
        return await put_strike(self.storage, self._recorded, name, rule, self.actor.name)

    async def preview_strike(self, kind: str = "", where: str = "") -> StrikePreview:
        """Count the waiting jobs that a strike would mean: exactly up to 1,000.

        :param kind: of the jobs. "" for every kind
        :param where: a condition on the payload. "" for every payload
        :raises InvalidInput: neither is given, or the condition is none
        :raises Forbidden: there is a condition, and the actor sees no payloads or not that field
        """
        self.actor.need(Right.READ)
        self.actor.need(Right.QUEUES)
        condition = StrikeRule(kind=kind, where=where).condition()
        which = JobFilter(statuses=_WAITING, kinds=(kind,) if kind else ())
        if condition is None:
            counted = await self.client.count(which, at_most=_LOOKED_AT)
            return StrikePreview(
                count=counted.number, looked_at=counted.number, more=counted.is_more
            )
        self.actor.need(Right.PAYLOADS)
        if self.redaction and self._may_tell_hidden(condition):
            self.actor.act(REVEAL_JOB)
        return await self._judged(which, condition)

    def _may_tell_hidden(self, condition: Condition) -> bool:
        """True where the condition looks into a hidden field, or at an object that may hold one."""
        given = condition.value if condition.operator == "in" else [condition.value]
        if any(isinstance(each, list | dict) for each in given) and condition.operator != "between":
            return True
        return self.redaction.looks_into(tuple(condition.field.split(".")))

    async def _judged(self, which: JobFilter, condition: Condition) -> StrikePreview:
        count = looked_at = unknown = size = 0
        cursor: str | None = None
        while looked_at < _LOOKED_AT and size < _MOST_TEXT:
            page = await self.client.list(which, cursor=cursor, limit=_AT_ONCE)
            jobs = await self.storage.jobs.get([line.id for line in page.jobs])
            for job in jobs.values():
                looked_at += 1
                size += len(job.payload)
                try:
                    payload = msgspec.json.decode(self.client.decrypted(job).payload)
                except (KeyMissing, DecryptionFailed):
                    unknown += 1
                except (msgspec.MsgspecError, RecursionError):
                    continue
                else:
                    count += holds(condition, payload)
            cursor = page.cursor
            if cursor is None:
                break
        return StrikePreview(
            count=count, looked_at=looked_at, more=cursor is not None, unknown=unknown
        )

    async def lift_strike(self, name: str) -> Lifted:
        """Remove a strike. The jobs that it held are ready in the order of their queues, and pods
        judge them again.

        A program that dies in between leaves the rest of the jobs to the leader of the pods, which
        looks at once after a lift, and each minute.

        :raises NotFound: no such strike
        """
        self._may_strike(LIFT)
        return await lift_strike(self.storage, self._recorded, name)

    def _may_strike(self, action: str) -> None:
        self.actor.act(action)
        self.actor.need(Right.QUEUES)


def in_words(preview: StrikePreview, rule: StrikeRule) -> str:
    """Return what a preview says, as a sentence or more."""
    fate = "cancelled" if rule.effect is Effect.CANCEL else "held"
    is_one = preview.count == 1
    some = "+" if preview.more and not rule.where else ""
    said = f"{preview.count:,}{some} waiting {'job is' if is_one else 'jobs are'} meant now"
    if rule.where:
        newest = "newest " if preview.more else ""
        are = "is" if is_one else "are"
        said = (
            f"{preview.count:,} of the {newest}{preview.looked_at:,} waiting jobs {are} meant now"
        )
    said += f", and will be {fate} before {'its' if is_one else 'their'} run."
    if preview.more and rule.where:
        said += " Older ones were not looked at, and are judged before their run too."
    if preview.unknown:
        said += f" The payloads of {preview.unknown:,} cannot be read here. Pods judge them."
    return said
