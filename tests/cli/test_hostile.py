"""Hostile texts in every field of a store: a terminal gets no control characters, exports JSON."""

import unicodedata
from pathlib import Path

import anyio
import msgspec
import pytest

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.model.ids import JobId
from forge_jobs.storage.opening import open_storage
from tests.cli.conftest import CommandLine
from tests.support.backends import url_of
from tests.support.terminals import in_pipe, in_terminal
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
    for name in [each["name"] for each in queues[::5]] + ["k", "default"]:
        commands += [["queues", verb, "--", name] for verb in ("history", "settings")]
    for action in forge.json("actions", "list")["actions"][::10]:
        commands += [["actions", "show", action["id"]], ["actions", "jobs", action["id"]]]
    for job_id in jobs[::5]:
        commands += [["jobs", "show", job_id], ["jobs", "logs", job_id], ["explain", job_id]]
        commands.append(["jobs", "timeline", job_id])
    for words in commands:
        codes = (0, 1) if words[0] in ("problems", "doctor", "queues") else (0,)
        shown = forge.run(*words)
        assert shown.exit_code in codes, (words, shown.output[-500:])
        assert controls(shown.output) == set(), words
    lines = forge("export").stdout.removesuffix("\n").split("\n")
    assert {msgspec.json.decode(line)["id"] for line in lines} == set(jobs)


@pytest.mark.anyio
async def test_documents_on_a_terminal_have_escapes_where_a_character_could_steer(
    tmp_path: Path,
) -> None:
    odd = "a\x7fb\x9b2Jc\u202ed"
    url = await url_of("sqlite", tmp_path)
    async with await open_storage(url) as storage, JobClient(storage) as client:
        await client.enqueue(EnqueueRequest("k", {"text": odd}, queue="q\u202e"))
    for words in ("jobs list", "jobs list --json", "export", "jobs hints queue:"):
        with in_terminal(*words.split(), FORGE_STORAGE_URL=url) as shown:
            assert await shown.ends() == 0
            said = shown.text
            assert controls(said) <= {"0xd"}, words
        with in_pipe(*words.split(), FORGE_STORAGE_URL=url) as piped:
            assert await piped.ends() == 0
            if words != "jobs list":
                assert "q\u202e" in piped.text
        if words == "export":
            assert msgspec.json.decode(said.partition("\r\n")[0])["payload"] == {"text": odd}
