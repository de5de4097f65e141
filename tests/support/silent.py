"""Hosts that never answer: a frozen machine, a firewall that drops what arrives."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

HOST = "127.0.0.1"


@contextmanager
def mute() -> Iterator[int]:
    """The port of a host that takes connections and says nothing."""
    with socket.create_server((HOST, 0), backlog=100) as listening:
        yield listening.getsockname()[1]


@contextmanager
def deaf() -> Iterator[int]:
    """Yield the port of a host that accepts no connection, because the backlog is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((HOST, 0), backlog=0))
        port: int = listening.getsockname()[1]
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((HOST, port))
        yield port


@contextmanager
def frozen(process_id: int) -> Iterator[None]:
    """Freeze a process: the system accepts connections for it, and no answer comes."""
    os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)


SILENT = {"mute": mute, "deaf": deaf}
"""Ways in which a host does not answer."""
