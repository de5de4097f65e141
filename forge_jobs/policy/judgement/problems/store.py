"""Rules on the store: slow, full, an old transaction, roll-ups behind."""

from collections.abc import Iterator

from forge_jobs.policy import remedies
from forge_jobs.policy.judgement.problems.problem import Finding, clock, for_long, page_of
from forge_jobs.policy.judgement.problems.snapshot import Snapshot


def slow(seen: Snapshot) -> Iterator[Finding]:
    """Calls are slow: of a hundred the slowest takes longer than a second."""
    store = seen.store
    if store.slow_since is None:
        return
    yield Finding(
        about=store.name,
        jobs=_due(seen),
        since=store.slow_since,
        evidence=(
            f"One of 100 calls of {store.slowest or 'the store'} takes longer than "
            f"{store.slowest_p99.total_seconds():.2g} s."
        ),
        why="The server is busy, a disk or the network is slow, or an old transaction is open.",
        action="Look at the server. Pausing a busy queue takes load off without losing work.",
        command=remedies.EXAMINE,
        page=page_of("store"),
    )


def full(seen: Snapshot) -> Iterator[Finding]:
    """The store is nearly full."""
    store = seen.store
    if store.full_since is None or not store.bound:
        return
    yield Finding(
        about=store.name,
        jobs=_due(seen),
        since=store.full_since,
        evidence=f"{store.used / store.bound:.0%} of {_size(store.bound)} are used.",
        why="Beyond the bound every enqueue and every end is refused.",
        action="Make room, or keep done jobs for a shorter time.",
        command=remedies.LIST_QUEUES,
        page=page_of("store"),
    )


def old_transaction(seen: Snapshot) -> Iterator[Finding]:
    """A transaction is open for long."""
    since = seen.store.transaction_since
    if since is None:
        return
    yield Finding(
        about=seen.store.name,
        since=since,
        evidence=(
            f"A transaction is open since {clock(since, seen.now)}, for "
            f"{for_long(seen.now - since)}."
        ),
        why="Until its end no dead row is removed, and every claim and beat gets slower.",
        action="End the session that pg_stat_activity shows with this xact_start.",
        command=remedies.EXAMINE,
        page=page_of("store"),
    )


def roll_up_behind(seen: Snapshot) -> Iterator[Finding]:
    """Minutes are no longer rolled up."""
    upto = seen.store.rolled_up_to
    if upto is None or not seen.pods:
        return
    yield Finding(
        about=seen.store.name,
        since=upto,
        evidence=(
            f"Charts and percentiles end at {clock(upto, seen.now)}, "
            f"{for_long(seen.now - upto)} ago."
        ),
        why="The coordinator does not get to its roll-up. Counts stay exact and are caught up on.",
        action="See who leads, and what the log of that pod says of roll-ups.",
        command=remedies.LOOK_AT_PODS,
        page=page_of("store"),
    )


def _due(seen: Snapshot) -> int:
    return sum(queue.due for queue in seen.queues)


def _size(count: int) -> str:
    size, unit = float(count), "bytes"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, bigger
    return f"{size:.3g} {unit}"
