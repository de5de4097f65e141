"""Hostile texts in every field of a store: a terminal gets no control characters, exports JSON."""

import unicodedata

import anyio
import msgspec
import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.storage.opening import open_storage
from tests.cli.conftest import CommandLine
from tests.web.hostile import furnish, hostile

COMMANDS = (
    "jobs list --limit 1000",
    "jobs stats",
    "queues list",
    "limits list",
    "cron list",
    "pods list",
    "kinds --stored",
    "errors list --limit 1000",
    "actions list --limit 1000",
    "problems",
    "doctor",
    "store",
)


def controls(text: str) -> set[str]:
    """Return the characters that could move a cursor or change the order of letters."""
    found = {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs")}
    return {hex(ord(each)) for each in found} - {"0xa"}


async def filled(url: str, count: int) -> list[JobId]:
    async with await open_storage(url) as storage:
        return await furnish(storage, hostile(count))


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.long)])
def test_hostile_texts_are_text_in_a_terminal_and_in_an_export(
    forge: CommandLine, count: int
) -> None:
    jobs = anyio.run(filled, forge.url, count)
    commands = [each.split() for each in COMMANDS]
    queues = forge.json("queues", "list")["queues"]
    commands += [["what-if", each["name"]] for each in queues[::10] if each["name"][0] != "-"]
    for action in forge.json("actions", "list")["actions"][::10]:
        commands += [["actions", "show", action["id"]], ["actions", "jobs", action["id"]]]
    for job_id in jobs[::5]:
        commands += [["jobs", "show", job_id], ["jobs", "logs", job_id], ["explain", job_id]]
        commands.append(["jobs", "timeline", job_id])
    for words in commands:
        codes = (0, 1) if words[0] in ("problems", "doctor") else (0,)
        shown = forge.run(*words)
        assert shown.exit_code in codes, (words, shown.output[-500:])
        assert controls(shown.output) == set(), words
    lines = forge("export").stdout.removesuffix("\n").split("\n")
    assert {msgspec.json.decode(line)["id"] for line in lines} == set(jobs)
