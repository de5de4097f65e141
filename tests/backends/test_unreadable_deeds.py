"""An action, a request to a pod, a kind or a window whose record is spoilt hides no other."""

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from forge_jobs.model.actions import Action
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import Unique
from forge_jobs.model.pod_requests import PodVerb, RequestState
from forge_jobs.model.queues import QueueChange
from forge_jobs.operating.access import ALL as EVERY
from forge_jobs.operating.access import Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base import action_tables
from forge_jobs.storage.sql.base.unique_tables import unique_windows
from tests.support import factories
from tests.support.factories import KIND, QUEUE, enqueue_one, new_job
from tests.support.spoiling import each_wrong_field, each_wrong_text, each_wrong_value

pytestmark = [pytest.mark.anyio, pytest.mark.daily("sqlite", "redis")]

ALL = ("sqlite", pytest.param("postgres", marks=pytest.mark.long), "redis")

register = partial(factories.register, lease_for=factories.DAY)


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize("part", [False, True], ids=["record", "part"])
async def test_an_action(storage: Storage, backend: str, part: bool, tmp_path: Path) -> None:
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=5))
    job_id = await enqueue_one(storage)
    ids = [new_job_id() for _ in range(3)]
    for action_id in ids:
        action = Action(
            id=action_id,
            actor="ada",
            surface="code",
            verb="cancel_jobs",
            which=JobFilter(kinds=("none",)),
            queues=(QUEUE,),
        )
        await storage.jobs.put_action(action)
    spoilt, others = ids[1], [ids[0], ids[2]]
    kept = [await storage.jobs.get_action(each) for each in others]
    operator = Operator(storage, Actor(name="ada", access=EVERY))

    async def use() -> None:
        listed = {each.action.id: each for each in await storage.jobs.actions(limit=9)}
        assert [listed[each] for each in others] == kept
        for call in (
            operator.list_actions(),
            operator.job_timeline(job_id),
            operator.queue_history(QUEUE),
            operator.queue_settings(QUEUE),
        ):
            await call
        # What has a time of long ago is gone, as after 400 days.
        if spoilt in listed:
            found = await operator.get_action(spoilt)
            assert found.id == spoilt
            is_read = found.verb == "cancel_jobs"
            assert is_read or found.reason.startswith("the record cannot be read: document is ")

    async def mend() -> None:
        if spoilt in {each.action.id for each in await storage.jobs.actions(limit=9)}:
            await storage.jobs.abort_action(spoilt)

    if backend == "redis":
        base, key = (QUEUE, f"act:{spoilt}") if part else ("", f"action:{spoilt}")
        await each_wrong_field(backend, tmp_path, base, key, use, mend)
    elif part:
        row = {"action_id": spoilt, "queue": QUEUE}
        await each_wrong_value(backend, tmp_path, action_tables.action_parts, row, use, mend)
    else:
        await each_wrong_value(backend, tmp_path, action_tables.actions, {"id": spoilt}, use, mend)


@pytest.mark.parametrize("backend", ALL)
async def test_a_kind(storage: Storage, backend: str, tmp_path: Path) -> None:
    document = '{"parameters":[]}'
    names = ("a", "b", "c")
    await storage.procs.publish_kinds(dict.fromkeys(names, document))

    async def use() -> None:
        found = {each.kind: each for each in await storage.procs.published_kinds()}
        assert {*found} == {*names}
        assert {found[each].document for each in ("a", "c")} == {document}
        await Operator(storage, Actor(name="ada", access=EVERY)).list_kinds()

    async def mend() -> None:
        await storage.procs.publish_kinds({"b": document})
        [found] = await storage.procs.published_kinds(["b"])
        assert found.document == document

    if backend == "redis":
        wrong = ("spoilt {", "", "1.5 {}", f"{2**62} {{}}", f"{10**40} {{}}", b"\xff\xfe", "x {}")
        await each_wrong_text(tmp_path, "", "kinds", "b", wrong, use, mend)
    else:
        await each_wrong_value(backend, tmp_path, action_tables.kinds, {"kind": "b"}, use, mend)


@pytest.mark.parametrize("backend", ALL)
async def test_a_request_to_a_pod(storage: Storage, backend: str, tmp_path: Path) -> None:
    lease = await register(storage)
    asked = [
        await storage.procs.ask_pod(lease.host_id, verb, request_id=new_job_id(), asked_by="ada")
        for verb in (PodVerb.QUIET, PodVerb.RESUME, PodVerb.QUIET)
    ]
    spoilt, others = asked[1].id, {asked[0].id, asked[2].id}

    async def use() -> None:
        heard = {each.id: each for each in await storage.procs.hear_requests(lease)}
        assert {*heard} >= others
        listed = {each.id: each for each in await storage.procs.pod_requests(lease.host_id)}
        assert {listed[each].state for each in others} == {RequestState.HEARD}
        await Operator(storage, Actor(name="ada", access=EVERY)).pod_requests(lease.host_id)

    async def mend() -> None:
        await storage.procs.answer_request(lease, spoilt, "no")

    if backend == "redis":
        await each_wrong_field(backend, tmp_path, "", f"ask:{spoilt}", use, mend)
    else:
        row = {"id": spoilt}
        await each_wrong_value(backend, tmp_path, action_tables.pod_requests, row, use, mend)


@pytest.mark.parametrize("backend", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
async def test_a_window_of_a_key(storage: Storage, backend: str, tmp_path: Path) -> None:
    hour = timedelta(hours=1)

    async def use() -> None:
        for key in ("u", "v"):
            request = new_job(unique=Unique(key, "cooldown", hour))
            await storage.jobs.enqueue([request])

    async def mend() -> None:
        await storage.jobs.cancel(JobFilter(kinds=(KIND,)))

    await use()
    row = {"queue": QUEUE, "unique_key": "u"}
    await each_wrong_value(backend, tmp_path, unique_windows, row, use, mend)
