"""``enqueue``, ``jobs`` and ``explain``: what they print, and what they change."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After
from forge_jobs.model.processes import AllocationChange, Slots
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.privacy.secrets import Secret
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.opening import open_storage
from tests.cli.conftest import CommandLine
from tests.support.factories import KIND, QUEUE, claim_one, failed, finish, new_job, register

Enqueue = Callable[..., str]
UNKNOWN_ID = "01J00000000000000000000000"


def test_enqueue_prints_the_id_and_stores_every_option(forge: CommandLine) -> None:
    job_id = forge(
        *("enqueue", "shop.pay", "--payload", '{"n": 7}', "--queue", "money", "--priority", "-3"),
        *("--max-attempts", "unlimited", "--tag", "a", "--tag", "b", "--timeout", "1m30s"),
        *("--unique-key", "k", "--run-at", "2030-01-31T18:00:00+02:00"),
    ).stdout.strip()

    job = forge.json("jobs", "show", job_id)
    assert job["id"] == job_id
    assert (job["kind"], job["queue"], job["status"]) == ("shop.pay", "money", "pending")
    assert job["payload"] == {"n": 7}
    assert job["priority"] == -3
    assert job["max_attempts"] is None
    assert job["tags"] == ["a", "b"]
    assert job["timeout"] == 90
    assert job["unique_key"] == "k"
    assert job["due_at"] == "2030-01-31T16:00:00Z"


def test_a_payload_comes_from_stdin_too(forge: CommandLine) -> None:
    job_id = forge("enqueue", "a", "--payload", "-", stdin='{"naïve": "ü"}').stdout.strip()

    assert forge.json("jobs", "show", job_id)["payload"] == {"naïve": "ü"}


def test_enqueue_spreads_over_a_window(forge: CommandLine) -> None:
    asked = (
        "enqueue",
        "a",
        "--run-at",
        "2030-01-31T16:00:00Z",
        "--spread",
        "1h",
        "--id",
        UNKNOWN_ID,
    )

    first, again = (forge(*asked).stdout.strip() for _ in range(2))

    assert first == again == UNKNOWN_ID
    due = datetime.fromisoformat(forge.json("jobs", "show", UNKNOWN_ID)["due_at"])
    assert timedelta(0) < due - datetime(2030, 1, 31, 16, tzinfo=UTC) < timedelta(hours=1)


def test_a_duplicate_reports_the_holder_of_its_key(forge: CommandLine) -> None:
    first = forge.json("enqueue", "a", "--unique-key", "k")

    second = forge("enqueue", "a", "--unique-key", "k")

    assert first["deduplicated"] is False
    assert second.stdout.strip() == first["job_id"]
    assert "holds the unique key" in second.stderr
    assert forge.json("enqueue", "a", "--unique-key", "k") == {
        "job_id": first["job_id"],
        "deduplicated": True,
        "replaced": False,
        "follow_up": False,
        "struck_by": None,
    }


def test_a_repeat_under_one_id_stores_one_job(forge: CommandLine) -> None:
    for _ in range(2):
        assert forge.json("enqueue", "a", "--id", UNKNOWN_ID) == {
            "job_id": UNKNOWN_ID,
            "deduplicated": False,
            "replaced": False,
            "follow_up": False,
            "struck_by": None,
        }

    assert len(forge.json("jobs", "list")["jobs"]) == 1
    assert "already" in forge.refuse("enqueue", "b", "--id", UNKNOWN_ID, code=1)


def test_handlers_check_the_payload_before_it_is_stored(forge: CommandLine) -> None:
    registry = ("--handlers", "forge_jobs.demo.handlers:handlers")

    text = forge.refuse("enqueue", "demo.ping", "--payload", '{"ledger": 7}', *registry)

    assert "ledger" in text
    assert forge.json("jobs", "list")["jobs"] == []


def test_list_filters_and_pages(forge: CommandLine, enqueue: Enqueue) -> None:
    ids = [enqueue("a", "--queue", queue) for queue in ("x", "x", "y")]

    newest_first = [job["id"] for job in forge.json("jobs", "list")["jobs"]]
    page = forge.json("jobs", "list", "--queue", "x", "--limit", "1")
    rest = forge.json("jobs", "list", "--queue", "x", "--limit", "1", "--cursor", page["cursor"])

    assert newest_first == ids[::-1]
    assert [job["id"] for job in page["jobs"] + rest["jobs"]] == [ids[1], ids[0]]
    assert rest["cursor"] is None


def test_a_list_for_people_is_aligned_and_says_how_to_go_on(
    forge: CommandLine, enqueue: Enqueue
) -> None:
    ids = [enqueue("a.long.kind"), enqueue("a")]

    result = forge("jobs", "list", "--limit", "1")

    head, line = result.stdout.splitlines()
    assert head.startswith("ID ")
    assert line.startswith(ids[1])
    assert head.index("KIND") == line.index(" a ") + 1
    assert "--cursor" in result.stderr


def test_an_empty_list_is_said_on_stderr(forge: CommandLine) -> None:
    result = forge("jobs", "list")

    assert result.stdout == ""
    assert result.stderr == "No job matches.\n"


def test_a_list_that_ended_early_says_how_far_back_it_looked_and_how_to_go_on(
    forge: CommandLine, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = 2_000
    monkeypatch.setattr("forge_jobs.storage.sql.jobs.filters.WALKED", walked)
    wanted = enqueue("rare", "--tag", "rare")

    async def fill() -> None:
        async with await open_storage(forge.url) as storage:
            await storage.jobs.enqueue([new_job() for _ in range(walked + walked // 5)])

    anyio.run(fill)
    result = forge("jobs", "list", "--tag", "rare")
    assert result.stdout == ""
    assert result.stderr.startswith("No job matches among those looked at.\nLooked back to 20")
    found = forge("jobs", "list", "--tag", "rare", "--cursor", result.stderr.split()[-1])
    assert wanted in found.stdout
    assert "No job" not in found.stderr


def test_show_tells_people_the_same(forge: CommandLine, enqueue: Enqueue) -> None:
    job_id = enqueue("a", "--payload", '{"x": "[red]"}')

    text = forge("jobs", "show", job_id).stdout

    assert job_id in text
    assert '{"x": "[red]"}' in text


def test_cancel_requeue_and_delete_by_id(forge: CommandLine, enqueue: Enqueue) -> None:
    ids = [enqueue("a"), enqueue("a")]

    assert forge.json("jobs", "cancel", *ids)["changed"] == sorted(ids)
    assert forge.json("jobs", "requeue", ids[0])["changed"] == [ids[0]]
    assert forge("jobs", "delete", ids[1]).stdout == "1 deleted\n"

    assert [job["id"] for job in forge.json("jobs", "list")["jobs"]] == [ids[0]]


def test_what_was_refused_is_named_and_is_exit_code_1(forge: CommandLine, enqueue: Enqueue) -> None:
    job_id = enqueue("a")

    result = forge("jobs", "cancel", job_id, UNKNOWN_ID, code=1)

    assert result.stdout == "1 cancelled, 1 refused\n"
    assert result.stderr == f"{UNKNOWN_ID} refused: not_found\n"
    assert forge.json("jobs", "requeue", UNKNOWN_ID, code=1)["refused"] == {UNKNOWN_ID: "not_found"}


def test_all_that_match_are_changed_and_no_others(forge: CommandLine, enqueue: Enqueue) -> None:
    for _ in range(3):
        enqueue("a", "--queue", "x")
    other = enqueue("a", "--queue", "y")

    action = forge.json("jobs", "cancel", "--queue", "x", "--all-matching", "--yes")

    assert (action["changed"], action["state"]) == (3, "done")
    assert other not in forge("actions", "jobs", action["id"]).stdout


def test_all_that_match_need_a_yes(forge: CommandLine, enqueue: Enqueue) -> None:
    for kind in ("a", "a", "b"):
        enqueue(kind, "--queue", "x")
    of_kind = ("--kind", "a", "--all-matching")

    declined = forge("jobs", "delete", *of_kind, code=1, stdin="n\n")
    assert "delete 2 jobs? [y/N]" in declined.stderr
    assert len(forge.json("jobs", "list")["jobs"]) == 3

    assert forge("jobs", "delete", *of_kind, stdin="y\n").stdout == "2 deleted\n"
    told = forge("jobs", "delete", "--queue", "x", "--all-matching", "--yes")
    assert told.stderr.startswith("delete: 1 job\nRecorded: forge-jobs actions show ")
    assert forge.json("jobs", "list")["jobs"] == []


def test_a_change_by_filter_is_an_action_with_a_reason(
    forge: CommandLine, enqueue: Enqueue
) -> None:
    first, second = sorted(enqueue("a") for _ in range(2))
    where = ("--kind", "a", "--all-matching", "--yes")
    done = forge("jobs", "cancel", *where, "--reason", "the bank is closed")
    forge("jobs", "requeue", first, "--reason", "open again")

    [requeued, cancelled] = forge.json("actions", "list")["actions"]
    assert cancelled["id"] in done.stderr
    assert (cancelled["verb"], cancelled["surface"]) == ("cancel_jobs", "command")
    assert (cancelled["reason"], cancelled["matched"]) == ("the bank is closed", 2)
    assert (requeued["reason"], requeued["changed"]) == ("open again", 1)
    left = forge("jobs", "cancel", *where)
    assert left.stdout == "1 cancelled, 1 refused\n"
    assert "1 refused: finished" in left.stderr
    assert forge.json("jobs", "show", second)["status"] == "cancelled"


def test_a_match_that_grew_is_asked_again(
    forge: CommandLine, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        enqueue("a")
    first, *_ = [job["id"] for job in forge.json("jobs", "list")["jobs"]]
    forge("jobs", "cancel", first)
    asked: list[str] = []

    def agree(text: str, **_: object) -> None:
        asked.append(text)
        if len(asked) == 1:
            anyio.run(_cancel_all, forge.url)

    monkeypatch.setattr("forge_jobs.cli.commands.jobs.click.confirm", agree)
    done = forge("jobs", "requeue", "--status", "cancelled", "--all-matching")
    assert asked == ["requeue 1 job?", "requeue 3 jobs?"]
    assert "3 jobs match, and 1 did" in done.stderr
    assert done.stdout == "3 requeued\n"


async def _cancel_all(url: str) -> None:
    async with await open_storage(url) as storage:
        await storage.jobs.cancel(JobFilter())


def test_every_job_of_the_store_is_meant_only_by_all(forge: CommandLine, enqueue: Enqueue) -> None:
    job_id = enqueue("a")
    enqueue("a", "--queue", "y")

    assert "--all" in forge.refuse("jobs", "delete", "--all-matching", "--yes")
    assert "--all" in forge.refuse("jobs", "cancel", "--all-matching", "--yes")
    assert "filter" in forge.refuse("jobs", "delete", "--all", "--kind", "a", "--yes")
    assert "filter" in forge.refuse("jobs", "delete", job_id, "--all", "--yes")
    assert len(forge.json("jobs", "list")["jobs"]) == 2

    asked = forge("jobs", "delete", "--all", stdin="y\n")
    assert "delete 2 jobs?" in asked.stderr
    assert asked.stdout == "2 deleted\n"


def test_more_jobs_than_are_worth_counting_are_said_to_be_many(
    forge: CommandLine, enqueue: Enqueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = 300
    monkeypatch.setattr("forge_jobs.storage.sql.jobs.filters.WALKED", walked)
    enqueue("a")

    async def fill() -> None:
        async with await open_storage(forge.url) as storage:
            await storage.jobs.enqueue([new_job(kind="a") for _ in range(walked)])

    anyio.run(fill)
    asked = forge("jobs", "run-now", "--kind", "a", "--all-matching", code=1, stdin="n\n")
    assert "run-now 301 jobs?" in asked.stderr

    counted = forge("jobs", "count", "--kind", "a")
    assert counted.stdout == "300+\n"
    assert "Looked back to 20" in counted.stderr
    rest = forge("jobs", "count", "--kind", "a", "--cursor", counted.stderr.split()[-1])
    assert (rest.stdout, rest.stderr) == ("1\n", "")


def test_a_count_is_exact_or_ends_with_a_plus(forge: CommandLine, enqueue: Enqueue) -> None:
    for _ in range(3):
        enqueue("a")

    assert forge("jobs", "count").stdout == "3\n"
    assert forge("jobs", "count", "--where", "status:dead").stdout == "0\n"
    assert forge("jobs", "count", "--at-most", "2").stdout == "2+\n"
    assert forge.json("jobs", "count", "--at-most", "2")["is_more"] is True


def test_a_list_may_be_in_the_order_of_due_times_or_of_ends(
    forge: CommandLine, enqueue: Enqueue
) -> None:
    ids = [enqueue("a", "--delay", delay) for delay in ("3h", "1h", "2h")]

    def listed(order: str, *more: str) -> list[str]:
        found = forge.json("jobs", "list", "--order", order, *more)
        return [job["id"] for job in found["jobs"]]

    assert listed("due") == [ids[1], ids[2], ids[0]]
    page = forge.json("jobs", "list", "--order", "due", "--limit", "1")
    assert listed("due", "--cursor", page["cursor"]) == [ids[2], ids[0]]
    forge("jobs", "list", "--cursor", page["cursor"], code=2)
    for job_id in ids[1:]:
        forge("jobs", "cancel", job_id)
    assert listed("finished") == [ids[2], ids[1]]


def test_run_now_makes_a_scheduled_job_due(forge: CommandLine, enqueue: Enqueue) -> None:
    job_id = enqueue("a", "--delay", "1h")
    assert forge.json("explain", job_id)["reason"] == "not_due"

    forge("jobs", "run-now", job_id)

    assert forge.json("explain", job_id)["reason"] != "not_due"


def test_a_job_that_a_failed_parent_holds_is_explained_and_released(
    forge: CommandLine, enqueue: Enqueue
) -> None:
    parent = enqueue("a")
    child = enqueue_after(forge, parent)
    forge("jobs", "cancel", parent)
    hand_over(forge)

    told = forge.json("explain", child)
    assert told["reason"] == "blocked_by_failed_parent"
    assert f"held by {parent}" in told["text"]
    assert told["help"] == f"forge-jobs jobs requeue {parent}"

    assert forge("jobs", "release-held", child).stdout == "1 released\n"
    assert forge.json("jobs", "show", child)["status"] == "pending"
    assert "waiting" in forge("jobs", "release-held", child, code=1).stderr


def enqueue_after(forge: CommandLine, parent: str) -> str:
    """Enqueue a job that is held when its parent fails."""

    async def run() -> str:
        async with await open_storage(forge.url) as storage, JobClient(storage) as client:
            after = (After(JobId(parent), "hold"),)
            return (await client.enqueue(EnqueueRequest(KIND, after=after))).job_id

    return anyio.run(run)


def hand_over(forge: CommandLine) -> None:
    """Do as a pod does for the children of what has ended."""

    async def run() -> None:
        async with await open_storage(forge.url) as storage:
            await hand_over_once(storage.jobs)

    anyio.run(run)


@pytest.mark.parametrize("json", [True, False])
def test_explain_says_why_a_job_does_not_run(
    forge: CommandLine, enqueue: Enqueue, json: bool
) -> None:
    job_id = enqueue("a")

    if json:
        explanation = forge.json("explain", job_id)
        assert explanation["job_id"] == job_id
        assert explanation["reason"] == "no_pod"
    else:
        assert "no_pod" in forge("explain", job_id).stdout


def test_explain_says_who_holds_the_slots_and_what_helps(
    forge: CommandLine, enqueue: Enqueue
) -> None:
    first, second = enqueue(KIND), enqueue(KIND)
    anyio.run(run_one_in_the_only_slot, forge.url)

    told = forge("explain", second).stdout

    assert f"'{KIND}' in queue '{QUEUE}': no slot is free: 1 of 1 slot in use" in told
    assert re.search(rf"slot held by: +job {first} \('{KIND}'\) on pod \w+ since", told)
    assert f"forge-jobs queues set {QUEUE} --max-workers 2\n" in told
    help = forge.json("explain", second)["help"]
    forge(*help.split()[1:])
    assert forge.json("queues", "list")["queues"][0]["settings"]["max_workers"] == 2


async def run_one_in_the_only_slot(url: str) -> None:
    async with await open_storage(url) as storage:
        lease = await register(storage)
        [allocation] = await storage.procs.allocations()
        slots = {lease.host_id: Slots(1, 1)}
        change = AllocationChange(queue=QUEUE, version=allocation.version, slots=slots)
        assert await storage.procs.allocate([change]) == [True]
        claimed = await claim_one(storage, lease)
        assert await storage.jobs.record_start([claimed.claim]) == [True]


def test_people_read_that_a_failed_job_is_retrying(forge: CommandLine, enqueue: Enqueue) -> None:
    job_id = enqueue(KIND)
    anyio.run(fail_once, forge.url)

    for word in ("retrying", "failed"):
        listed = forge("jobs", "list", "--status", word).stdout.splitlines()
        assert [line.split()[:4] for line in listed[1:]] == [[job_id, QUEUE, KIND, "retrying"]]
    assert "status:        retrying" in forge("jobs", "show", job_id).stdout
    assert " retrying " in forge("queues", "list").stdout.splitlines()[0].lower()
    assert forge.json("jobs", "show", job_id)["status"] == "failed"


async def fail_once(url: str) -> None:
    async with await open_storage(url) as storage:
        job = await claim_one(storage, await register(storage))
        assert await finish(storage, job, failed(timedelta(hours=1)))


def test_show_hides_what_people_must_not_read(forge: CommandLine) -> None:
    encryption = Encryption([Encryption.new_key()])
    handlers = HandlerRegistry()

    @handlers.job("log_in")
    async def log_in(user: str, password: Annotated[str, Secret]) -> None: ...

    async def enqueue() -> tuple[str, str]:
        async with await open_storage(forge.url) as storage, JobClient(storage) as client:
            request = log_in.request("ada", "correct horse")
            hidden = await client.enqueue(request, metadata={"a": "b"})
            by_kind = EnqueueRequest("log_in", {"user": "ada"})
            sealed = await JobClient(storage, encryption=encryption).enqueue(by_kind)
            return hidden.job_id, sealed.job_id

    hidden, sealed = anyio.run(enqueue)
    job = forge.json("jobs", "show", hidden)
    assert job["payload"] == {"user": "ada", "password": "***"}
    assert job["metadata"] == {"a": "b"}
    assert "correct horse" not in forge("jobs", "show", hidden).stdout
    assert forge.json("jobs", "show", sealed)["payload"] == (
        f"(encrypted with key {encryption.key_name})"
    )
