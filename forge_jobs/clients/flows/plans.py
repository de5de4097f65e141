"""Groups and chains as the requests that are stored for them: ordinary jobs, each after others."""

import hashlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from ulid import base32

from forge_jobs.errors import Conflict, InvalidInput, NotFound, a_type
from forge_jobs.handlers.options import HandlerOptions
from forge_jobs.handlers.preparing import MAX_PARENTS, check_request, check_requests
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.edges import GROUP_KIND, EdgeState, Relative, Tally
from forge_jobs.model.ids import JobId, check_job_id, new_job_id
from forge_jobs.model.jobs import After, EnqueueOutcome, Job, JobStatus

_AT_ONCE = 200
"""Jobs of one call: at least so many are stored all or none, see ``JobStore.enqueue_at_once``."""

_TIME = 10
"""Characters of an id that say when the id was made."""
_NUMBER = 4
_HASH = 12


class Group(Struct, frozen=True):
    """Jobs that belong together: ``Group([thumb.request(1), thumb.request(2)])``.

    The group settles when the last member has ended. A callback is an ordinary job, and its
    ``ctx.parents()`` are the members, in the order given here.

    :param requests: the members, 1 to 10,000
    :param on_settled: a job for when all members have ended
    :param on_success: a job for when all members are done. Cancelled when one is not
    :param on_failure: a job for when all members have ended, and one of them is not done. Cancelled
        when all are
    :param id: a ULID. A repeat with the same id and content stores what is missing
    :param queue: of the job that notices the end. The queue of the first member when left out
    :param tags: of that job, to find the group by
    """

    requests: Sequence[EnqueueRequest[Any]]
    on_settled: EnqueueRequest[Any] | None = None
    on_success: EnqueueRequest[Any] | None = None
    on_failure: EnqueueRequest[Any] | None = None
    id: str | None = None
    queue: str | None = None
    tags: Sequence[str] = ()


class EnqueuedGroup(Struct, frozen=True, kw_only=True):
    """A group as stored.

    :param id: of the group, and of the job that ends when the group has settled
    :param members: in the order of the requests
    :param callbacks: by the name that the group gives them, as ``on_success``
    """

    id: JobId
    members: tuple[EnqueueOutcome, ...]
    callbacks: Mapping[str, EnqueueOutcome]


class GroupState(Struct, frozen=True, kw_only=True):
    """How far a group has come, also when members have been removed meanwhile.

    :param waiting: members that have yet to end
    :param done: members that ended with success
    """

    id: JobId
    waiting: int
    done: int
    dead: int
    cancelled: int

    @property
    def total(self) -> int:
        """The number of members."""
        return self.waiting + self.done + self.failed

    @property
    def failed(self) -> int:
        """Members that ended without success."""
        return self.dead + self.cancelled

    @property
    def is_settled(self) -> bool:
        """True when all members have ended."""
        return self.waiting == 0


def state_of(group: JobId, tally: Tally) -> GroupState:
    """Return the state of the group whose job has these parents."""
    return GroupState(
        id=group,
        waiting=tally.open + tally.held,
        done=tally.settled,
        dead=tally.dead,
        cancelled=tally.cancelled,
    )


FAILED = (JobStatus.DEAD, JobStatus.CANCELLED)
_OF_FAILED = (EdgeState.HELD, EdgeState.DEAD, EdgeState.CANCELLED)


class Callbacks(Struct, frozen=True):
    """The payload of the group's own job: the jobs of the callbacks that the end decides on."""

    on_success: JobId | None = None
    on_failure: JobId | None = None


