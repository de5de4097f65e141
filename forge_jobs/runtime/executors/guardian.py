"""Start one program, and end the program with all processes that descend from the program.

A script of the standard library alone, started isolated: ``python -I -S guardian.py``. Pods start
a guardian for each program. The guardian outlives a pod that is killed, and takes in the orphans
of the program (``PR_SET_CHILD_SUBREAPER``), also those that left the process group.

Lines from the pod on the control socket: ``TERM`` sends SIGTERM to the process group, ``KILL``
kills everything, ``MEMORY n`` sets the limit in bytes (0: none). The end of the socket means that
the pod is gone, and kills everything. Lines to the pod are JSON: ``{"started": pid}``,
``{"refused": errno}``, and at the end ``{"ended": exit code, "memory": bytes}``.
"""

import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress

_PDEATHSIG, _CHILD_SUBREAPER = 1, 36
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Sent to whole control groups and terminals. The pod decides when a program ends."""

_LOOK_EVERY = 0.1
"""Seconds between two readings of the memory."""

_SWEEP_FOR = 10.0
"""Seconds for killed processes to be gone. One that waits for a disk may take longer."""


class Guardian:
    """The program and its descendants.

    :param control: file descriptor of the socket to the pod
    :param program: path of the program
    :param argv: arguments of the program, the name first
    """

    def __init__(self, control: int, program: str, argv: list[str]) -> None:
        self._control = control
        self._program = program
        self._argv = argv
        self._pid = 0
        self._limit = 0
        self._used = 0
        self._lines = b""
        self._pod_is_gone = False

    def run(self, inherited: list[int]) -> None:
        """Start the program, and return when no process of the program is left."""
        _prctl(_CHILD_SUBREAPER, 1)
        for signum in _IGNORED:
            signal.signal(signum, signal.SIG_IGN)
        ended, told = os.pipe()
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            self._pid = self._start()
        except OSError as error:
            self._tell({"refused": error.errno or errno.EIO})
            return
        self._tell({"started": self._pid})
        _let_go(inherited)
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        poller.register(self._control, select.POLLIN)
        while not self._has_ended():
            for descriptor, _ in poller.poll(_LOOK_EVERY * 1000 if self._limit else None):
                if descriptor == ended:
                    os.read(ended, 4096)
                elif not self._listen():
                    poller.unregister(self._control)
            self._reap_orphans()
            if self._limit and not self._used:
                self._weigh()
        code = self._sweep()
        self._tell({"ended": code, "memory": self._used})

    def _start(self) -> int:
        """Fork and execute.

        :raises OSError: the system refuses a process, or the program cannot be executed
        """
        failed, report = os.pipe()
        guardian = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(self._program, self._argv, report, guardian)
        os.close(report)
        with suppress(OSError):
            os.setpgid(pid, pid)
        said = os.read(failed, 64)
        os.close(failed)
        if said:
            os.waitpid(pid, 0)
            raise OSError(int(said), os.strerror(int(said)))
        return pid

    def _listen(self) -> bool:
        """Do what the pod asks. False: the pod is gone."""
        try:
            received = os.read(self._control, 4096)
        except OSError:
            received = b""
        if not received:
            self._pod_is_gone = True
            self._kill()
            return False
        *lines, self._lines = (self._lines + received).split(b"\n")
        for line in lines:
            verb, _, value = line.partition(b" ")
            if verb == b"TERM":
                _signal_group(self._pid, signal.SIGTERM)
            elif verb == b"KILL":
                self._kill()
            elif verb == b"MEMORY":
                self._limit, self._used = int(value), 0
        return True

    def _tell(self, message: dict[str, int]) -> None:
        if not self._pod_is_gone:
            with suppress(OSError):
                os.write(self._control, json.dumps(message).encode() + b"\n")

    def _has_ended(self) -> bool:
        """Return whether the program is a zombie, which keeps the id of the group from others."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, flags) is not None

    def _kill(self) -> None:
        _signal_group(self._pid, signal.SIGKILL)
        with suppress(OSError):
            # The program may have moved to the group of one of its children.
            os.kill(self._pid, signal.SIGKILL)

    def _reap_orphans(self) -> list[int]:
        """Return the orphans that still run."""
        left = [pid for pid in _children_of(os.getpid()) if pid != self._pid]
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return left

    def _sweep(self) -> int:
        """Kill what is left of the ended program, and return the exit code of the program."""
        until = time.monotonic() + _SWEEP_FOR
        while True:
            self._kill()
            # A process whose parent was killed becomes a child of the guardian.
            left = self._reap_orphans()
            if not left or time.monotonic() > until:
                break
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)

    def _weigh(self) -> None:
        """Kill the program when the memory of all processes together is above the limit."""
        pids = _descendants_of(os.getpid())
        if sum(map(_resident, pids)) <= self._limit:
            return
        # Forked processes share pages, which the first sum counts for each of them.
        used = sum(map(_proportional, pids))
        if used > self._limit:
            self._used = used
            self._kill()


def _become(program: str, argv: list[str], report: int, guardian: int) -> None:
    try:
        os.setpgid(0, 0)
        _prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian:
            os._exit(1)  # the guardian died before the system could know the wish
        for signum in (*_IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)
        os.execv(program, argv)
    except OSError as error:
        os.write(report, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)


def _let_go(inherited: list[int]) -> None:
    """Close what belongs to the program, so that the end of a pipe is the program's end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for descriptor in inherited:
        os.close(descriptor)


def _prctl(option: int, value: int) -> None:
    """Do nothing where the system has no prctl: there the process group is all that is ended."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _signal_group(group: int, signum: int) -> None:
    with suppress(OSError):
        os.killpg(group, signum)


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _descendants_of(pid: int) -> list[int]:
    found = _children_of(pid)
    for each in found:
        found += _children_of(each)
    return found


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return _resident(pid)


def main() -> None:
    """Run with the control socket, the descriptors of the program, the program, and its argv."""
    control, inherited, program, *argv = sys.argv[1:]
    os.set_inheritable(int(control), False)
    descriptors = [int(each) for each in inherited.split(",") if each]
    Guardian(int(control), program, argv).run(descriptors)


if __name__ == "__main__":
    main()
