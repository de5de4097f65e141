"""Where jobs and threads stand: functions, files below the package, and lines. Never values."""

import asyncio
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from forge_jobs.model.pod_requests import MAX_ANSWER
from forge_jobs.runtime.queue.run import Run

_MOST_FRAMES = 40
_END = "… and more, left out"


def stacks_of(
    runs: Iterable[Run], now: float, home: asyncio.AbstractEventLoop, home_thread: int
) -> str:
    """Return where each job and each thread stands, in :data:`MAX_ANSWER` bytes at most.

    Callable from any thread: a coroutine that waits is read as it waits, and the one that runs is
    where the thread of the event loop is.

    :param now: ``Clock.elapsed``
    :param home: the event loop of the handlers, and the thread of that loop
    """
    frames = sys._current_frames()
    current = _current_task(home)
    seen: set[int] = set()
    return _bounded(
        [
            *(part for run in list(runs) for part in _of_run(run, now, current, frames, seen)),
            *_of_threads(frames, seen, home_thread),
        ]
    )


def _of_run(
    run: Run, now: float, current: object, frames: dict[int, FrameType], seen: set[int]
) -> Iterator[str]:
    job = run.job
    queue, seconds = job.claim.queue, now - run.started_at
    head = f"job {job.claim.job_id} ({job.kind}) in {queue}, for {seconds:.1f} s"
    task, thread = run.task, run.thread_end
    if thread is not None and run.in_thread and thread.thread_id in frames:
        seen.add(thread.thread_id)
        yield f"{head}, in a thread:"
        yield from _of_frames(frames[thread.thread_id])
    elif run.handler.in_process:
        yield f"{head}, in a process of the job, whose stack is not read"
    elif task is None:
        yield f"{head}, about to start or to end"
    elif task is current:
        yield f"{head}, on the event loop, which is busy with this job: see the thread below"
    else:
        yield f"{head}, on the event loop, where the job waits:"
        yield from _of_coroutine(task.get_coro())


def _of_threads(frames: dict[int, FrameType], seen: set[int], home_thread: int) -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    # The thread of the event loop first: the one that is looked for when a pod hangs.
    for ident in sorted(frames, key=lambda each: (each != home_thread, each)):
        if ident in seen or ident == own:
            continue
        what = ", which runs the event loop" if ident == home_thread else ""
        yield f"thread {names.get(ident, 'without a name')}{what}:"
        yield from _of_frames(frames[ident])


def _of_frames(frame: FrameType | None) -> Iterator[str]:
    places = []
    while frame is not None:
        places.append(_place(frame.f_code, frame.f_lineno))
        frame = frame.f_back
    yield from _newest(places[::-1])


def _of_coroutine(coroutine: Any) -> Iterator[str]:
    """The frames of a coroutine that waits, the outermost first."""
    places: list[str] = []
    while coroutine is not None and len(places) < 1_000:
        for frame, awaited in (
            ("cr_frame", "cr_await"),
            ("gi_frame", "gi_yieldfrom"),
            ("ag_frame", "ag_await"),
        ):
            if hasattr(coroutine, frame):
                if (found := getattr(coroutine, frame)) is not None:
                    places.append(_place(found.f_code, found.f_lineno))
                coroutine = getattr(coroutine, awaited, None)
                break
        else:
            break
    yield from _newest(places)


def _newest(places: list[str]) -> list[str]:
    left_out = len(places) - _MOST_FRAMES
    if left_out <= 0:
        return places
    return [f"  ({left_out} outer frames left out)", *places[left_out:]]


def _place(code: CodeType, line: int) -> str:
    return f"  {_short(code.co_filename)}:{line} {code.co_qualname}"


@lru_cache(maxsize=1_000)
def _short(file: str) -> str:
    """Return the path of a file below the folder of the import, else the name alone."""
    path = file.replace("\\", "/")
    folders = (f"{each}".replace("\\", "/").rstrip("/") + "/" for each in sys.path if each)
    inside = [folder for folder in folders if len(folder) > 1 and path.startswith(folder)]
    return path[len(max(inside, key=len)) :] if inside else path.rpartition("/")[2]


def _current_task(loop: asyncio.AbstractEventLoop) -> object:
    try:
        return asyncio.current_task(loop)
    except RuntimeError:
        return None


def _bounded(lines: Iterable[str]) -> str:
    kept: list[str] = []
    room = MAX_ANSWER - len(_END.encode()) - 1
    for line in lines:
        # A name of a function or a thread may be anything.
        text = line.encode("utf-8", "replace").decode()
        room -= len(text.encode()) + 1
        if room < 0:
            kept.append(_END)
            break
        kept.append(text)
    return "\n".join(kept)
