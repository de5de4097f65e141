"""A process of a bench: reads work as a line of JSON, and reports to the parent in such lines.

Whatever a library prints goes to standard error, so that the lines stay clean.
"""

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from bench.roles import ROLES, Meter
from bench.side import Side, Work
from bench.tracing import SqliteStatements


def side_class(name: str) -> type[Side]:
    """The class that ``module:Class`` names."""
    module, _, attribute = name.partition(":")
    found: type[Side] = getattr(importlib.import_module(module), attribute)
    return found


def loop_factory(wanted: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory where side and environment have uvloop, else None."""
    if not wanted:
        return None
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def run(work: Work, make: type[Side], out: int) -> None:
    """Play one role."""

    def report(what: str, fields: dict[str, Any]) -> None:
        os.write(out, json.dumps({"what": what, **fields}).encode() + b"\n")

    loop = asyncio.get_running_loop()

    async def go() -> None:
        if not await loop.run_in_executor(None, sys.stdin.readline):
            raise SystemExit("the parent has gone")

    is_sqlite = work.url.startswith("sqlite")
    statements = SqliteStatements() if work.counted and is_sqlite else None
    side = make(work)
    await ROLES[work.role](side, Meter(side, statements), report, go)


def main() -> None:
    """Play the role, then leave at once: a library's threads must not hold the process."""
    out = os.dup(1)
    os.dup2(2, 1)
    work = Work(**json.loads(sys.stdin.readline()))
    if work.cpus:
        os.sched_setaffinity(0, work.cpus)
    make = side_class(work.side)
    with asyncio.Runner(loop_factory=loop_factory(make.uvloop)) as runner:
        runner.run(run(work, make, out))
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