def group_to_resume(
    gate: Job, payload: str | None, members: Sequence[Relative]
) -> tuple[list[JobId], list[JobId]]:
    """Return the members that a resume requeues, and the jobs that wait again once it has.

    :param payload: of the group's own job, decrypted
    :raises Conflict: the group has ended with success, or its payload cannot be read
    :raises NotFound: a member that failed has been removed
    """
    failed = failed_parts("group", gate, "members", members, "enqueue another group")
    try:
        callbacks = msgspec.json.decode(payload or "{}", type=Callbacks)
    except msgspec.DecodeError:
        raise Conflict(
            f"the payload of group {gate.id} cannot be read; it was edited: put back the payload "
            "of before, or requeue the members one by one"
        ) from None
    behind = [] if callbacks.on_success is None else [callbacks.on_success]
    return failed, [gate.id, *behind]


def failed_parts(
    what: str, whole: Job, noun: str, parts: Sequence[Relative], fix: str
) -> list[JobId]:
    """Return the parts that ended without success, of a whole that is to be resumed.

    :param what: the word for the whole. ``noun``: for its parts
    :raises Conflict: the whole has ended with success
    :raises NotFound: a part that failed has been removed
    """
    if whole.status is JobStatus.DONE:
        also = "; requeue a callback that failed by its own id" if what == "group" else ""
        raise Conflict(
            f"{what} {whole.id} has ended with success: there is nothing to resume{also}"
        )
    return stored_failures(what, whole.id, noun, parts, fix)


def stored_failures(
    what: str, whole: JobId, noun: str, parts: Sequence[Relative], fix: str
) -> list[JobId]:
    """Return the parts that ended without success.

    :raises NotFound: one of them has been removed
    """
    failed = [each for each in parts if has_failed(each)]
    gone = [each.id for each in failed if each.status is None]
    if gone:
        raise NotFound(
            f"{len(gone)} {noun} of {what} {whole} that failed are gone, {gone[0]} among them; "
            f"{fix}"
        )
    return [each.id for each in failed]


def has_failed(part: Relative) -> bool:
    """Return whether a step or a member has ended without success, also one that was removed."""
    return part.status in FAILED or (part.status is None and part.edge in _OF_FAILED)


def part_id(whole: JobId, number: int, name: str = "") -> JobId:
    """Return the id of part ``number`` of a group or chain, always the same.

    Ids of parts sort by number.
    """
    digest = int.from_bytes(hashlib.blake2b((whole + name).encode(), digest_size=8).digest())
    text = base32.ENCODE[number >> 15 & 31] + base32.ENCODE[number >> 10 & 31]
    text += base32.ENCODE[number >> 5 & 31] + base32.ENCODE[number & 31]
    for place in range(_HASH):
        text += base32.ENCODE[digest >> 5 * place & 31]
    return JobId(whole[:_TIME] + text)


class GroupPlan:
    """The requests of a group, in the order in which they are stored."""

    def __init__(self, group: Group) -> None:
        members = group_members(group)
        self.id = new_job_id() if group.id is None else check_job_id(group.id)
        self._members = [_named(each, self.id, number) for number, each in enumerate(members)]
        given = {
            "on_settled": (group.on_settled, "continue"),
            "on_success": (group.on_success, "cancel"),
            "on_failure": (group.on_failure, "continue"),
        }
        self._callbacks: dict[str, EnqueueRequest[Any]] = {}
        for number, (name, (request, policy)) in enumerate(given.items(), MAX_PARENTS):
            if request is not None:
                check_request(request)
                after = [*request.after, After(self.id, policy)]  # type: ignore[arg-type]
                self._callbacks[name] = _named(request, self.id, number).options(after=after)
        self.gate = self._gate(group)

    def _gate(self, group: Group) -> EnqueueRequest[Any]:
        first = self._members[0]
        after = [After(JobId(str(each.id)), "note") for each in self._members]
        payload = {
            name: self._callbacks[name].id if name in self._callbacks else None
            for name in Callbacks.__struct_fields__
        }
        gate = gate_request(self.id, GROUP_KIND, payload, after, first=first, queue=group.queue)
        return gate.options(tags=group.tags)

    def requests(self) -> list[EnqueueRequest[Any]]:
        """Members first, because a job comes after jobs that are stored."""
        return [*self._members, self.gate, *self._callbacks.values()]

    def stored(self, outcomes: Sequence[EnqueueOutcome]) -> EnqueuedGroup:
        """Return the group by the outcomes of the requests."""
        count = len(self._members)
        return EnqueuedGroup(
            id=self.id,
            members=tuple(outcomes[:count]),
            callbacks=dict(zip(self._callbacks, outcomes[count + 1 :], strict=True)),
        )


