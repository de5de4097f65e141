"""The common base of throw-away servers: a process, a folder, a port and a log."""

import os
import secrets
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from forge_jobs.testing.folders import ServerFolder
from forge_jobs.testing.ports import ReservedPorts
from forge_jobs.testing.programs import ServerError, refuses_root, start_process

_ATTEMPTS = 10
_READY_SECONDS = 60.0
_STOP_SECONDS = 30.0
_TAIL_LINES = 20


class Server(ABC):
    """A server process with a folder and a port.

    The port and the data stay the same over :meth:`stop`, :meth:`kill` and :meth:`start`, until
    :meth:`close` removes them.
    """

    name: ClassVar[str]
    _ready: ClassVar[bytes]
    """A line that the server prints when ready for connections."""
    _stop_signal: ClassVar[signal.Signals]
    _end_signal: ClassVar[str]
    """A signal for the server when the program that started the server has gone."""
    _ports_needed: ClassVar[int] = 1

    def __init__(self, folder: Path | None = None) -> None:
        self._parent = folder
        self._folder: ServerFolder | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._ports: ReservedPorts | None = None
        self.port = 0
        self.password = secrets.token_hex(12)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect, with the password. Valid once started."""

    @property
    def folder(self) -> Path:
        """The server's private folder. Valid once started."""
        assert self._folder is not None, "not started"
        return self._folder.path

    @property
    def process_id(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, "not running"
        return self._process.pid

    def start(self) -> Self:
        """Start, or start again on the same data and port. Return when connections are taken.

        :raises ServerError: no start. The message ends with the tail of the server's log
        """
        if self._process is not None and self._process.poll() is None:
            return self
        if self._folder is None:
            self._folder = ServerFolder(self._parent)
            try:
                self._prepare()
            except BaseException:
                self.close()
                raise
        try:
            self._start_on_a_free_port()
        except BaseException:
            if self.port == 0:
                self.close()
            raise
        return self

    def stop(self) -> None:
        """Stop in good order. The data stays."""
        self._end(self._stop_signal)

    def kill(self) -> None:
        """SIGKILL the server and all child processes at once. The data stays."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop in good order and start on the same data and port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the server and remove the data. Closing twice is fine."""
        if self._folder is not None:
            self.kill()
            self._folder.remove()
            self._folder = None
            self._release_ports()

    def log(self) -> str:
        """The server's output since the first start."""
        return (self.folder / "log").read_text(errors="replace")

    @abstractmethod
    def _prepare(self) -> None:
        """Make in the folder what the first start needs."""

    @abstractmethod
    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        """Start the process, to listen on ``port``."""

    def _start_on_a_free_port(self) -> None:
        for _ in range(_ATTEMPTS):
            self._ports = self._ports or ReservedPorts(self._ports_needed)
            port = self.port or self._ports.first
            self._log_start = os.path.getsize(self._open_log())
            self._process = self._launch(port)
            if self._is_up():
                self.port = port
                return
            if self.port == 0:
                self._release_ports()
        raise self._failed("found its port taken, again and again")

    def _release_ports(self) -> None:
        if self._ports is not None:
            self._ports.release()
        self._ports, self.port = None, 0

    def _open_log(self) -> Path:
        path = self.folder / "log"
        path.touch()
        return path

    def _is_up(self) -> bool:
        """Wait for the server. False when another process had taken the port."""
        assert self._process is not None
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            ended = self._process.poll() is not None
            said = self._said()
            if ended and b"Address already in use" in said:
                self._end(signal.SIGKILL)
                return False
            if ended:
                raise self._failed("ended at its start")
            if self._ready in said:
                return True
            time.sleep(0.002)
        self._end(signal.SIGKILL)
        raise self._failed(f"was not ready after {_READY_SECONDS:g} s")

    def _said(self) -> bytes:
        with (self.folder / "log").open("rb") as log:
            log.seek(self._log_start)
            return log.read()

    def _failed(self, problem: str) -> ServerError:
        tail = self.log().splitlines()[-_TAIL_LINES:]
        said = "\n".join(tail) or "(nothing)"
        return ServerError(f"{self.name} {problem}. The end of its log:\n{said}")

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or self._folder is None:
            return
        self._process.send_signal(how)
        if how is not signal.SIGKILL:
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        # Children outlive a killed server for a moment, and would still write.
        self._folder.kill_processes()
        self._process.wait()
        self._process = None

    def _run(self, command: list[str], *, refuse_root: bool) -> subprocess.Popen[bytes]:
        with self._open_log().open("ab") as log:
            try:
                return start_process(
                    command,
                    folder=self.folder,
                    output=log,
                    refuse_root=refuse_root,
                    end_signal=self._end_signal,
                )
            except OSError:
                raise self._failed(f"could not be run as {command[0]}") from None

    def _own(self, *paths: Path) -> None:
        """Give files to the user that a program takes which refuses root."""
        _, user = refuses_root()
        if user is not None:
            for path in paths:
                os.chown(path, user, user)
