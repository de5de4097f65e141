"""Scripts of Redis name the fields of requests, and the places come from one list."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs.storage.redis.base import scripts
from forge_jobs.storage.redis.base.requests import EnqueueRequest, with_places
from forge_jobs.storage.redis.base.scripts import fields_of, item_of, request_of

REDIS = Path(scripts.__file__).parents[1]
UNPACKS = re.compile(r"= unpack\(request\)")
BY_PLACE = re.compile(r"\b(?:request|asked|item|wish|pair|link|group)\[[2-9]\]")

# A helper of ``cleanup.py`` or ``filters.py`` runs these, and names the fields for all of them.
BY_A_HELPER = {"drop_events", "drop_minutes", "fold_gauges", "fold_hours"} | {
    "exchange_in_turn",
    "find",
    "find_due",
    "find_ended",
}


def test_a_name_becomes_the_place_of_the_field() -> None:
    lua = "local id, jobs = fields[JOB.id], request[ENQUEUE.jobs]"
    place = EnqueueRequest.__struct_fields__.index("jobs") + 1
    assert with_places(lua) == f"local id, jobs = fields[1], request[{place}]"


@pytest.mark.parametrize("lua", ["MY_JOB.x", "JOBS.id", "job.JOB", "END"])
def test_other_names_stay(lua: str) -> None:
    assert with_places(lua) == lua


def test_an_unknown_field_is_refused_when_the_script_is_put_together() -> None:
    with pytest.raises(KeyError, match=r"JOB\.idd"):
        with_places("fields[JOB.idd]")


def test_a_request_is_put_together_in_the_order_of_its_script() -> None:
    assert fields_of("resign", "request") == ("host", "term")
    assert request_of("resign", term=3, host="a") == ("a", 3)
    assert item_of("bar", "job", mark=7, id="x") == ("x", 7)


def test_a_field_that_one_of_the_loops_leaves_out_is_known_from_the_other() -> None:
    assert fields_of("locate", "request") == ("queue", "wanted", "known", "before")


@pytest.mark.parametrize(
    "fields", [{"host": "a"}, {"host": "a", "end": 3}, {"host": "a", "term": 3, "until": 4}]
)
def test_a_request_of_other_fields_than_its_script_has_is_refused(
    fields: dict[str, object],
) -> None:
    with pytest.raises(TypeError, match=r"resign\.lua unpacks request into \('host', 'term'\)"):
        request_of("resign", **fields)


def test_what_a_script_does_not_unpack_has_no_fields() -> None:
    assert fields_of("resign", "claim") == ()


def calls() -> Iterator[tuple[str, str, set[str | None]]]:
    """Yield the script, the variable and the names of each call that names its script."""
    for path in sorted(REDIS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [each.value for each in node.args if isinstance(each, ast.Constant)]
                given = {each.arg for each in node.keywords}
                if node.func.id == "request_of" and len(names) == 1:
                    yield str(names[0]), "request", given
                elif node.func.id == "item_of" and len(names) == 2:
                    yield str(names[0]), str(names[1]), given


def test_every_call_names_the_fields_of_its_script() -> None:
    wrong = [
        (script, variable, given)
        for script, variable, given in calls()
        # None stands for fields that come in a dictionary.
        if not (given - {None} <= (known := set(fields_of(script, variable))))
        or (None not in given and given != known)
    ]
    assert not wrong


def test_no_request_is_sent_by_the_places_of_its_fields() -> None:
    unpacking = {
        path.stem
        for path in (REDIS / "lua").rglob("*.lua")
        if "lib" not in path.parts and UNPACKS.search(path.read_text("utf-8"))
    }
    assert unpacking - BY_A_HELPER == {
        script for script, variable, _ in calls() if variable == "request"
    }


def test_no_script_reads_its_request_by_number() -> None:
    found = [
        f"{path.name}: {number}"
        for path in (REDIS / "lua").rglob("*.lua")
        for number in BY_PLACE.findall(path.read_text("utf-8"))
    ]
    assert not found
