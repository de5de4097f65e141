"""Stored pods that cannot be read."""

import msgspec

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Pod, PodState
from forge_jobs.storage.salvage import log_unreadable


def no_pod(host_id: str) -> Pod:
    """What stands for what a pod said of itself, where that cannot be read."""
    return Pod(host_id=HostId(host_id), label="", queues=(), kinds=(), version="", process_id=0)


def salvaged_pod(found: PodState, problems: str) -> PodState:
    """The pod as callers see it; logged once when it cannot be read.

    :param problems: what cannot be read of it, "" for nothing
    """
    if not problems:
        return found
    log_spoilt_pod(found.pod.host_id, problems)
    return msgspec.structs.replace(found, unreadable=problems)


def log_spoilt_pod(host_id: str, problems: str) -> None:
    """Say once what cannot be read of a pod."""
    help = "the pod writes it anew when it registers, at its next start at the latest"
    log_unreadable("pod", host_id, problems, help)
