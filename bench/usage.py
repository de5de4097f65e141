"""Usage of processes of this machine, as the kernel counts it. Needs nothing installed."""

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree_cpu_seconds(process_id: int) -> float:
    """Return the CPU time of a process and all below it, including ended and awaited ones."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields:
            parents[int(folder.name)] = fields
    below = {process_id}
    grown = True
    while grown:
        found = {pid for pid, fields in parents.items() if int(fields[1]) in below}
        grown = not found <= below
        below |= found
    return sum(_cpu_ticks(parents[pid]) for pid in below if pid in parents) / _TICKS


def own_cpu_seconds() -> float:
    """CPU time of this process, all threads."""
    return time.process_time()


def own_rss_bytes() -> int:
    """Memory of this process that is in RAM now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def own_written_bytes() -> int:
    """Bytes that this process has handed to write calls, whatever they went to."""
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "wchar":
            return int(value)
    raise LookupError("/proc/self/io has no wchar")


def _stat(process_id: int) -> list[str]:
    """The fields after the name, which may hold spaces: state first, then the parent."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _cpu_ticks(fields: list[str]) -> int:
    return sum(int(field) for field in fields[11:15])
