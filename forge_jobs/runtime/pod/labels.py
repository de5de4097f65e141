"""Labels: the names of pods for people."""

from ulid import ULID

from forge_jobs.model.ids import HostId
from forge_jobs.model.names import check_name

_HEX_DIGITS = 4


def pod_label(host_id: HostId, *, prefix: str = "", version: str = "", worker_id: str = "") -> str:
    """Return the label ``{prefix}-worker-{version}-{id}`` of a pod, "" without a prefix and an id.

    A label is for people only and need not be unique. A ``host_id`` is.

    :param prefix, version: left out of the label when empty
    :param worker_id: the last part, by default the last four hex digits of ``host_id``
    :raises InvalidInput: the label would not be a name, see :mod:`forge_jobs.model.names`
    """
    if not prefix and not worker_id:
        return ""
    # The first digits of a ULID are its time, the same for pods that boot together.
    last = worker_id or ULID.from_str(host_id).hex[-_HEX_DIGITS:].lower()
    parts = (prefix, "worker", version, last)
    return check_name("label", "-".join(part for part in parts if part))
