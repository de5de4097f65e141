"""Sends the frames of a child from a thread of their own: whole, or not at all.

A stop interrupts the code of a handler at any instruction, and so do signal handlers of the
program. Only the main thread is interrupted. A handler may also fork, and a forked process has the
connection, which belongs to the child alone.
"""

import os
import queue
import socket
import threading


class Elsewhere(RuntimeError):
    """A process that a handler has forked uses what belongs to the process of the handler."""


class OwnSocket:
    """The connection to the pod, used by this process alone.

    A handler may close all descriptors. Then a file of the handler may have the number of the
    connection, and nothing must be written there.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._identity = self._now()
        self._process_id = os.getpid()

    @property
    def is_elsewhere(self) -> bool:
        """Return whether this is a forked process."""
        return os.getpid() != self._process_id

    def close(self) -> None:
        """Close the connection, as a forked process does."""
        self._connection.close()

    def send(self, data: bytes) -> None:
        """Send all of ``data``.

        :raises OSError: the pod is gone, or the descriptor is another one
        """
        self._check()
        self._connection.sendall(data)

    def receive(self) -> bytes:
        """Return what has arrived. b"": the pod is gone, or the descriptor is another one."""
        try:
            self._check()
            return self._connection.recv(256 * 1024)
        except OSError:
            return b""

    def _check(self) -> None:
        if self._now() != self._identity:
            raise ConnectionError("the handler has closed the connection to the pod")

    def _now(self) -> tuple[int, int]:
        found = os.fstat(self._connection.fileno())
        return found.st_dev, found.st_ino


class FrameSender:
    """Sends frames in order. Any thread may use the methods, signal handlers too."""

    def __init__(self, own: OwnSocket) -> None:
        self._socket = own
        self._frames: queue.SimpleQueue[tuple[bytes, threading.Event]] = queue.SimpleQueue()
        self._problem: OSError | None = None
        threading.Thread(target=self._send_all, name="forge-jobs-to-pod", daemon=True).start()

    @property
    def is_elsewhere(self) -> bool:
        """Return whether this is a forked process."""
        return self._socket.is_elsewhere

    def send(self, frame: bytes) -> None:
        """Send a frame. Wait while the pod is behind with reading.

        An exception in the wait, raised by a signal handler, leaves the frame on the way.

        :raises OSError: the pod is gone
        :raises Elsewhere: this is a process that the handler has forked
        """
        if self.is_elsewhere:
            raise Elsewhere(
                "a process that the handler has forked cannot reach the pod; use ctx in the "
                "process of the handler"
            )
        sent = threading.Event()
        self._frames.put((frame, sent))
        sent.wait()
        if self._problem is not None:
            raise ConnectionError(str(self._problem))

    def _send_all(self) -> None:
        while True:
            frame, sent = self._frames.get()
            if self._problem is None:
                try:
                    self._socket.send(frame)
                except OSError as error:
                    self._problem = error
            sent.set()
