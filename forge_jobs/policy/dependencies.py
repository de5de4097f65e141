"""The effect of a parent's end on its child."""

from forge_jobs.model.edges import NOTING, PASSING
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.transitions import Delivery, Handover


def delivery(handover: Handover) -> Delivery:
    """Settle the edge when the parent is done. Else as the edge's ``on_failure`` says.

    ``continue`` and ``skip`` settle, ``note`` settles with the status of the parent, ``hold`` and
    ``stop`` keep the child blocked for an operator, as ``wait`` does after a dead parent, and
    ``cancel`` cancels, as does a value that this version does not know: running a job whose
    precondition failed is the one outcome that cannot be undone. A named parent in a sequence
    means what the name says.
    """
    status, rule = handover.parent_status, handover.on_failure
    if status is JobStatus.DONE or rule in PASSING:
        return Delivery(handover, "settle")
    if rule in NOTING:
        return Delivery(handover, status.value)
    if rule == "wait":
        return Delivery(handover, "hold" if status is JobStatus.DEAD else "settle")
    return Delivery(handover, "hold" if rule in ("hold", "hold_in_line", "stop") else "cancel")
