"""Refuses prose that is hard to follow: ``python -m tests.meta.prose``.

Docstrings, comments and Markdown without its code are read. In Lua a run of comments is a
docstring: quoted words are left out, and so are flags and lines for luacheck.

The bounds only sink: a change that improves a folder lowers the folder's line, and ``--table``
prints the lines of today. The aims are no banned word, no docstring that opens with a pronoun, no
semicolon in a docstring or a page, and at most 10 "it" and "its" in 1,000 words.
"""

import ast
import io
import math
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

# Words that leave out a noun, and private words.
BANNED = re.compile(
    "whoever|whomever|nobody|somebody|anybody|told|befalls?"  # whoever: which pod, which caller?
    "|bells?|ears?|rung|news"  # a wake-up
)
# Class names that say nothing to a reader from outside.
BANNED_CLASSES = frozenset({"Bell", "Desk", "Ear", "Fronts", "News", "Often", "Strangers"})

OPENERS = re.compile(
    "its?|ones?|each|every|those|that|these|who|whoever|what|whatever|which|whether|whose"
)


_LUA_DIRECTIVE = re.compile(
    r"^-- (?:uses: .*|no-writes|allow-oom|alone|luacheck: .*)\n", re.MULTILINE
)
_LUA_INLINE = re.compile(r"^(?=[ \t]*[^\s-])[^'\"\n]* -- (?!luacheck)(.*)$", re.MULTILINE)
_LUA_COMMENTS = re.compile(r"(?:^[ \t]*--.*\n)+", re.MULTILINE)


class Bounds(NamedTuple):
    banned: int
    openers: int
    semicolons: int
    it_per_thousand: int


# A folder's line counts what no longer path of this table counts.
BOUNDS = {
    "CHANGELOG.md": Bounds(0, 0, 0, 10),
    "README.md": Bounds(0, 0, 0, 10),
    "SECURITY.md": Bounds(0, 0, 0, 0),
    "adr": Bounds(0, 0, 0, 10),
    "bench": Bounds(0, 0, 0, 10),
    "docs": Bounds(0, 0, 0, 10),
    "examples": Bounds(0, 0, 0, 10),
    "forge_jobs": Bounds(0, 0, 0, 5),
    "forge_jobs/cli": Bounds(0, 0, 0, 10),
    "forge_jobs/clients": Bounds(0, 0, 0, 10),
    "forge_jobs/demo": Bounds(0, 0, 0, 10),
    "forge_jobs/handlers": Bounds(0, 0, 0, 10),
    "forge_jobs/model": Bounds(0, 0, 0, 10),
    "forge_jobs/policy": Bounds(0, 0, 0, 10),
    "forge_jobs/privacy": Bounds(0, 0, 0, 10),
    "forge_jobs/runtime": Bounds(0, 0, 0, 5),
    "forge_jobs/runtime/heartbeat": Bounds(0, 0, 0, 10),
    "forge_jobs/runtime/passes": Bounds(0, 0, 0, 8),
    "forge_jobs/runtime/pod": Bounds(0, 0, 0, 9),
    "forge_jobs/runtime/queue": Bounds(0, 0, 0, 5),
    "forge_jobs/runtime/shared": Bounds(0, 0, 0, 9),
    "forge_jobs/storage": Bounds(0, 0, 0, 9),
    "forge_jobs/storage/protocols": Bounds(0, 0, 0, 8),
    "forge_jobs/storage/redis": Bounds(1, 0, 0, 10),
    "forge_jobs/storage/redis/base": Bounds(0, 0, 0, 8),
    "forge_jobs/storage/redis/config": Bounds(0, 0, 0, 1),
    "forge_jobs/storage/redis/cron": Bounds(0, 0, 0, 6),
    "forge_jobs/storage/redis/driver": Bounds(0, 0, 0, 9),
    "forge_jobs/storage/redis/fleet": Bounds(0, 0, 0, 9),
    "forge_jobs/storage/redis/jobs": Bounds(0, 0, 0, 10),
    "forge_jobs/storage/redis/locators": Bounds(0, 0, 0, 4),
    "forge_jobs/storage/redis/lua": Bounds(0, 0, 0, 2),
    "forge_jobs/storage/sql": Bounds(0, 0, 0, 0),
    "forge_jobs/storage/sql/base": Bounds(2, 0, 0, 5),
    "forge_jobs/storage/sql/config": Bounds(0, 0, 0, 4),
    "forge_jobs/storage/sql/cron": Bounds(0, 0, 0, 7),
    "forge_jobs/storage/sql/fleet": Bounds(0, 0, 0, 3),
    "forge_jobs/storage/sql/hot": Bounds(0, 0, 0, 0),
    "forge_jobs/storage/sql/jobs": Bounds(0, 0, 0, 7),
    "forge_jobs/storage/sql/migrations": Bounds(0, 0, 0, 3),
    "forge_jobs/storage/sql/postgres": Bounds(0, 0, 0, 9),
    "forge_jobs/storage/sql/sqlite": Bounds(0, 0, 0, 9),
    "forge_jobs/testing": Bounds(0, 0, 0, 10),
    "tests": Bounds(0, 0, 0, 9),
    "tests/backends": Bounds(1, 0, 0, 10),
    "tests/bench": Bounds(0, 0, 0, 10),
    "tests/chaos": Bounds(0, 0, 0, 10),
    "tests/cli": Bounds(0, 0, 0, 8),
    "tests/cluster": Bounds(0, 0, 0, 7),
    "tests/conformance": Bounds(1, 0, 0, 6),
    "tests/debian": Bounds(0, 0, 0, 10),
    "tests/docs": Bounds(0, 0, 0, 9),
    "tests/examples": Bounds(0, 0, 0, 9),
    "tests/meta": Bounds(0, 0, 0, 10),
    "tests/migrations": Bounds(0, 0, 0, 10),
    "tests/packaging": Bounds(0, 0, 0, 0),
    "tests/runtime": Bounds(0, 0, 0, 8),
    "tests/support": Bounds(0, 0, 0, 7),
    "tests/unit": Bounds(0, 0, 0, 10),
}


