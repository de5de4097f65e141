"""The effect of a parent's end on its child."""

from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.transitions import Delivery, Handover


def delivery(handover: Handover) -> Delivery:
    """Settle the edge when the parent is done. Else as the edge's ``on_failure`` says.

    ``continue`` settles, ``note`` settles with the status of the parent, ``hold`` keeps the child
    blocked for an operator, and ``cancel`` cancels, as does a value that this version does not
    know: running a job whose precondition failed is the one outcome that cannot be undone.
    """
    if handover.parent_status is JobStatus.DONE or handover.on_failure == "continue":
        return Delivery(handover, "settle")
    if handover.on_failure == "note":
        return Delivery(handover, handover.parent_status.value)
    return Delivery(handover, "hold" if handover.on_failure == "hold" else "cancel")
