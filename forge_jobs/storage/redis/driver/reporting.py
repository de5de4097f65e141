"""The report of the servers on themselves."""

from collections.abc import Iterable, Sequence

from forge_jobs.storage.protocols import StoreReport
from forge_jobs.storage.redis.driver.durability import Findings


def report_of(findings: Sequence[Findings], version: int) -> StoreReport:
    """Return the sums over all servers. A part that one server does not say is None.

    :param version: of the layout of keys
    """
    bounds = [_number(each, "maxmemory") for each in findings]
    return StoreReport(
        size_bytes=_sum(_number(each, "used_memory_dataset") for each in findings),
        memory_bytes=_sum(_number(each, "used_memory") for each in findings),
        # One server without a bound can take all that there is.
        memory_bound=_sum(bounds) if all(bounds) else None,
        replicas=_sum(_number(each, "connected_slaves") for each in findings),
        schema_version=version,
    )


def _number(found: Findings, name: str) -> int | None:
    value = found.info.get(name, "").strip()
    return int(value) if value.isdigit() else None


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return sum(each or 0 for each in known) if known and None not in known else None
