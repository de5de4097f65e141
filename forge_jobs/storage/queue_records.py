"""Stored queues that cannot be read."""

import msgspec

from forge_jobs.model.queues import QueueState
from forge_jobs.storage.salvage import log_unreadable


def salvaged_queue(found: QueueState, problems: str) -> QueueState:
    """The state as callers see it; logged once when it cannot be read.

    :param problems: what cannot be read of it, "" for nothing
    """
    if not problems:
        return found
    help = f"defaults stand for it; set it anew with 'forge-jobs queues set {found.name}'"
    log_unreadable("queue", found.name, problems, help)
    return msgspec.structs.replace(found, unreadable=problems)
