"""Complaints of a type checker about the code of a user of the typed package."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".mypy_cache" / "of_a_user"
USER = """\
from forge_jobs import EnqueueRequest, HandlerRegistry, JobContext

handlers = HandlerRegistry()


@handlers.job("first")
async def first(ctx: JobContext, order: int, address: str = "") -> str:
    return address


@handlers.job("last")
async def last(order: int, address: str, ctx: JobContext) -> str:
    return address


@handlers.job("between")
def between(order: int, ctx: JobContext, address: str, to: str, by: str, at: int) -> str:
    return address


@handlers.job("without")
def without(order: int, *, address: str = "") -> str:
    return address


@handlers.job("nothing")
def nothing(ctx: JobContext) -> None:
    return None


"""


def complaints(calls: str, folder: Path) -> dict[str, str]:
    """Return mypy's complaint about each line of ``calls``, which follow the handlers of USER."""
    module = folder / "shop.py"
    module.write_text(USER + calls)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", ""),
            *("--no-error-summary", "--hide-error-context", "--cache-dir", CACHE, module),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    found = re.findall(r":(\d+): error: (.*)", done.stdout)
    lines = module.read_text().splitlines()
    return {lines[int(number) - 1]: text for number, text in found}


RIGHT = [
    'first.request(7, "a@b")',
    'first.request(7, address="a@b")',
    "first.request(order=7)",
    'last.request(7, "a@b")',
    'last.request(7, address="a@b")',
    'between.request(7, "a@b", "to", "by", 3)',
    'without.request(7, address="a@b")',
    "nothing.request()",
    "request: EnqueueRequest = first.request(7).options(priority=1)",
]
WRONG = {
    'first.request("7")': "[arg-type]",
    "first.request(order='7')": "[arg-type]",
    "first.request(7, 8)": "[arg-type]",
    "first.request()": "[call-arg]",
    'first.request(7, adress="a@b")': "[call-arg]",
    'without.request("7")': "[arg-type]",
    "without.request(7, 'a@b')": "[call-arg]",
    "without.request(order='8')": "[arg-type]",
    "nothing.request(7)": "[call-arg]",
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """mypy's complaints about each call, from one run because mypy starts slowly."""
    return complaints("\n".join([*RIGHT, *WRONG]) + "\n", tmp_path_factory.mktemp("user"))


def test_a_right_request_passes_wherever_the_context_stands(said: dict[str, str]) -> None:
    assert {call: said[call] for call in RIGHT if call in said} == {}


@pytest.mark.parametrize(("call", "code"), WRONG.items(), ids=list(WRONG))
def test_a_wrong_argument_is_an_error_before_the_program_runs(
    said: dict[str, str], call: str, code: str
) -> None:
    assert code in said.get(call, "no complaint")


def test_the_handlers_themselves_need_no_ignores(said: dict[str, str]) -> None:
    assert set(said) <= set(WRONG)
