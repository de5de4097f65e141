"""Ports of the loopback interface, each for one server and its successors."""

import random
import socket
from contextlib import ExitStack

HOST = "127.0.0.1"
# Below the ports that the system gives to outgoing connections: a client that keeps trying a
# stopped server's port could otherwise end up connected to itself.
_NUMBERS = range(15_000, 32_000)


class ReservedPorts:
    """``count`` free ports in a row, kept from all processes that reserve ports this way.

    The ports stay reserved until :meth:`release`, also while their servers are stopped.
    """

    def __init__(self, count: int = 1) -> None:
        self._held = ExitStack()
        self.first = 0
        while not self.first:
            first = random.SystemRandom().choice(_NUMBERS[: 1 - count or None])
            try:
                for number in range(first, first + count):
                    self._take(number)
            except OSError:
                self.release()
                continue
            self.first = first

    def release(self) -> None:
        """Let others have the ports. Twice is fine."""
        self._held.close()

    def _take(self, number: int) -> None:
        # A UDP socket holds the number for this process and leaves the TCP port to a server. The
        # system lets go of the number when the process ends, however the process ends.
        mark = self._held.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        mark.bind((HOST, number))
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", number))
