"""``queues delete`` and ``limits``."""

from tests.cli.conftest import CommandLine


def test_a_queue_is_deleted_once_it_has_no_jobs(forge: CommandLine) -> None:
    for _ in range(2):
        forge("enqueue", "a", "--queue", "x")

    told = forge.refuse("queues", "delete", "x", code=1)
    assert "the queue 'x' has 2 jobs" in told
    assert "forge-jobs jobs delete --queue x" in told

    assert forge("queues", "delete", "x", "--with-jobs").stderr == "x: deleted, with 2 jobs\n"
    assert forge.json("queues", "list") == {"queues": []}
    assert forge.json("jobs", "list")["jobs"] == []
    assert "there is no queue 'x'" in forge.refuse("queues", "delete", "x", code=1)


def test_a_schedule_that_makes_a_deleted_queue_again_is_named(forge: CommandLine) -> None:
    forge("queues", "set", "x", "--max-workers", "1")
    forge("cron", "add", "nightly", "shop.report", "@daily", "--queue", "x")
    forge("cron", "add", "other", "shop.report", "@daily", "--queue", "y")

    told = forge("queues", "delete", "x").stderr

    assert "The schedule 'nightly' enqueues there: when it fires, the queue is made again." in told
    assert "other" not in told


def test_rate_limits_are_set_listed_and_deleted(forge: CommandLine) -> None:
    assert forge("limits", "list").stderr == "No rate limit is known.\n"
    forge("limits", "set", "smtp", "100/1m")

    [limit] = forge.json("limits", "list")["rate_limits"]
    assert (limit["scope"], limit["available"], limit["overridden"]) == ("smtp", 100, True)
    assert (limit["taken_a_minute"], limit["refused_a_minute"]) == (0, 0)
    shown = forge("limits", "list").stdout
    assert "TAKEN A MINUTE  REFUSED A MINUTE" in shown
    assert "operator" in shown

    assert "fail until it is declared again" in forge("limits", "delete", "smtp").stderr
    assert forge.json("limits", "list") == {"rate_limits": []}
    assert "there is no rate limit 'smtp'" in forge.refuse("limits", "delete", "smtp", code=1)


def test_a_size_that_is_none_is_refused(forge: CommandLine) -> None:
    assert "'100' is not a limit; give a count per duration" in forge.refuse(
        "limits", "set", "smtp", "100"
    )


def test_before_jobs_are_deleted_the_command_says_how_to_keep_a_copy(forge: CommandLine) -> None:
    forge("enqueue", "a", "--queue", "x")
    told = forge.run("jobs", "delete", "--queue", "x", "--all-matching", stdin="n\n")
    assert "There is no undo. A copy first: forge-jobs export --where queue:x -o jobs.jsonl" in (
        told.output
    )
    assert len(forge.json("jobs", "list")["jobs"]) == 1
    assert "export" not in forge("jobs", "cancel", "--queue", "x", "--all-matching", "--yes").output