def gate_request(
    whole: JobId,
    kind: str,
    payload: Mapping[str, Any],
    after: Sequence[After],
    *,
    first: EnqueueRequest[Any],
    queue: str | None,
) -> EnqueueRequest[Any]:
    """Return the request for the job that notices the end of jobs that belong together.

    :param first: one of the jobs, whose queue counts where ``queue`` is None
    """
    queue = queue or (first.queue if isinstance(first.queue, str) else None)
    if queue is None and first.handler_options is not None:
        queue = first.handler_options.queue
    gate: EnqueueRequest[Any] = EnqueueRequest(
        kind,
        payload,
        # No look at what pods publish: the kind is known to be right.
        handler_options=HandlerOptions(),
        id=whole,
        after=after,
        max_attempts=None,
        keep_result=True,
    )
    return gate if queue is None else gate.options(queue=queue)


def chained(
    requests: Iterable[EnqueueRequest[Any]], chain_id: str | None
) -> list[EnqueueRequest[Any]]:
    """Return the requests, each after the one before."""
    check_requests(requests)
    whole = new_job_id() if chain_id is None else check_job_id(chain_id)
    linked: list[EnqueueRequest[Any]] = []
    for number, request in enumerate(requests):
        check_request(request)
        one = _named(request, whole, number)
        if linked:
            one = one.options(after=[*one.after, str(linked[-1].id)])
        linked.append(one)
    return linked


def in_steps(
    requests: Sequence[EnqueueRequest[Any]],
) -> Generator[list[EnqueueRequest[Any]], list[EnqueueOutcome], list[EnqueueOutcome]]:
    """Yield what one call stores, take the outcomes, and return all outcomes.

    A member that is no new job, because another has its unique key, is represented by that job.
    """
    outcomes: list[EnqueueOutcome] = []
    others: dict[str, JobId] = {}
    for start in range(0, len(requests), _AT_ONCE):
        step = [_after_others(each, others) for each in requests[start : start + _AT_ONCE]]
        answer = yield step
        for request, outcome in zip(step, answer, strict=True):
            if request.id != outcome.job_id:
                others[str(request.id)] = outcome.job_id
        outcomes += answer
    return outcomes


def _after_others(request: EnqueueRequest[Any], others: Mapping[str, JobId]) -> EnqueueRequest[Any]:
    if not others or not request.after:
        return request
    after: dict[str, After] = {}
    for each in request.after:
        edge = each if isinstance(each, After) else After(JobId(each))
        job_id = others.get(edge.job_id, edge.job_id)
        after.setdefault(job_id, After(job_id, edge.on_failure))
    return request.options(after=list(after.values()))


def _named(request: EnqueueRequest[Any], whole: JobId, number: int) -> EnqueueRequest[Any]:
    job_id = part_id(whole, number) if request.id is None else check_job_id(request.id)
    return request.options(id=job_id)


def group_members(group: Group) -> list[EnqueueRequest[Any]]:
    """Return the members of a group.

    :raises InvalidInput: there are none or too many, or one is no request
    """
    if not isinstance(group, Group):
        raise InvalidInput("group", f"is {a_type(group)}", "give Group([request, ...])")
    check_requests(group.requests)
    members = list(group.requests)
    if not 1 <= len(members) <= MAX_PARENTS:
        fix = f"give 1 to {MAX_PARENTS}, and the rest in further groups"
        raise InvalidInput("group", f"has {len(members)} members", fix)
    for each in members:
        check_request(each)
    return members
