"""Luacheck over every script of Redis: ``python -m tests.meta.lua``, which is ``make lint-lua``.

A script is checked as the server gets it, put together from the file and the parts, so that a name
that no part defines is an error, and so is a local that nothing uses. Findings name the file that
the line comes from. Each paragraph of a part is checked by itself as well: paragraphs are left out
where nothing names them, so each of them must be whole.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from forge_jobs.storage.redis.base import scripts

LUA = Path(scripts.__file__).parent.parent / "lua"
_OPTIONS = [
    *("--no-config", "--std", "lua51", "--codes", "--no-color", "--formatter", "plain"),
    "--no-max-line-length",
]
_GLOBALS = ["redis", "KEYS", "ARGV", "cjson", "cmsgpack", "bit", "struct"]
_NO_LUACHECK = "lua: luacheck is not there: install Debian's lua-check, as .ci/run does"


def names() -> list[str]:
    """The scripts, in the order of their names."""
    return sorted(
        path.stem for path in LUA.rglob("*.lua") if path.relative_to(LUA).parts[0] != "lib"
    )


def origins() -> dict[str, str]:
    """Per line of Lua the file of the line. Of lines in several files the last one counts."""
    return {
        line: str(path.relative_to(LUA))
        for path in sorted(LUA.rglob("*.lua"))
        for line in path.read_text("utf-8").splitlines()
    }


def findings(folder: Path, executable: str) -> Iterator[str]:
    """Yield the findings of luacheck in all scripts, each of them once."""
    for name in names():
        # The first line is for the server.
        text = scripts.script(name).text.partition("\n")[2]
        (folder / f"{name}.lua").write_text(f"\n{text}", "utf-8")
    files, seen = origins(), set[str]()
    for finding in _luacheck(folder, executable, "--globals", *_GLOBALS):
        path, number, _, message = finding.split(":", 3)
        line = (folder / path).read_text("utf-8").splitlines()[int(number) - 1]
        said = f"{files.get(line, path)}: {message.strip()}: {line.strip()}"
        if said not in seen:
            seen.add(said)
            yield f"{said} (in {path})"


def broken_paragraphs(folder: Path, executable: str) -> Iterator[str]:
    """Yield the paragraphs of parts that are no Lua when they stand alone."""
    for path in (LUA / "lib").rglob("*.lua"):
        for number, paragraph in enumerate(path.read_text("utf-8").split("\n\n"), 1):
            (folder / f"{path.stem}.{number}.lua").write_text(paragraph, "utf-8")
    for finding in _luacheck(folder, executable, "--only", "0"):
        name, _, _, message = finding.split(":", 3)
        part, number_in_part, _ = name.split(".", 2)
        yield f"lib: paragraph {number_in_part} of {part}.lua, cut off by a blank line:{message}"


def _luacheck(folder: Path, executable: str, *options: str) -> list[str]:
    checked = sorted(each.name for each in folder.iterdir())
    command = [executable, *_OPTIONS, *options, "--", *checked]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode > 2 or ran.stderr:
        raise SystemExit(f"lua: luacheck could not run: {ran.stderr or ran.stdout}")
    return ran.stdout.splitlines()


def main() -> int:
    """Print what luacheck finds. 1 with findings."""
    executable = shutil.which("luacheck")
    if executable is None:
        print(_NO_LUACHECK, file=sys.stderr)
        return 1
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        found = [*findings(Path(one), executable), *broken_paragraphs(Path(other), executable)]
    for each in found:
        print(each)
    print(f"luacheck: {len(names())} scripts, {len(found)} findings")
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
