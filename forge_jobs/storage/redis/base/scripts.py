"""The scripts of ``lua/``, each put together from its file and the parts of ``lua/lib`` it names.

A script's file says ``-- uses: jobs claims``. The parts ``start``, ``writes``, ``tallies``,
``wakes``, ``bounds`` and ``run`` go around every script. The file defines
``handle(base, request)`` for ``run.lua``. The names in ``local ... = unpack(request)`` are those of
the request's fields, by which :func:`request_of` puts a request together. Only the used functions
of all parts are sent, because every run of a script makes each function and table anew. The first
line of a file may be one of

``-- no-writes``
    The script only reads. The server refuses its writes, and no replica is waited for.
``-- allow-oom``
    The script runs although the server's memory is used up, for what must go on then. Every other
    script that writes is refused then, before the script has begun.
``-- alone``
    The script has no ``handle`` and gets no ``run``. Keys and arguments are its own.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import zip_longest

from forge_jobs.storage.redis.base.requests import with_places

_LUA = files("forge_jobs.storage.redis") / "lua"
_UNPACKED = re.compile(r"\blocal ([\w,\s]+?)=\s*unpack\((\w+)\)")
_LIMITS = ("lines", "permits", "openings")
_FLAGS = ("no-writes", "allow-oom")
_LOCALS = re.compile(r"^local (?:function )?([\w, ]+)", re.MULTILINE)
_NAME = re.compile(r"(?<!\w)(?<!(?<!\.)\.)[A-Za-z_]\w*")
_NO_CODE = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|--[^\n]*")


@dataclass(frozen=True)
class Script:
    """A script: one atomic step.

    :param sha: by which the server knows the text
    :param writes: False: the script only reads
    """

    name: str
    text: str
    sha: str
    writes: bool


@cache
def script(name: str) -> Script:
    """Return the script of that name, in whichever room of ``lua/``, ready to be sent."""
    own = with_places(_scripts()[name].read_text("utf-8"))
    parts = ["start", "writes", "tallies", "wakes", "bounds", *_LIMITS, *_uses(own)]
    first = own.partition("\n")[0].removeprefix("-- ")
    flags = f" flags={first}" if first in _FLAGS else ""
    # Without this line the server would look at memory and role in the middle of a script.
    end = own if first == "alone" else f"{own}\n{_part('run')}"
    text = "\n".join([f"#!lua{flags}", *_used("\n".join(map(_part, parts)), end), end])
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(name, text, sha, writes=first != "no-writes")


def request_of(name: str, /, **values: object) -> tuple[object, ...]:
    """Return a request of the script ``name``, in the order in which the script unpacks it.

    The names of the fields are those of the script's ``local ... = unpack(request)``.

    :raises TypeError: these are not the fields of the request
    """
    return item_of(name, "request", **values)


def item_of(name: str, variable: str, /, **values: object) -> tuple[object, ...]:
    """:func:`request_of`, for a part of a request: what the script unpacks ``variable`` into."""
    fields = fields_of(name, variable)
    if len(values) == len(fields):
        # No field is missing then, unless a name is another one.
        with suppress(KeyError):
            return tuple([values[field] for field in fields])
    raise TypeError(f"{name}.lua unpacks {variable} into {fields}, not {tuple(values)}")


@cache
def fields_of(name: str, variable: str) -> tuple[str, ...]:
    """Return the names that the script ``name`` gives the fields of what it unpacks.

    A script that unpacks the same twice names a field alike, or leaves it out as ``_``.
    """
    unpacked = [
        [field.strip() for field in names.split(",")]
        for names, of in _UNPACKED.findall(script(name).text)
        if of == variable
    ]
    fields: list[str] = []
    for column in zip_longest(*unpacked, fillvalue="_"):
        known = set(column) - {"_"}
        if len(known) != 1:
            raise TypeError(f"{name}.lua unpacks {variable} into other names elsewhere: {known}")
        fields += known
    return tuple(fields)


@cache
def _part(name: str) -> str:
    return with_places(_parts()[name].read_text("utf-8"))


@cache
def _scripts() -> Mapping[str, Traversable]:
    return _files(each for each in _LUA.iterdir() if each.name != "lib")


@cache
def _parts() -> Mapping[str, Traversable]:
    return _files([_LUA / "lib"])


def _files(folders: Iterable[Traversable]) -> dict[str, Traversable]:
    """The files below the folders, by their names without ``.lua``, of which each is used once."""
    found: dict[str, Traversable] = {}
    for folder in folders:
        for each in folder.iterdir():
            found |= _files([each]) if each.is_dir() else {each.name.removesuffix(".lua"): each}
    return found


def _used(parts: str, end: str) -> list[str]:
    """The paragraphs of ``parts`` that make a local which something below them names."""
    kept: list[str] = []
    names = _named(end)
    for block in reversed(parts.split("\n\n")):
        if not names.isdisjoint(_NAME.findall(" ".join(_LOCALS.findall(block)))):
            kept.append(block)
            names |= _named(block)
    return kept[::-1]


def _named(lua: str) -> set[str]:
    """The names in Lua code that may be locals: none of comments, of texts and after a dot."""
    return set(_NAME.findall(_NO_CODE.sub(" ", lua)))


def _uses(text: str) -> list[str]:
    for line in text.splitlines():
        if line.startswith("-- uses: "):
            return line.removeprefix("-- uses: ").split()
    return []