class Prose(NamedTuple):
    """The counts of one file."""

    words: int
    it: int
    banned: int
    openers: int
    semicolons: int


def of_python(source: str) -> Prose:
    docstrings, classes = [], 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                docstrings.append(node.value.value)
        elif isinstance(node, ast.ClassDef):
            classes += node.name.strip("_") in BANNED_CLASSES
    comments = [
        token.string.lstrip("#! ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    counted = _counted("\n".join(docstrings + comments))
    return counted._replace(
        banned=counted.banned + classes,
        openers=sum(_opens_with_a_pronoun(docstring) for docstring in docstrings),
        semicolons=sum(docstring.count(";") for docstring in docstrings),
    )


def of_lua(source: str) -> Prose:
    runs = [
        re.sub(r"^[ \t]*--", "", run, flags=re.MULTILINE)
        for run in _LUA_COMMENTS.findall(_LUA_DIRECTIVE.sub("", source))
    ]
    inline = _LUA_INLINE.findall(source)
    comments = [re.sub(r"`[^`]*`|'[^'\s]*'", "X", run) for run in runs + inline]
    counted = _counted("\n".join(comments))
    return counted._replace(
        openers=sum(_opens_with_a_pronoun(comment) for comment in comments),
        semicolons=sum(comment.count(";") for comment in comments),
    )


def of_markdown(source: str) -> Prose:
    text = re.sub(r"```.*?```", "", source, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "X", text)
    text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return _counted(text)._replace(semicolons=text.count(";"))


def _counted(text: str) -> Prose:
    words = re.findall(r"[a-z][a-z'-]*", text.lower())
    it = sum(word in ("it", "its") for word in words)
    return Prose(len(words), it, sum(bool(BANNED.fullmatch(word)) for word in words), 0, 0)


def _opens_with_a_pronoun(docstring: str) -> bool:
    first = re.match(r"\W*([A-Za-z']+)", docstring)
    return bool(first and OPENERS.fullmatch(first.group(1).lower()))


_READ = {".py": of_python, ".md": of_markdown, ".lua": of_lua}


def measured() -> dict[str, Bounds]:
    """The counts of today, one line per folder of BOUNDS."""
    sums = {folder: [0] * len(Prose._fields) for folder in BOUNDS}
    for folder, prose in _files():
        sums[folder] = [a + b for a, b in zip(sums[folder], prose, strict=True)]
    return {
        folder: Bounds(banned, openers, semicolons, math.ceil(1000 * it / max(1, words)))
        for folder, (words, it, banned, openers, semicolons) in sums.items()
    }


def _files() -> Iterator[tuple[str, Prose]]:
    for top in sorted({folder.split("/")[0] for folder in BOUNDS}):
        for path in [ROOT / top] if (ROOT / top).is_file() else sorted((ROOT / top).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            read = _READ.get(path.suffix)
            if read and path != Path(__file__):
                folder = max((f for f in BOUNDS if f"{name}/".startswith(f"{f}/")), key=len)
                yield folder, read(path.read_text(encoding="utf8"))


def above() -> list[str]:
    """Return a line per count above a bound."""
    return [
        f"{folder}: {value} {what.replace('_', ' ')}, at most {bound}"
        for folder, counts in measured().items()
        for what, value, bound in zip(Bounds._fields, counts, BOUNDS[folder], strict=True)
        if value > bound
    ]


def table() -> str:
    return "\n".join(
        f'    "{folder}": Bounds({", ".join(map(str, counts))}),'
        for folder, counts in measured().items()
    )


if __name__ == "__main__":
    if "--table" in sys.argv:
        print(table())
        sys.exit()
    problems = above()
    print("\n".join(problems) or "the prose of every folder is within its bounds")
    sys.exit(bool(problems))
