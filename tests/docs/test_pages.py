"""The manual contains only code and commands that were run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import anyio
import click
import pytest

from forge_jobs.config import SETTINGS_VARIABLE, Deployment, RuntimeSettings, variable_of
from forge_jobs.privacy.encryption import KEYS_VARIABLE
from tests.support import backends
from tests.support.pages import (
    ROOT,
    Block,
    PageRun,
    blocks_of,
    check_command,
    command_of,
    commands_of,
)

PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
WITH_PYTHON = [
    page
    for page in PAGES
    if any(block.language == "python" for block in blocks_of(page)) and page.name != "README.md"
]
FRAMEWORKS = {"blocking-programs.md", "web-frameworks.md"}
"""Pages on libraries of the extra ``docs``, which ``make test-all`` installs."""

OF_SUITES = {"backends.md", "testing.md"}
"""Pages that run pytest several times, as tests of the kit and of the conformance suite do."""

_OF_TESTS = ("FORGE_TEST_", "FORGE_MODEL_")

LANGUAGES = {
    "python", "sh", "toml", "sql", "text", "ini", "yaml", "dockerfile", "js", "{toctree}",
    "{eval-rst}", "",
}  # fmt: skip


def _name(value: object) -> str:
    return value.name if isinstance(value, Path) else str(value)


def _everyday(page: Path) -> object:
    is_long = page.name in FRAMEWORKS | OF_SUITES
    return pytest.param(page, marks=pytest.mark.long) if is_long else page


@pytest.mark.parametrize("page", [_everyday(page) for page in WITH_PYTHON], ids=_name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    if page.name in FRAMEWORKS:
        # A process configures Django once, and other tests do so as well.
        run = (
            "import sys; from tests.support.pages import *; PageRun(*map(Path, sys.argv[1:])).run()"
        )
        words = [sys.executable, "-c", run, str(page), str(tmp_path)]
        done = subprocess.run(
            words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stderr
    else:
        PageRun(page, tmp_path).run()


def test_a_page_closes_the_stores_that_are_opened() -> None:
    for page in WITH_PYTHON:
        text = page.read_text(encoding="utf-8")
        opened = re.findall(r"^(\w+) = await open_storage\(", text, re.MULTILINE)
        closed = re.findall(r"^await (\w+)\.aclose\(\)$", text, re.MULTILINE)
        assert sorted(name for name in closed if name in opened) == sorted(opened), page.name


def _any_store(page: Path) -> bool:
    text = page.read_text(encoding="utf-8")
    return page.name not in FRAMEWORKS and "sqlite:///shop.db" in text and "sqlite+" not in text


@pytest.mark.long
@pytest.mark.parametrize("backend", ["postgres", "redis"])
@pytest.mark.parametrize("page", [page for page in WITH_PYTHON if _any_store(page)], ids=_name)
def test_the_code_of_a_page_runs_on_every_store(page: Path, backend: str, tmp_path: Path) -> None:
    async def make() -> str:
        return await backends.url_of(backend, tmp_path)

    async def forget() -> None:
        await backends.forget(backend, tmp_path)

    PageRun(page, tmp_path, anyio.run(make)).run()
    anyio.run(forget)


def test_pages_name_commands_and_options_that_exist() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            assert block.language in LANGUAGES, f"{page.name}, line {block.line}"
            for command in _commands(block):
                try:
                    check_command(shlex.split(command)[1:])
                except click.UsageError as error:
                    error.add_note(f"{page.name}, line {block.line}")
                    raise


def _commands(block: Block) -> list[str]:
    """The ``forge-jobs`` command lines of a block, without what a shell makes of them."""
    if block.language != "sh":
        return []
    lines = [re.sub(r"^(\w+=\S+ )+", "", line) for line in commands_of(block.text)]
    return [re.split(r" [|>&]|\s#", line)[0] for line in lines if line.startswith("forge-jobs ")]


def test_commands_within_sentences_exist() -> None:
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for span in re.findall(r"`(forge-jobs [^`]+)`", text):
            words = shlex.split(" ".join(span.split()))[1:]
            command, rest = command_of(words)
            known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
            named = {word.partition("=")[0] for word in rest if word.startswith("--")}
            assert named <= known, f"{page.name}: {span}"


def test_variables_that_pages_name_are_read() -> None:
    known = {
        variable_of(field)
        for settings in (RuntimeSettings, Deployment)
        for field in settings.__struct_fields__
    } | {SETTINGS_VARIABLE, KEYS_VARIABLE, "FORGE_QUEUES"}
    known.add("FORGE_COMPLETION_PATIENCE")
    for name in ("web", "top", "export", "worker", "jobs list"):
        known |= {str(each.envvar) for each in command_of(name.split())[0].params}
    for page in PAGES:
        found = set(re.findall(r"\bFORGE_[A-Z_]*[A-Z]\b", page.read_text(encoding="utf-8")))
        unknown = {name for name in found - known if not name.startswith(_OF_TESTS)}
        assert unknown == set(), page.name


def test_an_excerpt_of_an_example_is_in_the_example() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            source = block.named("title")
            if source is not None and source.startswith("examples/"):
                example = (ROOT / source).read_text(encoding="utf-8")
                assert block.text in example, f"{page.name}, line {block.line}"


def test_every_page_is_in_the_tree_of_the_site() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"^```{toctree}\n(.*?)^```$", index, re.MULTILINE | re.DOTALL)
    named = {line for tree in trees for line in tree.splitlines() if line and line[0] != ":"}
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert named == pages | {"../CHANGELOG", "../README", "../SECURITY"}
