"""Input that passed the checks is stored and returned byte for byte, and means nothing."""

import json

import pytest

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, Unique
from forge_jobs.model.names import check_name
from forge_jobs.model.payloads import MAX_PAYLOAD_BYTES, check_json_text, encode_json
from forge_jobs.model.queues import QueueSettings
from forge_jobs.model.transitions import Cooldown
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    SECOND,
    claim,
    claim_one,
    counters,
    dead,
    done,
    enqueue_one,
    error,
    failed,
    finish,
    get_job,
    new_job,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio

NAMES = [
    "it's",
    '"quoted"',
    "`ticks`",
    "back\\slash\\",
    "{braces}",
    "{{0}}",
    "{0.__class__}",
    "%s %d %(x)s %",
    "a:b::c",
    ":param",
    "?",
    "$1",
    "*",
    "[ab]",
    "a?c",
    "a_b",
    "a%b",
    "queue{1}",
    "'; DROP TABLE jobs; --",
    "return redis.call('FLUSHALL')",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    " leading and trailing ",
    "NULL",
    "null",
    "0",
    "1e5",
    "true",
    "\u00e9",
    "e\u0301",
    "\u0130stanbul",
    "stra\u00dfe",
    "\U0001f600\U0001f468\u200d\U0001f469",
    "\u202eright to left",
    "\ufeffbom",
    "\ufffd\ufffe",
    "x" * 200,
    "\U0001f600" * 200,
]


def test_every_name_used_here_passes_the_border() -> None:
    assert [check_name("name", name) for name in NAMES] == NAMES


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_lives_a_whole_life(storage: Storage, name: str) -> None:
    await storage.config.ensure_queue(name, QueueSettings(max_workers=2))
    lease = await register(storage, queues=[name], kinds=[name])
    job_id = await enqueue_one(
        storage,
        queue=name,
        kind=name,
        unique=Unique(name),
        tags=(name, "other"),
        schedule=name,
        metadata=json.dumps({name: name}),
        fingerprint=name,
        trace=json.dumps({name: name}),
    )
    [outcome] = await storage.jobs.enqueue([new_job(queue=name, kind=name, unique=Unique(name))])
    assert (outcome.job_id, outcome.deduplicated) == (job_id, True)
    claimed = await claim_one(storage, lease, queue=name, kinds=[name])
    assert (claimed.claim.queue, claimed.kind, claimed.schedule) == (name, name, name)
    assert claimed.tags == (name, "other")
    assert json.loads(claimed.metadata) == {name: name}
    assert json.loads(claimed.trace) == {name: name}
    await storage.jobs.heartbeat(lease, [], 15 * SECOND)
    record = error(name, type=name, traceback=name, host_id=name)
    assert await finish(storage, claimed, failed(error=record, cooldown=Cooldown(SECOND, 1)))
    job = await get_job(storage, job_id)
    assert (job.queue, job.kind, job.unique_key, job.schedule) == (name, name, name, name)
    assert (job.tags, dict(job.metadata)) == ((name, "other"), {name: name})
    kept = job.errors[0]
    assert (kept.message, kept.type, kept.traceback, kept.host_id) == (name, name, name, name)
    for which in (
        JobFilter(queues=(name,)),
        JobFilter(kinds=(name,)),
        JobFilter(tag=name),
        JobFilter(unique_key=name),
        JobFilter(schedule=name),
    ):
        assert [line.id for line in (await storage.jobs.list(which)).jobs] == [job_id]
    assert set(await storage.jobs.counts([name])) == {name}
    assert (await counters(storage, name))["failed"] == 1


async def test_names_are_told_apart_exactly(storage: Storage) -> None:
    ids: dict[str, JobId] = {}
    for name in NAMES:
        ids[name] = await enqueue_one(
            storage, queue=name, unique=Unique(name), tags=(name,), schedule=name
        )
    assert set(await storage.jobs.counts()) == set(NAMES)
    for name, job_id in ids.items():
        for which in (
            JobFilter(queues=(name,)),
            JobFilter(tag=name),
            JobFilter(unique_key=name),
            JobFilter(schedule=name),
        ):
            assert [line.id for line in (await storage.jobs.list(which)).jobs] == [job_id]
    lease = await register(storage, queues=NAMES)
    for name, job_id in ids.items():
        claimed = await claim(storage, lease, queue=name, limit=1_000)
        assert [c.claim.job_id for c in claimed] == [job_id]


