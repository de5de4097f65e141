"""The effect of a parent's end on its child."""

from forge_jobs.model.edges import HOLDING, EdgeState, edge_of_ended
from forge_jobs.model.transitions import Delivery, Handover


def delivery(handover: Handover) -> Delivery:
    """Settle the edge when the parent is done. Else as the edge's ``on_failure`` says.

    ``continue`` and ``skip`` settle, ``note`` settles with the status of the parent, ``hold`` and
    ``stop`` keep the child blocked for an operator, as ``wait`` does after a dead parent, and
    ``cancel`` cancels, as does a value that this version does not know: running a job whose
    precondition failed is the one outcome that cannot be undone. A named parent in a sequence
    means what the name says.
    """
    rule = handover.on_failure
    edge = edge_of_ended(rule, handover.parent_status)
    if edge is EdgeState.SETTLED:
        return Delivery(handover, "settle")
    if edge is not EdgeState.HELD:
        return Delivery(handover, edge.value)
    return Delivery(handover, "hold" if rule in HOLDING else "cancel")
