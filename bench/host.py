"""Time that the machine below a virtual one took away during a measurement."""

from pathlib import Path

# user, nice, system, idle, iowait, irq, softirq, steal. Later fields are part of user:
# proc_stat(5).
_STEAL, _KINDS = 7, 8


class StealTime:
    """How much of all processors' time went to other virtual machines, from now on.

    :param source: the kernel's counters
    """

    def __init__(self, source: Path = Path("/proc/stat")) -> None:
        self._source = source
        self._before = self._ticks()

    def costs(self) -> dict[str, float]:
        """Return per cent of the time since then, nothing where the kernel has no count."""
        passed = [now - then for now, then in zip(self._ticks(), self._before, strict=True)]
        total = sum(passed)
        return {"stolen, %": 100 * passed[_STEAL] / total} if total else {}

    def _ticks(self) -> list[int]:
        try:
            line = self._source.read_text().partition("\n")[0]
        except FileNotFoundError:
            return []
        return [int(each) for each in line.split()[1 : 1 + _KINDS]]
