"""Common parts of the three benches: options and reports."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench.children import ROOT
from bench.environment import load
from bench.stores import KINDS, Store, kind_of
from bench.suite import chosen


class Options(Struct, frozen=True):
    """:param storage: URLs, or names of stores whose servers we start
    :param scale: of the amount of work
    :param folder: on the disk that the servers of ours write to
    :param pin: servers on the last processor, workers on the others
    """

    storage: tuple[str, ...]
    runs: int
    scale: float
    only: tuple[str, ...]
    json: Path
    folder: Path
    pin: bool

    @property
    def worker_cpus(self) -> tuple[int, ...]:
        """Empty: any."""
        return tuple(sorted(os.sched_getaffinity(0))[:-1]) if self.pin else ()

    @property
    def server_cpus(self) -> tuple[int, ...]:
        """Empty: any."""
        return tuple(sorted(os.sched_getaffinity(0))[-1:]) if self.pin else ()


def add_options(
    parser: argparse.ArgumentParser,
    names: Collection[str],
    path: Path,
    *,
    own_servers: bool = False,
) -> None:
    """Add the options of every bench.

    :param own_servers: the bench empties whole servers, so it takes no URL of the user's
    """
    ways = f"one of {', '.join(KINDS)}, on a server of our own"
    if not own_servers:
        ways = f"a URL, or {ways}; on yours, schemas or key prefixes bench_... stay"
    parser.add_argument(
        "--storage",
        action="append",
        default=[],
        choices=KINDS if own_servers else None,
        help=f"{ways}. May be repeated (default: all three)",
    )
    parser.add_argument("--runs", type=int, help="per figure (default: 5; 2 when quick)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to try it out")
    parser.add_argument(
        "--only", action="append", default=[], help=f"what begins so, of: {', '.join(names)}"
    )
    parser.add_argument("--json", type=Path, default=path, help=f"default: {path}")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="on the disk to measure; memory would make commits free (default: %(default)s)",
    )
    parser.add_argument(
        "--pin", action="store_true", help="servers on the last processor, workers on the others"
    )


def options_of(parser: argparse.ArgumentParser, names: Collection[str]) -> Options:
    """Return the options of the command line. Leave with a message where they are wrong."""
    given = parser.parse_args()
    try:
        chosen(given.only, names)
        for each in given.storage:
            kind_of(each)
    except ValueError as error:
        parser.error(str(error))
    return Options(
        storage=tuple(given.storage or KINDS),
        runs=given.runs or (2 if given.quick else 5),
        scale=0.1 if given.quick else 1.0,
        only=tuple(given.only),
        json=given.json,
        folder=given.folder,
        pin=given.pin,
    )


def stores_of(options: Options) -> Iterator[Store]:
    """Yield the stores to measure on, in turn, each in a folder that is removed afterwards."""
    for each in options.storage:
        url = each if "://" in each else None
        with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder:
            yield KINDS[kind_of(each)](Path(folder), url, options.server_cpus)


def print_facts(facts: Mapping[str, str]) -> None:
    """Print a line per fact."""
    for name, fact in facts.items():
        print(f"{name:<20} {fact}")


def save(path: Path, facts: Mapping[str, Mapping[str, str]], **results: Any) -> None:
    """Write all that is known so far, so that an end half-way leaves what was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "made": _made(),
        "facts": facts,
        "load_at_end": load(),
        **msgspec.to_builtins(results),
    }
    path.write_text(json.dumps(document, indent=2))


def _made() -> dict[str, str]:
    """By which command, when, and from which commit."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "command": " ".join(["python", *sys.orig_argv[1:]]),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or "unknown",
    }
