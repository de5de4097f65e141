"""The end of a program is known also when the pod writes to a guardian that is gone."""

import asyncio
import os
import shutil
import socket
import subprocess
from pathlib import Path

import anyio
import psutil
import pytest

from forge_jobs.model.ids import HostId
from forge_jobs.runtime.executors.guarded import GuardedProgram, NoProcess, ProgramEnd
from forge_jobs.runtime.executors.messages import Ended, Stop, frame
from forge_jobs.runtime.executors.supply import Child

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

CAT = shutil.which("cat") or "/bin/cat"


async def test_a_command_to_a_guardian_that_is_gone_hides_no_end() -> None:
    program = GuardedProgram()
    theirs, ours = os.pipe()
    await program.start([CAT], streams=(theirs, subprocess.DEVNULL, subprocess.DEVNULL))
    os.close(theirs)
    os.close(ours)
    # The loop stands until the guardian is gone, so that the write comes before the words are read.
    os.waitid(os.P_PID, program.guardian_id, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222

    program.limit_memory(0)

    assert await program.ended == ProgramEnd(0)


async def test_a_program_that_is_refused_leaves_no_guardian(tmp_path: Path) -> None:
    program = GuardedProgram()
    with pytest.raises(NoProcess, match="Permission denied"):
        await program.start([str(tmp_path)])
    # A loop that closes before the guardian is collected leaves a process and a socket.
    assert program.ended.done()
    assert not psutil.pid_exists(program.guardian_id)


async def _child() -> tuple[Child, socket.socket]:
    """Return a child without a process, and the end of the connection that the process would have.

    For the caller to close, and to give the program up."""
    child = Child("shop:handlers", HostId("pod"), lambda *_: None)
    ours, theirs = child.program.socket_pair()
    child._socket = ours
    await asyncio.get_running_loop().create_connection(lambda: child, sock=ours)
    return child, theirs


async def test_an_answer_to_a_child_that_is_gone_hides_no_outcome() -> None:
    child, theirs = await _child()
    child._answer = asyncio.get_running_loop().create_future()
    theirs.sendall(frame(Ended(None, result="1")))
    theirs.close()

    child.send(Stop("cancel"))

    with anyio.fail_after(20):
        assert await child._answer == Ended(None, result="1")
    child.program.give_up()


async def test_a_child_that_is_gone_takes_no_job_even_before_the_event_loop_knows() -> None:
    child, theirs = await _child()
    assert child.is_alive
    theirs.close()
    assert not child.is_alive
    child.program.give_up()
