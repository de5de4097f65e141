"""Thumbnails in processes. A module of its own, because the processes import the handlers."""

import os
import struct
import zlib
from pathlib import Path

from forge_jobs import HandlerRegistry, JobContext

handlers = HandlerRegistry()


@handlers.job(
    "image.thumbnail",
    queue="images",
    executor="process",
    timeout=60,
    max_memory=256 * 2**20,
    max_runs_per_child=100,
    never_retry_on=ValueError,
)
def thumbnail(ctx: JobContext, source: str, target: str, width: int) -> int:
    """Shrink a picture, and return the id of the process."""
    pixels, columns, rows = read_ppm(Path(source))
    step = max(columns // width, 1)
    lines = []
    for row in range(rows // step):
        lines.append(shrunk_line(pixels, columns, row * step, step))
        ctx.progress.set(row + 1, rows // step)
    # Written aside: a process that is killed leaves no half of a picture under the name.
    partial = Path(f"{target}.{ctx.job_id}")
    partial.write_bytes(png(lines))
    partial.replace(target)
    return os.getpid()


def shrunk_line(pixels: bytes, columns: int, top: int, step: int) -> bytes:
    """Return a line of which each pixel is the mean of a square of ``step`` by ``step``."""
    line = bytearray()
    for left in range(0, columns - step + 1, step):
        for channel in range(3):
            total = 0
            for row in range(top, top + step):
                begin = (row * columns + left) * 3 + channel
                total += sum(pixels[begin : begin + step * 3 : 3])
            line.append(total // step**2)
    return bytes(line)


def read_ppm(path: Path) -> tuple[bytes, int, int]:
    """Return pixels, columns and rows of a picture.

    :raises ValueError: the file is no whole PPM picture
    """
    kind, columns, rows, _, pixels = path.read_bytes().split(maxsplit=4)
    if kind != b"P6" or len(pixels) != int(columns) * int(rows) * 3:
        raise ValueError(f"{path.name} is no whole PPM picture")
    return pixels, int(columns), int(rows)


def png(lines: list[bytes]) -> bytes:
    """Return a PNG file of lines of red, green and blue."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = zlib.crc32(name + data)
        return struct.pack("!I", len(data)) + name + data + struct.pack("!I", check)

    size = struct.pack("!IIBBBBB", len(lines[0]) // 3, len(lines), 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + line for line in lines))
    head = b"\x89PNG\r\n\x1a\n"
    return head + chunk(b"IHDR", size) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
