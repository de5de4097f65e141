"""Shrink a folder of pictures in processes: ``python batch.py``.

Work that keeps the processor busy has a core for each process, and a picture that takes too much
memory or crashes a library ends its own process and nothing else. The pictures are made here, one
of them broken. Pure Python stands for an image library.
"""

import asyncio
import os
from pathlib import Path

from images import handlers, thumbnail

from forge_jobs import JobDead, QueueRuntime, open_storage

URL = os.environ.get("FORGE_STORAGE_URL", "sqlite:///shop.db")
PICTURES, SIZE = 8, 240


def make_pictures(folder: Path) -> list[Path]:
    """Make pictures of two colours that run into each other, and one that is cut off."""
    folder.mkdir(exist_ok=True)
    paths = []
    for number in range(PICTURES):
        rows = (
            bytes(value for x in range(SIZE) for value in (x % 256, y % 256, number * 25))
            for y in range(SIZE)
        )
        paths.append(folder / f"picture-{number}.ppm")
        paths[-1].write_bytes(b"P6 %d %d 255\n" % (SIZE, SIZE) + b"".join(rows))
    broken = folder / "broken.ppm"
    broken.write_bytes(paths[0].read_bytes()[:1000])
    return [*paths, broken]


async def main(sources: list[Path], target: Path) -> set[int]:
    """Shrink pictures into the folder ``target``, and return the ids of the processes."""
    processes = set()
    async with (
        await open_storage(URL) as storage,
        QueueRuntime(storage, handlers).with_queues(images=2).start() as handle,
    ):
        outcomes = await handle.enqueue_many(
            [
                thumbnail.request(str(source), str(target / f"{source.stem}.png"), 40)
                for source in sources
            ]
        )
        for source, outcome in zip(sources, outcomes, strict=True):
            try:
                processes.add(await handle.result(outcome.job_id, timeout=60))
            except JobDead as error:
                print(f"{source.name} is given up: {error}")
    return processes


if __name__ == "__main__":
    folder = Path("thumbnails")
    folder.mkdir(exist_ok=True)
    ids = asyncio.run(main(make_pictures(Path("pictures")), folder))
    made = len(list(folder.glob("*.png")))
    beside = "beside" if os.getpid() not in ids else "in"
    print(f"{made} thumbnails were made by {len(ids)} processes {beside} the worker")
