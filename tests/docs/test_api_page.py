"""The API reference has every public name, and every public name has a docstring."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module

import forge_jobs
from tests.support.pages import ROOT

SHOWN = re.findall(
    r"^\.\. auto(?:class|data|exception|function):: ([\w.]+)(?:\(\))?$",
    (ROOT / "docs" / "api.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def public_members(owner: type) -> Iterator[tuple[str, object]]:
    """Methods and properties that a class itself has, by name."""
    for name, member in vars(owner).items():
        found = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(found):
            yield name, found


def test_the_page_has_every_public_name() -> None:
    assert sorted(name for name in SHOWN if "." not in name) == sorted(forge_jobs.__all__)


def test_what_the_page_shows_beside_them_is_there() -> None:
    for path in (name for name in SHOWN if "." in name):
        module, _, name = path.rpartition(".")
        assert getattr(import_module(module), name).__doc__, path


def test_a_public_name_has_a_docstring_of_its_own() -> None:
    for name in forge_jobs.__all__:
        found = getattr(forge_jobs, name)
        own = vars(found).get("__doc__") if isinstance(found, type) else found.__doc__
        assert own is not None, name
        members = public_members(found) if isinstance(found, type) else ()
        assert [member for member, made in members if not made.__doc__] == [], name
