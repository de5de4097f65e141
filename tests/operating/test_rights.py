"""Rights are checked by the operator, before the store is asked."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs

from forge_jobs.clients.client import JobClient
from forge_jobs.clients.flows.workflows import Workflow
from forge_jobs.errors import Forbidden, InvalidInput, NotFound
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.handlers.schema import KindEntry
from forge_jobs.model.events import EventKind
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.failures.fingerprints import error_group
from forge_jobs.model.filters import Count, JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.objectives import Objective
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.model.queues import QueueChange, RateLimit
from forge_jobs.model.strikes import StrikeRule
from forge_jobs.operating.access import ALL, Access, Actor, Right
from forge_jobs.operating.actions.editing import JobEdit
from forge_jobs.operating.actions.previews import Apply
from forge_jobs.operating.documents import document
from forge_jobs.operating.operations import OPERATIONS
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.settings.queues import QueueEdit
from forge_jobs.operating.settings.specs import ScheduleEdit
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.protocols.letters import HasOutbox
from tests.support.factories import claim_one, enqueue_one, error, failed, finish, register
from tests.support.outboxes import write_down

pytestmark = pytest.mark.anyio

SECRET = "swordfish"
EVERY = frozenset({"*"})
OPEN, CLOSED = "open", "vault"
LIMIT = "vault-api"
STRIKE = "a strike"
OUTBOX = "elsewhere"


def _any(**values: Any) -> dict[str, Any]:
    return values


ACCESSES = {
    "nothing": Access(read=False),
    "read": Access(),
    "read and payloads": Access(payloads=True),
    "actions without payloads": Access(actions=EVERY),
    "actions without reads": Access(read=False, actions=EVERY, payloads=True),
    "one queue": Access(actions=EVERY, payloads=True, queues=frozenset({OPEN})),
    "one queue, read": Access(queues=frozenset({OPEN})),
    "no queue": Access(actions=EVERY, payloads=True, queues=frozenset()),
}


def operator(storage: Storage, access: Access) -> Operator:
    return Operator(storage, Actor(name="ada", access=access))


async def furnish(storage: Storage) -> dict[str, JobId]:
    """A job in each of two queues, with secrets in payload, error, schedule and limit."""
    jobs: dict[str, JobId] = {}
    for queue in (OPEN, CLOSED):
        await storage.config.set_queue(queue, QueueChange(max_workers=2))
        entry = KindEntry(
            kind=f"{queue}.kind", aliases=(), description="", queue=queue, priority=0,
            max_attempts=1, timeout=None, tags=(), is_async=True, payload_schema={},
        )  # fmt: skip
        await storage.procs.publish_kinds({entry.kind: msgspec.json.encode(entry).decode()})
        text = msgspec.json.encode({"token": SECRET}).decode()
        jobs[queue] = await enqueue_one(
            storage, queue=queue, kind=f"{queue}.kind", payload=text, metadata='{"a": "swordfish"}'
        )
    async with operator(storage, ALL) as boss:
        for queue in (OPEN, CLOSED):
            edit = ScheduleEdit(
                kind=f"{queue}.kind", expression="@daily", queue=queue, payload={"t": SECRET}
            )
            await boss.add_schedule(f"of-{queue}", edit)
        await boss.set_limit(LIMIT, RateLimit(100, timedelta(days=1)))
        await boss.add_strike(STRIKE, StrikeRule(kind="a.kind", where=f'n == "{SECRET}"'))
        for queue in (OPEN, CLOSED):
            await storage.config.set_limit(queue, "hosts", 5)
        await boss.run_jobs_now(JobFilter(queues=(CLOSED,), unique_key=SECRET[:1]))
        [action] = (await boss.list_actions(limit=1)).actions
        jobs["action"] = JobId(action.id)
        preview = await boss.preview_action("delete_jobs", JobFilter(queues=(CLOSED,)))
        jobs["token"] = JobId(preview.token)
    jobs["outbox"] = new_job_id()
    if isinstance(storage.jobs, HasOutbox):
        [jobs["outbox"]] = await write_down(storage, OUTBOX, 1, f"Conflict: {SECRET}")
    lease = await register(storage, queues=(OPEN, CLOSED), kinds=("open.kind", "vault.kind"))
    jobs["pod"] = JobId(lease.host_id)
    for queue in (OPEN, CLOSED):
        claimed = await claim_one(storage, lease, queue=queue, kinds=(f"{queue}.kind",))
        group = error_group(f"{queue}.kind", "ValueError", SECRET)
        why = structs.replace(error(f"could not log in with {SECRET}"), error_group=group)
        await finish(storage, claimed, failed(timedelta(hours=1), error=why))
        now = await storage.cron.now()
        sample = FailureSample(
            queue=queue,
            group=group,
            kind=f"{queue}.kind",
            type="ValueError",
            message=SECRET,
            minute=now.replace(second=0, microsecond=0),
            first_at=now,
            last_at=now,
            retried=1,
            jobs=(jobs[queue],),
        )
        assert not await storage.jobs.add_failures([sample])
        jobs[f"group of {queue}"] = JobId(group)
    return jobs


async def workflows(storage: Storage) -> dict[str, JobId]:
    """A workflow in each of the queues."""
    found: dict[str, JobId] = {}
    async with JobClient(storage) as client:
        for queue in (OPEN, CLOSED):
            workflow = Workflow(f"w-{queue}")
            workflow.step(
                f"step of {queue}", EnqueueRequest(f"{queue}.kind", queue=queue, delay=3600)
            )
            found[f"workflow of {queue}"] = (await client.enqueue_workflow(workflow)).id
    return found


def arguments(jobs: Mapping[str, JobId], queue: str) -> dict[str, tuple[Any, ...]]:
    """Arguments of each operation, which all concern one queue."""
    ids = (JobFilter(ids=(jobs[queue],)),)
    schedule, edit = f"of-{queue}", ScheduleEdit(priority=3)
    whole = (jobs.get(f"workflow of {queue}"),)
    verbs = ("cancel", "requeue", "restore", "delete", "release_held")
    return {
        **dict.fromkeys(
            ("get_job", "explain_job", "job_timeline", "job_kin", "job_log"), (jobs[queue],)
        ),
        **dict.fromkeys(("job_progress", "job_result"), (jobs[queue],)),
        **{f"{verb}_jobs": ids for verb in verbs},
        **{"run_jobs_now": ids, "list_jobs": (), "queue_stats": (), "list_queues": ()},
        "count_jobs": (),
        "edit_job": (jobs[queue], JobEdit(priority=3)),
        "reveal_job": (jobs[queue],),
        "job_hints": ("kind:",),
        "list_kinds": (),
        "get_kind": (f"{queue}.kind",),
        "queue_settings": (queue,),
        "queue_history": (queue,),
        "clean_up_queue": (queue,),
        "series": (),
        "list_workflows": (),
        **{f"{verb}_workflow": whole for verb in ("get", "cancel")},
        "resume_workflow": whole,
        "list_errors": (),
        "get_error": (queue, jobs[f"group of {queue}"]),
        "what_if": (queue,),
        "desired_pods": (queue, Objective(0.95, timedelta(seconds=30))),
        **{
            "list_pods": (),
            "board": (),
            "export_jobs": (),
            "list_schedules": (),
            "list_limits": (),
            "list_strikes": (),
            "outbox_state": (),
            "list_objectives": (),
            "doctor": (),
            "store": (),
            "problems": (),
            "me": (),
        },
        "pod_requests": (jobs["pod"],),
        **{f"{verb}_pod": (jobs["pod"],) for verb in ("quiet", "resume", "stop")},
        "show_stacks": (jobs["pod"],),
        "enqueue": (EnqueueRequest("new.kind", queue=queue),),
        "set_queue": (queue, QueueEdit(max_workers=7)),
        **{f"{verb}_queue": (queue,) for verb in ("delete", "pause", "resume")},
        "end_cooldown": (queue,),
        "preview_action": ("cancel_jobs", *ids),
        "apply_action": (Apply(token=jobs["token"]),),
        "list_actions": (),
        **{f"{verb}_action": (jobs["action"],) for verb in ("get", "continue", "abort", "undo")},
        "action_jobs": (jobs["action"],),
        "add_schedule": (
            f"new-{queue}",
            ScheduleEdit(kind="new.kind", expression="@daily", queue=queue),
        ),
        "set_schedule": (schedule, edit),
        **{f"{verb}_schedule": (schedule,) for verb in ("pause", "resume", "delete", "trigger")},
        "schedule_fires": (schedule,),
        "add_strike": ("new", StrikeRule(kind="a.kind")),
        "lift_strike": (STRIKE,),
        "preview_strike": ("a.kind", f'n == "{SECRET}"'),
        "list_outbox": (OUTBOX,),
        "retry_outbox": (OUTBOX,),
        "discard_outbox": (OUTBOX, (jobs["outbox"],)),
        "set_limit": (LIMIT, RateLimit(5, timedelta(days=1))),
        **{f"{verb}_limit": (LIMIT,) for verb in ("delete", "drain")},
        "list_concurrency": (),
        **{f"{verb}_concurrency": (queue, "hosts") for verb in ("get", "delete")},
        "set_concurrency": (queue, "hosts", 3),
    }


async def everything(storage: Storage) -> bytes:
    """All that an operation could have changed."""
    async with operator(storage, ALL) as boss:
        page = await boss.list_jobs()
        queues = [(q.name, q.settings, q.paused, q.counts.by_status) for q in
                  (await boss.list_queues()).queues]  # fmt: skip
        schedules, limits = await boss.list_schedules(), await boss.list_limits()
        at_once = await boss.list_concurrency()
        strikes = (await boss.list_strikes()).strikes
        outboxes = await boss.outbox_state()
    written = [(each.name, each.waiting, each.set_aside) for each in outboxes.outboxes]
    return document([page.jobs, queues, schedules, limits.rate_limits, at_once, strikes, written])


@pytest.mark.parametrize("named", ACCESSES)
async def test_no_operation_goes_beyond_the_access(named: str, sqlite_storage: Storage) -> None:
    storage, access = sqlite_storage, ACCESSES[named]
    jobs = await furnish(storage) | await workflows(storage)
    before = await everything(storage)
    given = arguments(jobs, CLOSED)
    assert set(given) == {each.name for each in OPERATIONS}
    may_change = access.read and bool(access.actions) and access.queues is None
    async with operator(storage, access) as limited:
        for operation in OPERATIONS:
            if may_change and operation.right is Right.ACTIONS:
                continue
            try:
                told = document(await getattr(limited, operation.name)(*given[operation.name]))
            except (Forbidden, NotFound):
                continue
            if not access.payloads:
                assert SECRET.encode() not in told, operation.name
            if access.queues is not None:
                assert CLOSED.encode() not in told, operation.name
            assert access.read or operation.name == "me"

    assert await everything(storage) == before


@pytest.mark.parametrize(
    ("access", "right", "name"),
    [
        (Access(read=False), "read", "list_jobs"),
        (Access(), "actions", "pause_queue"),
        (Access(actions=frozenset({"resume_queue"})), "actions", "pause_queue"),
        (Access(actions=EVERY), "payloads", "job_log"),
        (Access(actions=EVERY, queues=frozenset({OPEN})), "queues", "set_limit"),
        (Access(actions=EVERY, queues=frozenset({OPEN})), "queues", "enqueue"),
        (Access(queues=frozenset({OPEN})), "queues", "doctor"),
        (Access(queues=frozenset({OPEN})), "queues", "list_limits"),
        (Access(queues=frozenset({OPEN})), "queues", "list_strikes"),
        (Access(queues=frozenset({OPEN})), "queues", "outbox_state"),
        (Access(actions=EVERY, queues=frozenset({OPEN})), "queues", "add_strike"),
        (Access(actions=frozenset({"add_strike"})), "actions", "lift_strike"),
        (Access(queues=frozenset({OPEN})), "queues", "store"),
    ],
)
async def test_a_refusal_names_the_right(
    sqlite_storage: Storage, access: Access, right: str, name: str
) -> None:
    given = arguments(await furnish(sqlite_storage), CLOSED)
    async with operator(sqlite_storage, access) as limited:
        with pytest.raises(Forbidden) as refused:
            await getattr(limited, name)(*given[name])

    assert refused.value.right == right
    assert str(refused.value).startswith(f"ada lacks the right '{right}'")


async def test_an_actor_of_one_queue_works_there(storage: Storage) -> None:
    jobs = await furnish(storage)
    access = Access(actions=EVERY, payloads=True, queues=frozenset({OPEN}))
    async with operator(storage, access) as limited:
        assert [job.id for job in (await limited.list_jobs()).jobs] == [jobs[OPEN]]
        assert await limited.count_jobs() == Count(1)
        assert [each.name for each in (await limited.list_queues()).queues] == [OPEN]
        both = await limited.cancel_jobs(JobFilter(ids=(jobs[OPEN], jobs[CLOSED])))
        assert both.changed == [jobs[OPEN]]
        assert list(both.refused) == [jobs[CLOSED]]
        everything_mine = await limited.requeue_jobs(JobFilter())
        assert everything_mine.changed == [jobs[OPEN]]
        assert (await limited.pause_queue(OPEN)).paused
        events = (await limited.job_timeline(jobs[OPEN])).events
        assert EventKind.REQUEUED in [event.kind for event in events]

    kept = (await storage.jobs.get([jobs[CLOSED]]))[jobs[CLOSED]]
    assert kept.status is JobStatus.FAILED


async def test_an_actor_of_one_queue_sees_and_undoes_what_was_done_there(storage: Storage) -> None:
    await furnish(storage)
    open_job, closed_job = [await enqueue_one(storage, queue=each) for each in (OPEN, CLOSED)]
    access = Access(actions=EVERY, payloads=True, queues=frozenset({OPEN}))
    async with operator(storage, access) as limited, operator(storage, ALL) as boss:
        await boss.pause_queue(CLOSED)
        await boss.set_schedule("of-vault", ScheduleEdit(priority=3))
        await boss.edit_job(closed_job, JobEdit(priority=3))
        await limited.edit_job(open_job, JobEdit(priority=3))
        await boss.resume_queue(OPEN)
        await limited.set_queue(OPEN, QueueEdit(max_workers=7))
        await limited.set_schedule("of-open", ScheduleEdit(priority=3))
        await limited.trigger_schedule("of-open")
        await limited.pause_schedule("of-open")
        # From now on the name is open, and what was done before stays closed.
        await boss.set_schedule("of-vault", ScheduleEdit(queue=OPEN))
        seen = (await limited.list_actions()).actions
        assert [(each.verb, each.target) for each in seen] == [
            ("pause_schedule", "of-open"),
            ("trigger_schedule", "of-open"),
            ("set_schedule", "of-open"),
            ("set_queue", OPEN),
            ("resume_queue", OPEN),
            ("edit_job", open_job),
            ("add_schedule", "of-open"),
        ]
        for each in seen:
            assert await limited.get_action(each.id) == each
        for each in (await boss.list_actions()).actions:
            if each.id not in {mine.id for mine in seen}:
                with pytest.raises(NotFound):
                    await limited.undo_action(each.id)
        undone = await limited.undo_action(seen[3].id)
        assert (undone.undoes, undone.concerns) == (seen[3].id, (OPEN,))
        assert (await limited.list_actions()).actions[0].id == undone.id

    states = {state.name: state for state in await storage.config.queues()}
    assert states[OPEN].settings.max_workers == 2


async def test_a_filter_of_a_closed_queue_means_no_job(sqlite_storage: Storage) -> None:
    await furnish(sqlite_storage)
    async with operator(sqlite_storage, Access(queues=frozenset({OPEN}))) as limited:
        assert (await limited.list_jobs(JobFilter(queues=(CLOSED,)))).jobs == ()


@pytest.mark.parametrize("text", ["payload.token:x", "-payload.token:x", "error:swordfish"])
async def test_nobody_learns_of_payloads_by_asking_for_them(
    sqlite_storage: Storage, text: str
) -> None:
    await furnish(sqlite_storage)
    which = JobFilter(terms=parse_query(text).terms)
    async with operator(sqlite_storage, Access(actions=EVERY)) as limited:
        for call in (limited.list_jobs, limited.count_jobs, limited.cancel_jobs):
            with pytest.raises(Forbidden) as refused:
                await call(which)
            assert refused.value.right == "payloads"
    async with operator(sqlite_storage, ALL) as boss:
        assert (await boss.count_jobs(which)).is_exact


async def test_a_number_of_any_size_passes_through_a_document(sqlite_storage: Storage) -> None:
    job_id = await enqueue_one(sqlite_storage, payload='{"n": 9223372036854775808123, "x": 1.10}')
    async with operator(sqlite_storage, ALL) as boss:
        told = document(await boss.get_job(job_id))

    assert b'"payload":{"n":9223372036854775808123,"x":1.10}' in told


@pytest.mark.parametrize(
    "make",
    [
        lambda: Access(**_any(read="yes")),
        lambda: Access(**_any(queues="gh")),
        lambda: Access(**_any(actions=True)),
        lambda: Access(**_any(queues={1})),
        lambda: Actor(name=""),
        lambda: Actor(**_any(name="ada", surface="phone")),
        lambda: Actor(**_any(name="ada", access=None)),
    ],
)
def test_a_wrong_actor_is_refused(make: Any) -> None:
    with pytest.raises(InvalidInput):
        make()
