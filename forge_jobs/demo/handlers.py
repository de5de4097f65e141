"""The demo's handlers, loaded by the worker processes as any user's handlers are."""

import hashlib
import os
from datetime import timedelta
from pathlib import Path

import anyio
from msgspec import Struct

from forge_jobs.clock import SystemClock
from forge_jobs.demo.ledger import SEEN, Seen, append, balance, read_handed_out, read_seen
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.retries import Fixed

FILES, REPORTS, PINGS, TICKS = "demo-files", "demo-reports", "demo-pings", "demo-ticks"

_CHUNK = 1 << 20
_clock = SystemClock()

handlers = HandlerRegistry()


class FileFacts(Struct, frozen=True):
    """The size and the counts of one file."""

    sha256: str
    lines: int
    words: int


def measure(path: Path) -> FileFacts:
    """Hash a file and count the lines and words."""
    digest, lines, words, in_word = hashlib.sha256(), 0, 0, False
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            lines += chunk.count(b"\n")
            words += len(chunk.split()) - (in_word and not chunk[:1].isspace())
            in_word = not chunk[-1:].isspace()
    return FileFacts(digest.hexdigest(), lines, words)


def _seen(ctx: JobContext, **fields: object) -> Seen:
    entry = {
        "job_id": ctx.job_id,
        "kind": ctx.kind,
        "attempt": ctx.attempt,
        "process_id": os.getpid(),
        "at_us": _clock.time_us(),
    }
    return Seen(**(entry | fields))  # type: ignore[arg-type]


# Without jitter, so that the demo's end can be foreseen. A real handler should keep the jitter.
@handlers.job(
    "demo.count_file", queue=FILES, max_attempts=4, retry=Fixed(timedelta(seconds=1), jitter=False)
)
async def count_file(ctx: JobContext, path: str, ledger: str, pace: float) -> FileFacts:
    """Hash one file and count its lines and words.

    :param pace: seconds to rest afterwards, so that people can watch
    """
    seen_file = Path(ledger) / SEEN
    try:
        facts = await anyio.to_thread.run_sync(measure, Path(path))
    except OSError:
        is_last = ctx.attempt == ctx.max_attempts
        append(seen_file, [_seen(ctx, outcome="gave_up" if is_last else "missing")])
        raise
    await anyio.sleep(pace)
    append(seen_file, [_seen(ctx, lines=facts.lines, words=facts.words)])
    return facts


@handlers.job("demo.report", queue=REPORTS)
def report(ctx: JobContext, ledger: str, name: str) -> dict[str, int]:
    """Sum up the ledger, once the jobs before this one have settled."""
    folder = Path(ledger)
    books = balance(read_handed_out(folder), read_seen(folder))
    text = f"{books.files} files, {books.lines} lines, {books.words} words\n"
    (folder / name).write_text(text)
    append(folder / SEEN, [_seen(ctx)])
    return {"files": books.files, "lines": books.lines, "words": books.words}


@handlers.job("demo.ping", queue=PINGS)
async def ping(ctx: JobContext, ledger: str) -> None:
    """Note the time of the pickup."""
    append(Path(ledger) / SEEN, [_seen(ctx)])


@handlers.job("demo.tick", queue=TICKS)
async def tick(ctx: JobContext, ledger: str) -> None:
    """Run by the demo's schedule, every second."""
    append(Path(ledger) / SEEN, [_seen(ctx)])
