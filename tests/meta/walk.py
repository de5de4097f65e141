"""Prints how far a job travels through the code: ``python -m tests.meta.walk sqlite``.

See :mod:`tests.support.walks`. ``--steps`` prints every function in turn.
"""

import argparse
import asyncio
import tempfile

from forge_jobs.testing.servers import PostgresServer, RedisServer
from tests.support.walks import way_of_a_run, way_of_an_enqueue

_SERVERS = {"postgres": PostgresServer, "redis": RedisServer}


async def _print(url: str, title: str, *, steps: bool) -> None:
    for of, way in ("claim, run, finalize", way_of_a_run), ("enqueue", way_of_an_enqueue):
        print((await way(url)).report(f"{of}, {title}", steps=steps))


def main() -> None:
    """Print the figures of one store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", choices=["sqlite", *_SERVERS])
    parser.add_argument("--steps", action="store_true", help="print every function in turn")
    given = parser.parse_args()
    if given.store == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/jobs.db"
            asyncio.run(_print(url, given.store, steps=given.steps))
    else:
        with _SERVERS[given.store]() as server:
            asyncio.run(_print(server.url, given.store, steps=given.steps))


if __name__ == "__main__":
    main()
