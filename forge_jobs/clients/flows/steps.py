"""Named steps, their order, and the jobs that are stored for them."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, TypeGuard, get_args

import msgspec
from msgspec import UNSET, Struct, structs

from forge_jobs.clients.flows.plans import Group, GroupPlan, group_members, part_id
from forge_jobs.errors import Conflict, InvalidInput
from forge_jobs.handlers.preparing import MAX_PARENTS, check_request
from forge_jobs.handlers.requests import EnqueueRequest, OurKey
from forge_jobs.model.edges import STEP, WORKFLOW
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, EnqueueOutcome
from forge_jobs.model.names import check_name
from forge_jobs.model.payloads import MAX_PAYLOAD_BYTES

OnFailure = Literal["hold", "cancel", "continue"]


class Steps:
    """Named steps for a workflow that is stored already. See ``JobClient.add_steps``."""

    def __init__(self) -> None:
        self.requests: dict[str, EnqueueRequest[Any] | Group] = {}
        self.after: dict[str, Mapping[str, OnFailure]] = {}

    def step(
        self,
        name: str,
        request: EnqueueRequest[Any] | Group,
        *,
        after: Sequence[str] | Mapping[str, OnFailure] = (),
    ) -> str:
        """Add a step, and return the name.

        A ``Group`` as a step is done when all its members are, and dead when all have ended and one
        of them without success. Each member comes after the steps of ``after``.

        :param name: of the step in this workflow, 1 to 200 characters
        :param request: a job without an id and without a unique key. A key of the handler does not
            count. Jobs that the request names in ``after`` are waited for too. Or a ``Group`` of
            such jobs, without an id and without callbacks
        :param after: names of steps, also of steps that are added later. With the word for what
            follows when such a step ends without success: ``hold`` this step until the other is
            mended, as when only names are given, ``cancel`` this step, or ``continue``
        :raises InvalidInput: the name is taken, or a value is wrong
        """
        check_name("step", name)
        if name in self.requests:
            fix = "give each step a name of its own"
            raise InvalidInput("step", f"{name!r:.80} is there already", fix)
        if isinstance(request, Group):
            request = _checked_group(name, request)
        else:
            check_request(request)
            _check_plain(name, request)
        self.after[name] = _edges(name, after)
        self.requests[name] = request
        return name


class Graph(Struct, frozen=True, omit_defaults=True):
    """The payload of the workflow's own job: its record of the graph.

    :param steps: name -> the steps before, and what follows when they fail. Parents first
    :param added: likewise, of steps that were added later
    """

    name: str
    steps: dict[str, dict[str, str]]
    added: dict[str, dict[str, str]] = {}

    @property
    def every(self) -> dict[str, dict[str, str]]:
        """All steps, parents first."""
        return {**self.steps, **self.added}

    def ids(self, whole: JobId) -> dict[str, JobId]:
        """Return the ids of the steps, which sort with parents first.

        The id of an added step follows from its name and depth. So two who add steps at once do
        not come into conflict, and a repeat means the same jobs.
        """
        found = {name: part_id(whole, number) for number, name in enumerate(self.steps)}
        depths: dict[str, int] = {}
        for name, after in self.added.items():
            depths[name] = max((depths.get(each, 0) + 1 for each in after), default=0)
            found[name] = part_id(whole, MAX_PARENTS + depths[name], name)
        return found

    def checked(self) -> "Graph":
        """Return the graph.

        :raises InvalidInput: too many steps, or too large
        """
        if len(self.every) > MAX_PARENTS:
            fix = f"give 1 to {MAX_PARENTS}, and many jobs of one kind as one step that is a Group"
            raise InvalidInput("workflow", f"has {len(self.every)} steps", fix)
        size = len(msgspec.json.encode(self))
        if size > MAX_PAYLOAD_BYTES:
            fix = "give steps shorter names, or fewer edges"
            raise InvalidInput("workflow", f"has a graph of {size} bytes as JSON", fix)
        return self


class StepRequests:
    """The requests of steps, each step after those that it names, and members before their group.

    :param names: of the steps, in that order
    :param ids: of these steps, and of those before
    """

    def __init__(
        self,
        steps: Steps,
        names: Iterable[str],
        ids: Mapping[str, JobId],
        whole: JobId,
        deadline: datetime | None,
    ) -> None:
        self._steps = steps
        self._ids = ids
        self._whole = whole
        self._deadline = deadline
        self._all = [each for name in names for each in self._of(name)]

    def __iter__(self) -> Iterator[EnqueueRequest[Any]]:
        return (request for _, request in self._all)

    def owners(self) -> list[JobId]:
        """Return for each request the id of its step. A group comes after its members."""
        owner = JobId("")
        found: list[JobId] = []
        for name, _ in reversed(self._all):
            owner = self._ids[name] if name else owner
            found.append(owner)
        return found[::-1]

    def stored(self, outcomes: Sequence[EnqueueOutcome]) -> dict[str, EnqueueOutcome]:
        """Return the outcome of each step, by the outcomes of the requests."""
        both = zip(self._all, outcomes, strict=False)
        return {name: outcome for (name, _), outcome in both if name}

    def _of(self, name: str) -> Iterator[tuple[str, EnqueueRequest[Any]]]:
        """Yield the requests of a step. A member of a group has no name."""
        wanted = self._steps.requests[name]
        if not isinstance(wanted, Group):
            request = self._after_others(name, wanted).options(id=self._ids[name], unique=None)
            yield name, self._ours(name, request)
            return
        plan = GroupPlan(structs.replace(wanted, id=self._ids[name]))
        for request in plan.requests():
            if request is plan.gate:
                yield name, self._ours(name, request)
            else:
                member = self._after_others(name, request).options(unique=None)
                yield "", self._ours(name, member)

    def _after_others(self, name: str, request: EnqueueRequest[Any]) -> EnqueueRequest[Any]:
        after = self._steps.after[name].items()
        edges = (After(self._ids[each], policy) for each, policy in after)
        return request.options(after=[*request.after, *edges])

    def _ours(self, name: str, request: EnqueueRequest[Any]) -> EnqueueRequest[Any]:
        ours: dict[str, str] = {OurKey(STEP): name, OurKey(WORKFLOW): self._whole}
        expires, deadline = request.expires_at, self._deadline
        # A time without a zone stays, to be refused by name.
        if deadline and (expires is None or (has_zone(expires) and deadline < expires)):
            expires = deadline
        return request.options(metadata={**request.metadata, **ours}, expires_at=expires)


def has_zone(time: object) -> TypeGuard[datetime]:
    """Return whether a value is a time with a time zone."""
    return isinstance(time, datetime) and time.utcoffset() is not None


def workflow_of(job_id: str, metadata: Mapping[str, str]) -> str:
    """Return the id of the workflow that a job is a step of, by the metadata of the job.

    :raises Conflict: the job is no step
    """
    if WORKFLOW not in metadata:
        raise Conflict(f"job {job_id} is no step of a workflow")
    return metadata[WORKFLOW]


def in_order(steps: Steps, known: Container[str] = ()) -> list[str]:
    """Return the names of the steps, each after those that it comes after.

    :param known: names of steps that are stored already
    :raises InvalidInput: a step comes after one that is not there, or they go in a circle
    """
    names = steps.requests
    for name, after in steps.after.items():
        if unknown := [each for each in after if each not in names and each not in known]:
            fix = "add that step, or correct the name"
            raise refused(name, f"comes after {unknown[0]!r:.80}, which is no step", fix)
    try:
        ordered = list(TopologicalSorter(steps.after).static_order())
    except CycleError as error:
        circle = [str(each) for each in reversed(error.args[1])]
        shown = " -> ".join(circle if len(circle) <= 8 else [*circle[:4], "...", *circle[-3:]])
        fix = "take one of these edges out"
        raise InvalidInput("workflow", f"has a circle: {shown}", fix) from None
    return [name for name in ordered if name in names]


def _checked_group(name: str, group: Group) -> Group:
    if group.id is not None:
        raise refused(name, "has an id", "give the workflow an id: those of the steps follow")
    if group.on_settled or group.on_success or group.on_failure:
        fix = "make the callback a step after this one"
        raise refused(name, "is a group with a callback", fix)
    members = group_members(group)
    for each in members:
        _check_plain(name, each)
    return structs.replace(group, requests=members)


def _check_plain(name: str, request: EnqueueRequest[Any]) -> None:
    if request.id is not None:
        raise refused(name, "has an id", "give the workflow an id: those of the steps follow")
    if request.unique_key is not None or request.unique not in (UNSET, None):
        raise refused(name, "has a unique key", "enqueue the job apart, and name it in after=")


def _edges(name: str, after: object) -> Mapping[str, OnFailure]:
    if isinstance(after, str) or not isinstance(after, Sequence | Mapping):
        fix = 'give names of steps in a list, or {"name": "continue"}'
        raise refused(name, f"has after={after!r:.80}", fix)
    edges: dict[str, OnFailure] = (
        dict(after) if isinstance(after, Mapping) else dict.fromkeys(after, "hold")
    )
    for each, word in edges.items():
        if word not in get_args(OnFailure):
            fix = "give hold, cancel or continue"
            raise refused(name, f"has the word {word!r:.80} for step {each!r:.80}", fix)
    return edges


def refused(name: str, problem: str, fix: str) -> InvalidInput:
    """The refusal of a step."""
    return InvalidInput(f"step {name!r:.80}", problem, fix)
