"""``jobs VERB --preview``: what would change, and nothing does."""

from collections.abc import Callable

from tests.cli.conftest import CommandLine, enqueue, forge

__all__ = ["enqueue", "forge"]


def test_a_preview_counts_and_changes_nothing(
    forge: CommandLine, enqueue: Callable[..., str]
) -> None:
    ids = sorted(enqueue("a") for _ in range(2))
    found = forge.json("jobs", "cancel", "--kind", "a", "--all-matching", "--preview")
    assert found["count"] == 2
    assert sorted(job["id"] for job in found["samples"]) == ids
    shown = forge("jobs", "cancel", *ids, "--preview")
    assert "2 jobs match" in shown.stderr
    assert forge.json("jobs", "show", ids[0])["status"] == "pending"
    assert forge.json("actions", "list")["actions"] == []
