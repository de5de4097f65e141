"""Ports for servers that a test starts, or for no server at all."""

from collections.abc import Iterator
from contextlib import contextmanager

from forge_jobs.testing.ports import ReservedPorts


@contextmanager
def free_ports(count: int = 1) -> Iterator[int]:
    """The first of ``count`` ports in a row that no test of any process is given meanwhile."""
    reserved = ReservedPorts(count)
    try:
        yield reserved.first
    finally:
        reserved.release()
