"""Looks at every key of a Redis store, and reports what is wrong with any of them.

Each key must be permanent by name, belong to a job that exists, or expire by itself. The indexes of
a queue must agree exactly with the jobs.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from redis import Redis as SyncRedis
from redis import RedisCluster as SyncCluster
from redis.asyncio import Redis, RedisCluster

from forge_jobs.storage.redis.base.places import Places
from forge_jobs.storage.redis.keys import OLD_HASHES, Keys, queue_of

_FLEET = frozenset(
    {
        "queues",
        "pods",
        "leader",
        "schedules",
        "due",
        "outbox",
        "outbox_seq",
        "limits",
        "strikes",
        "rates",
        "rates_idle",
        "kinds",
        "actions",
        "gauges",
        "pod_hours",
        "flow_minutes",
        "flow_hours",
        "schema",
        "events",
        "event_seq",
    }
)
_OF_FLEET = ("pod", "ev", "g", "hg", "fm", "fh", "action", "ask", "asks")
_QUEUE = frozenset(
    {
        "queue",
        "slots",
        "lines",
        "held",
        "at_most",
        "parks",
        "struck",
        "turns",
        "sequences",
        "claimed",
        "owners",
        "started",
        "unique",
        "expiring",
        "results",
        "handovers",
        "letters",
        "minutes",
        "hours",
        "errors",
        "error_hours",
        "flow_minutes",
        "flow_hours",
        "flow_totals",
        "unfolded",
        "events",
        "event_seq",
        "gone",
    }
)
_TOLD = ("prog", "log", "ckpt")
_OF_JOBS = (
    *("j", "err", *_TOLD),
    "waits",
    "kids",
    "kin",
    "told",
    "letter",
    "letters",
    "ready",
    "held",
    "using",
    "parked",
    "struck",
    "own",
    "s",
    "ended",
    "kind",
)
_LISTS = ("tag", "key", "schedule", "group")
_FAILURES = ("eg", "eh", "fm", "fh")
_COUNTS = ("m", "l", "hm", "hl", "ev", "g", "hg", "fired", "barred", "cool", "merged")
_MORTAL = (*_COUNTS, "act", "acted", "action", "ask", "asks", "rates", "rates_idle")
_ACTIVE = frozenset(("blocked", "pending", "in_progress", "failed"))
_RARE = frozenset(
    ("cancel", "key", "tags", "schedule", "kids", "expires", "result_ttl", "started", "result")
)
"""Fields that a job with none of them need not be asked for."""
_BOUNDS = 2**45 * 256
_STATUSES = _ACTIVE | {"done", "dead", "cancelled"}

NEVER = -1
"""The PTTL of a key that does not expire. In the last millisecond the PTTL is 0, and before Redis
7.2 also of a key that has expired since the script began.
"""

_DUMP = """
local readers = {
    hash = {"HGETALL"},
    zset = {"ZRANGE", "0", "-1", "WITHSCORES"},
    set = {"SMEMBERS"},
    list = {"LRANGE", "0", "-1"},
    string = {"GET"},
}
local found, cursor = {}, "0"
repeat
    local page = redis.call("SCAN", cursor, "MATCH", ARGV[1], "COUNT", 1000)
    cursor = page[1]
    for _, key in ipairs(page[2]) do
        local kind = redis.call("TYPE", key).ok
        local command, first, last, option = unpack(readers[kind])
        local value = redis.call(unpack({command, key, first, last, option}))
        found[#found + 1] = {key, kind, redis.call("PTTL", key), value}
    end
until cursor == "0"
return found
"""


class _Queue:
    """The keys of one queue, by the part after the base. The jobs in them once all are there."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}

    @cached_property
    def jobs(self) -> dict[str, dict[str, str]]:
        return {name[2:]: value for name, value in self.keys.items() if name.startswith("j:")}

    def get(self, name: str) -> Any:
        return self.keys.get(name, {})

    def below(self, prefix: str) -> dict[str, Any]:
        return {
            name.removeprefix(f"{prefix}:"): value
            for name, value in self.keys.items()
            if name.startswith(f"{prefix}:")
        }


async def problems(client: "Redis | RedisCluster", prefix: str) -> list[str]:
    """Return what is wrong with the keys of the store. Empty when all is well."""
    return problems_in(await contents(client, prefix), prefix)


def problems_in(stored: "list[tuple[str, Any, int]]", prefix: str) -> list[str]:
    """:func:`problems` of what :func:`contents` or :func:`read` has found."""
    found: list[str] = []
    bases: defaultdict[str, _Queue] = defaultdict(_Queue)
    pattern = re.compile(re.escape(prefix) + r":\{([^}]*)\}:(.*)", re.DOTALL)
    for key, value, ends_in in stored:
        matched = pattern.fullmatch(key)
        if matched is None:
            found.append(f"{key} is not under a base")
            continue
        tag, name = matched[1], matched[2]
        bases[tag].keys[name] = value
        found += _check_name(tag, name, ends_in != NEVER)
    names = set(bases["#"].get("queues") or ())
    for tag, queue in bases.items():
        if tag != "#" and not tag.startswith("@"):
            found += (f"queue {queue_of(tag)}: {problem}" for problem in _check_queue(queue))
            if queue_of(tag) not in names:
                found.append(f"queue {queue_of(tag)} is not among the names of all queues")
    return [*found, *_check_locators(Keys(prefix), bases)]


async def contents(client: "Redis | RedisCluster", prefix: str) -> list[tuple[str, Any, int]]:
    """Return each key, the content, and the milliseconds until the key expires, -1 for never."""
    return _plain_all(await client.execute_command(*_look(prefix), **_everywhere(client)))


def read(client: "SyncRedis | SyncCluster", prefix: str) -> list[tuple[str, Any, int]]:
    """:func:`contents` by a client that waits."""
    run: Any = client.execute_command
    return _plain_all(run(*_look(prefix), **_everywhere(client)))


def _look(prefix: str) -> tuple[str | int, ...]:
    return "EVAL", _DUMP, 0, f"*{prefix}*"


def _everywhere(client: object) -> dict[str, Any]:
    is_cluster = isinstance(client, (RedisCluster, SyncCluster))
    return {"target_nodes": RedisCluster.PRIMARIES} if is_cluster else {}


def _plain_all(answer: Any) -> list[tuple[str, Any, int]]:
    """Return the entries in the order of the keys. A scan may find a key twice."""
    answers = answer.values() if isinstance(answer, dict) else [answer]
    found = {
        _text(key): (_plain(_text(kind), value), ends_in)
        for each in answers
        for key, kind, ends_in, value in each
    }
    return [(key, *found[key]) for key in sorted(found)]


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


def _plain(kind: str, value: Any) -> Any:
    if kind == "string":
        return _text(value)
    if kind == "hash":
        return {_text(name): _text(each) for name, each in _pairs(value)}
    if kind == "zset":
        return {_text(member): float(score) for member, score in _pairs(value)}
    members = [_text(each) for each in value]
    return set(members) if kind == "set" else members


def _pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _check_name(tag: str, name: str, is_mortal: bool) -> Iterator[str]:
    first = name.partition(":")[0]
    if tag.startswith("@"):
        is_known = name in ("ids", "from")
    elif tag == "#":
        is_known = name in _FLEET or first in _OF_FLEET
    else:
        is_known = name in _QUEUE or first in (*_OF_JOBS, *_LISTS, *_FAILURES, *_MORTAL)
    if not is_known:
        yield f"{{{tag}}}:{name} is a key that nobody knows"
    if is_mortal != (first in _MORTAL):
        yield f"{{{tag}}}:{name} {'ends by itself' if is_mortal else 'stays for ever'}"


def _check_queue(queue: _Queue) -> Iterator[str]:
    yield from _check_marks(queue)
    yield from _check_lists(queue)
    yield from _check_waiting(queue)
    yield from _check_claims(queue)
    yield from _check_permits(queue)
    yield from _check_ended(queue)
    yield from _check_keys(queue)
    yield from _check_edges(queue)
    yield from _check_letters(queue)
    yield from _check_minutes(queue)
    yield from _check_failures(queue)


def _same(what: str, stored: Mapping[str, object], meant: Mapping[str, object]) -> Iterator[str]:
    if stored != meant:
        extra = {name: each for name, each in stored.items() if meant.get(name) != each}
        missing = {name: each for name, each in meant.items() if stored.get(name) != each}
        yield f"{what}: stored {extra}, meant {missing}"


def _by(jobs: Mapping[str, dict[str, str]], name: str) -> dict[str, set[str]]:
    """Map each value of a field to the jobs with that value. A field may have several lines."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for job_id, job in jobs.items():
        for value in job[name].split("\n") if name in job else ():
            found[value].add(job_id)
    return dict(found)


def _check_marks(queue: _Queue) -> Iterator[str]:
    for job_id, job in queue.jobs.items():
        waits = job["status"] in ("pending", "failed")
        is_plain = _RARE.isdisjoint(job) and not (
            (waits and "attempt" in job)
            or int(job.get("crashes", 0))
            or (job["status"] == "in_progress" and "settled" in job)
            or job["status"] in ("blocked", "failed")
        )
        if job["status"] in _ACTIVE and not is_plain and "more" not in job:
            yield f"{job_id} is not plain, and nothing says so: {sorted(job)}"


def _check_lists(queue: _Queue) -> Iterator[str]:
    for prefix, name in (
        ("s", "status"),
        ("tag", "tags"),
        *((n, n) for n in ("kind", "key", "schedule", "group")),
    ):
        stored = {value: set(ids) for value, ids in queue.below(prefix).items()}
        meant = _by(queue.jobs, name)
        if name == "status":
            # These are listed by their beat.
            meant.pop("in_progress", None)
        yield from _same(f"lists by {name}", stored, meant)
    for status in queue.below("s"):
        if status not in _STATUSES:
            yield f"a status {status}"
    for errors_of in queue.below("err"):
        if errors_of not in queue.jobs:
            yield f"errors of {errors_of}, which does not exist"
    for told_by in {name.partition(":")[0] for prefix in _TOLD for name in queue.below(prefix)}:
        if told_by not in queue.jobs:
            yield f"progress, lines or checkpoint of {told_by}, which does not exist"


def _check_waiting(queue: _Queue) -> Iterator[str]:
    ready: dict[str, float] = {}
    held: dict[str, float] = {}
    expiring: dict[str, float] = {}
    lines: dict[str, float] = {}
    first: dict[str, float] = {}
    for job_id, job in queue.jobs.items():
        if job["status"] in ("pending", "failed") and "hold" in job:
            held.update({} if job["hold"] in {"limit", "struck"} else {job_id: 0})
        elif job["status"] in ("pending", "failed"):
            mark = "c" if int(job.get("crashes", 0)) else "n"
            line = f"{job['priority']} {mark} {job['kind']}"
            ready[f"{line} {job_id}"] = float(job["run_at"])
            lines[line] = float(job["priority"])
            # A claim passes over expired jobs, and bounds a line by the others.
            due = math.inf if "expires" in job else float(job["run_at"])
            first[line] = min(due, first.get(line, math.inf))
        elif "hold" in job:
            yield f"{job_id} is on hold, and {job['status']}"
        if job["status"] in ("blocked", "pending", "failed") and "expires" in job:
            expiring[job_id] = float(job["expires"])
    in_lines = {
        f"{line} {job_id}": run_at
        for line, ids in queue.below("ready").items()
        for job_id, run_at in ids.items()
    }
    yield from _same("ready", in_lines, ready)
    scores = queue.get("lines")
    yield from _same("lines", {line: math.floor(each) for line, each in scores.items()}, lines)
    for line, score in scores.items():
        bound = (score % 1) * _BOUNDS
        if bound > first.get(line, math.inf):
            yield f"line {line} has jobs due at {first[line]:.0f} before the bound {bound:.0f}"
    yield from _same("held", dict.fromkeys(queue.get("held"), 0), held)
    of_kinds = {one: 0 for ids in queue.below("held").values() for one in ids}
    yield from _same("held by kind", of_kinds, held)
    yield from _same("expiring", queue.get("expiring"), expiring)


def _check_claims(queue: _Queue) -> Iterator[str]:
    running = {job_id: job for job_id, job in queue.jobs.items() if job["status"] == "in_progress"}
    claimed = {job_id: float(job["beat"]) for job_id, job in running.items()}
    yield from _same("claimed", queue.get("claimed"), claimed)
    own = {host: set(ids) for host, ids in queue.below("own").items()}
    yield from _same("claims by pod", own, _by(running, "host"))
    owners = Counter(job["host"] for job in running.values())
    counted = {host: int(count) for host, count in queue.get("owners").items()}
    yield from _same("owners", counted, owners)
    started = {job_id: float(job["started"]) for job_id, job in running.items() if "started" in job}
    yield from _same("started", queue.get("started"), started)


def _check_permits(queue: _Queue) -> Iterator[str]:
    using, parked, struck = (defaultdict[str, set[str]](set) for _ in range(3))
    ready = Counter[str]()
    for job_id, job in queue.jobs.items():
        permit = job.get("permit", "")
        due = min(int(job.get("run_at", 0)), 2**53)
        place = f"{int(job.get('priority', 0)) + 2**31:010}{due:016}{job_id}"
        if permit and job["status"] == "in_progress":
            using[permit].add(job_id)
        elif job.get("hold") in {"limit", "struck"}:
            (parked[permit] if job["hold"] == "limit" else struck[job["limit"]]).add(place)
        elif job["status"] in ("pending", "failed") and "hold" not in job:
            ready[permit] += 1
    for prefix, meant in (("using", using), ("parked", parked), ("struck", struck)):
        yield from _same(prefix, {of: set(ids) for of, ids in queue.below(prefix).items()}, meant)
    for name, of_job in (("parks", parked), ("struck", struck)):
        yield from _same(name, dict.fromkeys(queue.get(name)), dict.fromkeys(of_job))
    for permit in parked:
        most, *_ = queue.get("at_most").get(permit.split("\n")[0], "").split(" ")[0].split("/")
        near = 2**62 if permit in queue.get("turns") else ready[permit]
        if not most or near < int(most) - len(using[permit]):
            yield f"of {permit!r} {len(parked[permit])} jobs wait for nothing"


def _check_ended(queue: _Queue) -> Iterator[str]:
    ended = {
        job_id: float(job["finished"])
        for job_id, job in queue.jobs.items()
        if job["status"] not in _ACTIVE
    }
    listed = {
        job_id: finished
        for ids in queue.below("ended").values()
        for job_id, finished in ids.items()
    }
    yield from _same("ended", listed, ended)
    results = queue.get("results")
    # A new occurrence keeps the result of the last one, whose end is no longer in the record.
    mortal = {
        job_id: results.get(job_id)
        if job["status"] in _ACTIVE
        else float(job["finished"]) + float(job["result_ttl"])
        for job_id, job in queue.jobs.items()
        if "result" in job and "result_ttl" in job
    }
    yield from _same("results", results, mortal)


def _check_keys(queue: _Queue) -> Iterator[str]:
    keyed = [(each, job) for each, job in queue.jobs.items() if "key" in job]
    held = {job["key"]: each for each, job in keyed if job["status"] in _ACTIVE}
    yield from _same("unique keys", queue.get("unique"), held)
    for key, last in queue.get("sequences").items():
        if queue.jobs.get(last, {}).get("sequence", "").partition(" ")[2] != key:
            yield f"the last job of the sequence {key!r} is not stored: {last}"


def _check_edges(queue: _Queue) -> Iterator[str]:
    waits = queue.below("waits")
    for child in waits.keys() - queue.jobs.keys():
        yield f"edges of {child}, which does not exist"
    for job_id, job in queue.jobs.items():
        if job["status"] == "blocked":
            edges = waits.get(job_id, {}).values()
            open_ones = sum(edge.startswith(("open ", "held ")) for edge in edges)
            if not 0 < open_ones == int(job.get("waits", 0)):
                yield f"{job_id} is blocked by {open_ones} edges, counted {job.get('waits')}"
    for parent in queue.below("kin").keys() - queue.jobs.keys():
        yield f"children are listed of {parent}, which does not exist"
    for parent, children in queue.below("kids").items():
        ended = queue.jobs.get(parent, {"status": "pending"})["status"] not in _ACTIVE
        for child in children if ended else ():
            if waits.get(child, {}).get(parent, "").startswith("open "):
                yield f"{child} was not told that {parent} has ended"
    listed = {record.split()[0] for record in queue.get("handovers")}
    if listed != set(queue.below("told")):
        yield f"handovers {sorted(listed)} are listed, there are {sorted(queue.below('told'))}"


def _check_letters(queue: _Queue) -> Iterator[str]:
    listed = queue.below("letters")
    if set(listed) != set(queue.get("letters")):
        yield f"letters are for {sorted(listed)}, listed are {sorted(queue.get('letters'))}"
    names = {name for each in listed.values() for name in each}
    if names != set(queue.below("letter")):
        yield f"letters {sorted(names)} are listed, there are {sorted(queue.below('letter'))}"


def _check_minutes(queue: _Queue) -> Iterator[str]:
    there = set(queue.below("m")) | set(queue.below("l"))
    if not there <= set(queue.get("minutes")):
        yield f"minutes {sorted(there)} are not all listed"
    if not set(queue.get("unfolded")) <= there:
        yield f"minutes {sorted(queue.get('unfolded'))} are to be folded, and not there"


def _check_failures(queue: _Queue) -> Iterator[str]:
    groups = {group: float(each["last"]) for group, each in queue.below("eg").items()}
    yield from _same("groups of failures", queue.get("errors"), groups)
    for prefix, listed in (("eh", "error_hours"), ("fm", "flow_minutes"), ("fh", "flow_hours")):
        there = set(queue.below(prefix))
        if there != set(queue.get(listed)):
            yield f"{prefix} of {sorted(there)}, {listed} has {sorted(queue.get(listed))}"


def _check_locators(keys: Keys, bases: Mapping[str, _Queue]) -> Iterator[str]:
    places = Places(keys)
    old = {number: bases.get(f"@{number}", _Queue()).keys for number in range(OLD_HASHES)}
    texts = {number: each["ids"] for number, each in old.items() if "ids" in each}
    places.note({number: text for number, text in texts.items() if isinstance(text, str)})
    located: dict[str, str] = {}
    for number, each in old.items():
        if "from" in each and not str(texts.get(number)).startswith("moving"):
            yield f"the locators of the old hash {number} are not being moved"
        located |= {job_id: _queue_in(value) for job_id, value in each.get("from", {}).items()}
    for tag, base in bases.items():
        if not tag.startswith("@") or isinstance(base.get("ids"), str):
            continue
        for job_id, value in base.get("ids").items():
            located[job_id] = _queue_in(value)
            if places.of(job_id) != f"{keys.prefix}:{{{tag}}}:ids":
                yield f"the locator of {job_id} is at the wrong place"
    for tag, base in bases.items():
        for job_id in base.jobs:
            if located.get(job_id) != queue_of(tag):
                yield f"{job_id} is in {queue_of(tag)}, located in {located.get(job_id)}"


def _queue_in(locator: str) -> str:
    return locator.partition("\n")[0]
