"""``jobs edit``: another content for a job that waits."""

from collections.abc import Callable

from tests.cli.conftest import CommandLine

Enqueue = Callable[..., str]


def test_an_edit_says_what_was_and_what_is_and_is_undone(
    forge: CommandLine, enqueue: Enqueue
) -> None:
    job = enqueue("a", "--payload", '{"n":1}', "--tag", "x", "--timeout", "9")

    done = forge(
        "jobs", "edit", job, "--payload", '{"n":2}', "--priority", "-3", "--timeout", "none",
        "--max-attempts", "unlimited", "--tag", "y", "--tag", "z", "--metadata", '{"who":"ada"}',
        "--expires-at", "2099-01-01T00:00:00Z", "--due-at", "2098-01-01T00:00:00Z",
    )  # fmt: skip

    assert done.stdout.startswith('before: {"payload":{"n":1},"priority":0,')
    shown = forge.json("jobs", "show", job)
    assert (shown["payload"], shown["priority"], shown["timeout"]) == ({"n": 2}, -3, None)
    assert (shown["max_attempts"], shown["tags"]) == (None, ["y", "z"])
    assert (shown["metadata"], shown["due_at"][:4], shown["expires_at"][:4]) == (
        {"who": "ada"},
        "2098",
        "2099",
    )

    undo = done.stderr.split("Undo: forge-jobs ")[1].split()
    forge(*undo)

    assert forge.json("jobs", "show", job)["payload"] == {"n": 1}


def test_an_edit_of_another_version_is_refused(forge: CommandLine, enqueue: Enqueue) -> None:
    job = enqueue("a")
    version = forge.json("jobs", "show", job)["version"]
    record = forge.json("jobs", "edit", job, "--priority", "2", "--version", version)

    assert record["verb"] == "edit_job"
    refused = forge("jobs", "edit", job, "--priority", "3", "--version", version, code=1)
    assert "changed since you looked" in refused.stderr


def test_the_timeline_shows_states_and_what_operators_did(
    forge: CommandLine, enqueue: Enqueue
) -> None:
    job = enqueue("a")
    forge("jobs", "edit", job, "--priority", "2", "--reason", "urgent")
    forge("jobs", "cancel", job)

    shown = forge("jobs", "timeline", job).stdout
    life = forge.json("jobs", "timeline", job)

    assert "waiting" in shown
    assert "edit job: urgent" in shown
    assert [each["stage"] for each in life["spans"]] == ["waiting", "cancelled"]
    begun = life["spans"][0]["at"]
    assert forge("jobs", "timeline", job, "--at", begun).stdout == "waiting\n"
    early = forge("jobs", "timeline", job, "--at", "2020-01-01T00:00:00Z").stdout
    assert early == "not enqueued yet\n"
