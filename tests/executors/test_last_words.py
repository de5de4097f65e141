"""The end of a program is known also when the pod writes to a guardian that is gone."""

import asyncio
import os
import shutil
import subprocess

import anyio
import pytest

from forge_jobs.model.ids import HostId
from forge_jobs.runtime.executors.guarded import GuardedProgram, ProgramEnd
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


async def test_an_answer_to_a_child_that_is_gone_hides_no_outcome() -> None:
    child = Child("shop:handlers", HostId("pod"), lambda *_: None)
    ours, theirs = child.program.socket_pair()
    child._socket = ours
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: child, sock=ours)
    child._answer = loop.create_future()
    theirs.sendall(frame(Ended(None, result="1")))
    theirs.close()

    child.send(Stop("cancel"))

    with anyio.fail_after(20):
        assert await child._answer == Ended(None, result="1")
    child.program.give_up()
