"""Rules on outboxes: records that wait for long, or that the destination refuses."""

from collections.abc import Iterator

from forge_jobs.policy import remedies
from forge_jobs.policy.judgement.problems.problem import Finding, for_long, number, page_of, waits
from forge_jobs.policy.judgement.problems.snapshot import Snapshot


def waiting(seen: Snapshot) -> Iterator[Finding]:
    """Records of an outbox are not relayed."""
    for each in seen.outboxes:
        if each.waiting_since is None:
            continue
        yield Finding(
            about=each.name,
            jobs=each.waiting,
            since=each.waiting_since,
            evidence=(
                f"{waits(each.waiting, 'job')} in the outbox for {each.name}, the oldest for "
                f"{for_long(seen.now - each.waiting_since)}."
            ),
            why=(
                "The destination takes none, more jobs are written down than a pod relays, or the "
                "relay stands still."
            ),
            action="See the log of the pods with FORGE_OUTBOX. Nothing is lost meanwhile.",
            command=remedies.list_outbox(each.name),
            page=page_of("store/outbox"),
        )


def set_aside(seen: Snapshot) -> Iterator[Finding]:
    """The destination of an outbox refuses records, which wait for a person."""
    for each in seen.outboxes:
        if each.aside_since is None or not each.set_aside:
            continue
        verb = "is" if each.set_aside == 1 else "are"
        yield Finding(
            about=each.name,
            jobs=each.set_aside,
            since=each.aside_since,
            evidence=(
                f"{number(each.set_aside, 'job')} of the outbox for {each.name} {verb} set aside."
            ),
            why="The destination refuses them for what they are. The list says why, job by job.",
            action="Mend the cause and retry them, or discard them. Others are relayed meanwhile.",
            command=remedies.list_outbox(each.name),
            page=page_of("store/outbox"),
        )
