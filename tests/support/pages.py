"""The fenced blocks of a Markdown page, and a way to run them."""

import ast
import asyncio
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from click.testing import CliRunner
from msgspec import Struct

from forge_jobs.cli.main import cli

ROOT = Path(__file__).parents[2]
_WITH_SIGNALS = {"bench", "export", "watch", "worker"}
"""Commands that ask for the signals of their process, which only its main thread can."""


class Block(Struct, frozen=True):
    """A fenced block: the language, the rest of the fence, the text, the first line."""

    language: str
    info: str
    text: str
    line: int = 0

    def named(self, attribute: str) -> str | None:
        """The value of ``attribute="value"`` in the first line."""
        found = re.search(rf'\b{attribute}="(.+?)"', self.info)
        return found.group(1) if found else None


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], found[3], text.count("\n", 0, found.start()) + 1)
        for found in re.finditer(r"^```([\w-]*) ?(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)
    ]


class PageRun:
    """Runs the blocks of one page in order, in one namespace, on one event loop.

    Python blocks may use ``await`` outside of functions, as in a notebook. A block with a title is
    written to that file, for later blocks. The output of a block must be what the
    comments ``# prints: ...`` say.

    :param folder: the current folder of the blocks
    :param url: the store used in place of the page's own
    """

    def __init__(self, page: Path, folder: Path, url: str | None = None) -> None:
        self._page = page
        self._folder = folder
        self._url = url
        # A module like any other: libraries look for the module of a function that they are given.
        self._module = ModuleType(f"page_{page.stem.replace('-', '_')}")
        self._exports: dict[str, str] = {}

    def run(self) -> None:
        """Run them all."""
        with _inside(self._folder, self._module), asyncio.Runner() as runner:
            for block in blocks_of(self._page):
                if (title := block.named("title")) is not None:
                    self._written(block, Path(title))
                elif block.language == "python":
                    self._python(block, runner)
                elif block.language == "sh" and "run" in block.info.split():
                    # What the page has left running goes on meanwhile: paused within a
                    # transaction, a worker would hold rows that a command waits for.
                    runner.run(asyncio.to_thread(self._shell, block))

    def _written(self, block: Block, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._on_the_store(block.text), encoding="utf-8")
        importlib.invalidate_caches()

    def _python(self, block: Block, runner: asyncio.Runner) -> None:
        text = self._on_the_store(block.text)
        tree = compile(
            # Lines as in the page, for tracebacks.
            "\n" * block.line + text,
            str(self._page),
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        )
        printed = StringIO()
        with redirect_stdout(printed):
            if tree.co_flags & inspect.CO_COROUTINE:
                runner.run(self._awaited(tree))
            else:
                exec(tree, vars(self._module))
        assert printed.getvalue().splitlines() == _promised(text), f"line {block.line}"

    async def _awaited(self, tree: Any) -> None:
        await eval(tree, vars(self._module))

    def _shell(self, block: Block) -> None:
        for command in commands_of(block.text):
            words = shlex.split(self._on_the_store(command))
            if words[0] == "export":
                self._exports |= dict(word.split("=", 1) for word in words[1:])
            elif words[0] == "pytest":
                without = ("cacheprovider", "schemathesis", "valkey", "xdist")
                plugins = [word for name in without for word in ("-p", f"no:{name}")]
                self._process("pytest", *plugins, *words[1:])
            elif words[:2] == ["python", "-m"]:
                self._process(*words[2:])
            elif words[1] in _WITH_SIGNALS:
                self._process("forge_jobs", *words[1:])
            else:
                done = CliRunner().invoke(cli, words[1:], env=self._exports)
                assert done.exit_code == 0, f"{command}\n{done.output}"

    def _process(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            env=os.environ | self._exports,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout

    def _on_the_store(self, text: str) -> str:
        return text if self._url is None else text.replace("sqlite:///shop.db", self._url)


def _promised(text: str) -> list[str]:
    return re.findall(r"# prints: (.*)", text)


@contextmanager
def _inside(folder: Path, module: ModuleType) -> Iterator[None]:
    """In this folder, whose modules are imported and forgotten again, as ``module`` is."""
    before, modules = Path.cwd(), set(sys.modules)
    sys.modules[module.__name__] = module
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
        del sys.modules[module.__name__]
        for name in set(sys.modules) - modules:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def commands_of(text: str) -> list[str]:
    """The command lines of a text: continued lines are joined, comments are left out."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return [line.strip() for line in joined.splitlines() if line.strip() and line.strip()[0] != "#"]


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that these words name, and the words behind the name.

    :raises click.UsageError: there is no such command
    """
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name not in command.commands:
            raise click.UsageError(f"there is no command {name!r} in {words}")
        command = command.commands[name]
    return command, rest


def check_command(words: list[str]) -> None:
    """Hold a command line to the commands, options and kinds of values that there are.

    :raises click.UsageError: there is no such command, option or value
    """
    command, rest = command_of(words)
    if not isinstance(command, click.Group):
        command.make_context(command.name, rest)