async def test_kinds_are_told_apart_exactly(storage: Storage) -> None:
    lease = await register(storage, kinds=NAMES)
    ids = {name: await enqueue_one(storage, kind=name) for name in NAMES}
    for name in reversed(NAMES):
        claimed = await claim(storage, lease, kinds=[name], limit=1_000)
        assert [c.claim.job_id for c in claimed] == [ids[name]]


@pytest.mark.parametrize("pair", [("a", "A"), ("\u00e9", "e\u0301"), ("x", "x "), ("0", "00")])
async def test_keys_that_look_alike_are_different(storage: Storage, pair: tuple[str, str]) -> None:
    first, second = [await enqueue_one(storage, unique=Unique(key)) for key in pair]
    assert first != second


PAYLOADS = [
    "{}",
    " { } ",
    '{"a":1,"a":2}',
    '{ "b" : 1.0 , "a" : 1 }',
    '{"n":12345678901234567}',
    '{"n":18446744073709551615}',
    '{"n":-9223372036854775808}',
    '{"n":1e2,"m":1.10,"z":-0.0}',
    '{"empty":[],"object":{},"null":null}',
    '{"text":"\\u00e9\u00e9\\/\\ud83d\\ude00\U0001f600"}',
    '{"text":"\\n\\t\\u0001\\u007f\u2028\u2029"}',
    '{"text":"%s {} :name ?1 $1 \'; --"}',
    '{"__proto__":{"x":1}}',
    '{"text":"\u202e\ufeff"}',
    '\n{\n\t"spaced":\r\n1}\n',
    '{"deep":' + "[" * 98 + "]" * 98 + "}",
]


@pytest.mark.parametrize("payload", PAYLOADS)
async def test_a_payload_comes_back_byte_for_byte(storage: Storage, payload: str) -> None:
    assert check_json_text("payload", payload) == payload
    lease = await register(storage)
    request = new_job(payload=payload)
    await storage.jobs.enqueue([request])
    assert (await claim_one(storage, lease)).payload == payload
    assert (await get_job(storage, request.id)).payload == payload
    [outcome] = await storage.jobs.enqueue([request])
    assert not outcome.deduplicated


async def test_a_payload_of_the_largest_size_comes_back_whole(storage: Storage) -> None:
    lease = await register(storage)
    filler = MAX_PAYLOAD_BYTES - len('{"x":""}')
    payload = encode_json("payload", {"x": "\u00e9" * (filler // 2)})
    assert len(payload.encode()) == MAX_PAYLOAD_BYTES
    await storage.jobs.enqueue([new_job(payload=payload) for _ in range(3)])
    claimed = await claim(storage, lease, limit=3)
    assert [c.payload == payload for c in claimed] == [True] * 3
    assert await finish(storage, claimed[0], done(payload))
    assert (await get_job(storage, claimed[0].claim.job_id)).result == payload


@pytest.mark.parametrize("result", ["null", '""', "0", "[]", '"null"', '{"a":1.0}'])
async def test_a_result_is_an_opaque_text(storage: Storage, result: str) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    job_id = await run_one(storage, lease, done(result))
    assert (await get_job(storage, job_id)).result == result


async def test_a_long_traceback_is_kept(storage: Storage) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    record = error("m" * 4_000, traceback="line %s {} \u2603\n" * 2_000, cause=Cause.REJECTED)
    job_id = await run_one(storage, lease, dead(error=record))
    [kept] = (await get_job(storage, job_id)).errors
    assert (kept.message, kept.traceback) == (record.message, record.traceback)


async def test_a_hundred_tags_and_parents(storage: Storage) -> None:
    tags = tuple(f"tag {number}" for number in range(100))
    parents = [new_job() for _ in range(100)]
    child = new_job(tags=tags, after=tuple(After(p.id) for p in parents))
    await storage.jobs.enqueue([*parents, child])
    job = await get_job(storage, child.id)
    assert job.tags == tags
    assert job.waits_for == tuple(p.id for p in parents)
