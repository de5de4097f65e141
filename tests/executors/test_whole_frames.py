"""Messages of a child arrive whole, whatever interrupts the code that sends."""

import select
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import psutil
import pytest

from forge_jobs.model.jobs import Cause
from forge_jobs.runtime.executors.guarded import ProgramEnd
from forge_jobs.runtime.executors.messages import Ended, Frames, FromChild
from forge_jobs.runtime.executors.remote import Pod
from forge_jobs.runtime.executors.sending import OwnSocket
from forge_jobs.runtime.queue.run import StopReason
from tests.executors.test_early_ends import a_child, a_start
from tests.support import unruly_handlers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


class Interrupted(Exception):
    """Raised by a signal handler."""


@pytest.fixture
def interrupted() -> Iterator[threading.Event]:
    """SIGUSR1 raises :class:`Interrupted` on the main thread, once."""
    happened = threading.Event()

    def interrupt(*_: object) -> None:
        if not happened.is_set():
            happened.set()
            raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield happened
    signal.signal(signal.SIGUSR1, before)


def _interrupt_when_readable(
    ours: socket.socket, thread: int, interrupted: threading.Event
) -> None:
    select.select([ours], [], [])
    # A signal that comes right before a call that waits is not seen until the call returns.
    while not interrupted.wait(0.02):
        signal.pthread_kill(thread, signal.SIGUSR1)


def _all_of(ours: socket.socket, received: bytearray) -> None:
    while data := ours.recv(100_000):
        received += data


def test_a_sender_that_is_interrupted_leaves_no_half_message(interrupted: threading.Event) -> None:
    ours, theirs = socket.socketpair()
    received = bytearray()
    with ours:
        with theirs:
            pod = Pod(OwnSocket(theirs))
            # The message is larger than what the socket holds, so half of the message is sent when
            # the signal comes.
            threading.Thread(
                target=_interrupt_when_readable,
                args=(ours, threading.get_ident(), interrupted),
                daemon=True,
            ).start()
            with pytest.raises(Interrupted):
                pod.tell("line", 20, "x" * 1_000_000)
            reader = threading.Thread(target=_all_of, args=(ours, received), daemon=True)
            reader.start()
            pod.tell("line", 20, "after")
        reader.join(20)
    calls = list(Frames(FromChild).feed(bytes(received)))
    assert [len(call.arguments) > 1_000 for call in calls] == [True, False]


async def test_a_cancel_of_a_handler_that_waits_for_the_pod_is_heard(tmp_path: Path) -> None:
    child = a_child(unruly_handlers)
    await child.start()
    mark = tmp_path / "mark"
    transport = child._transport
    assert transport is not None
    transport.pause_reading()
    answer = child.run(a_start("unruly.talks", {"mark": str(mark)}), None)
    await wait_until(mark.exists, description="the handler talks")
    process = psutil.Process(int(mark.read_text()))
    await wait_until(
        lambda: process.status() == psutil.STATUS_SLEEPING,
        description="the handler waits for the pod",
    )
    child.interrupt(StopReason.CANCEL)
    transport.resume_reading()
    with anyio.fail_after(20):
        end = await answer
        assert isinstance(end, Ended), end
        child.retire()
        await child.program.ended
    assert end.cause is Cause.CANCELLED


async def test_a_child_that_is_killed_amid_a_message_is_a_crash(tmp_path: Path) -> None:
    child = a_child(unruly_handlers)
    await child.start()
    mark = tmp_path / "mark"
    transport = child._transport
    assert transport is not None
    transport.pause_reading()
    answer = child.run(a_start("unruly.talks", {"mark": str(mark)}), None)
    await wait_until(mark.exists, description="the handler talks")
    process = psutil.Process(int(mark.read_text()))
    await wait_until(
        lambda: process.status() == psutil.STATUS_SLEEPING,
        description="the handler waits for the pod",
    )
    process.kill()
    transport.resume_reading()
    with anyio.fail_after(20):
        end = await answer
    assert end == ProgramEnd(-signal.SIGKILL)
    assert not child.is_alive
