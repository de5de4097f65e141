"""Requests whose fields scripts read by their place: one list of the fields for Python and Lua.

A script writes ``fields[TEMPLATE.kind]``. When the script is put together the place takes the place
of the name, so a name costs nothing at run time. An unknown name is an error then.
"""

import re

import msgspec


class EndFields(msgspec.Struct, frozen=True, array_like=True):
    """A claim to end. ``END`` in scripts.

    :param outcome: the number of its outcome among those of the request, from 1
    :param host: the pod of the claim, False for the pod that the request names
    """

    id: str
    token: int
    outcome: int
    host: str | bool = False


class EnqueueRequest(msgspec.Struct, frozen=True, array_like=True):
    """The jobs of one queue to store. ``ENQUEUE`` in scripts, explained in ``storing.lua``."""

    queue: str
    defaults: str
    locators: object
    jobs: object
    expected: object
    names: object
    marks: object
    links: object
    templates: object


class JobFields(msgspec.Struct, frozen=True, array_like=True):
    """A job to store. ``JOB`` in scripts. False for what is not set, and a tail may be left out.

    :param template: the number of the job's template
    :param parents: the jobs that the job waits for, and the edges to them, in turn
    :param permit: see ``permits.lua``
    :param sequence: the failure policy and the key, see ``sequences.lua``
    :param struck: the mark of a strike, and the error record of a job that the strike cancels
    """

    id: str
    payload: str
    template: int
    key: object = False
    mode: object = False
    fingerprint: object = False
    parents: object = False
    window: object = False
    at_most: object = False
    permit: object = False
    sequence: object = False
    struck: object = False


class TemplateFields(msgspec.Struct, frozen=True, array_like=True):
    """The values that jobs of one call share. ``TEMPLATE`` in scripts. See :class:`JobFields`."""

    kind: str
    doc: str
    priority: int
    run_at: object
    delay: object
    expires: object
    tags: object
    schedule: object
    result_ttl: object


class DemandFields(msgspec.Struct, frozen=True, array_like=True):
    """The jobs that a claim asks for. ``DEMAND`` in scripts.

    :param room: bytes of payload
    :param passed: kinds that the pod knows to be known elsewhere
    :param goes_on: the step follows another one of the same claim
    """

    host: str
    epoch: str
    workers: object
    limit: int
    kinds: object
    room: int
    passed: object
    goes_on: bool


class ActionFields(msgspec.Struct, frozen=True, array_like=True):
    """A step of an action in one queue. ``ACTION`` in scripts, see ``stepping.lua``.

    :param cursor: the step goes on from there
    :param to: the cursor after the step. "": all jobs of the queue are visited
    :param kept_for: seconds for which the jobs of the action are known
    """

    id: str
    cursor: str
    to: str
    kept_for: int


class VisitFields(msgspec.Struct, frozen=True, array_like=True):
    """Jobs that an operator's verb visits. ``VISIT`` in scripts.

    :param filter: as :func:`filter_parts` makes one, False for any job
    :param refused: the verb's row of ``REFUSED``
    :param plans: those of a requeue
    :param step: of an action, as :class:`ActionFields`. False for none
    :param seen: hashes of texts by job, False where the filter says nothing of texts
    """

    filter: object
    ids: object
    refused: object
    plans: object = False
    step: object = False
    seen: object = False


_REQUESTS: dict[str, type[msgspec.Struct]] = {
    "ACTION": ActionFields,
    "DEMAND": DemandFields,
    "END": EndFields,
    "ENQUEUE": EnqueueRequest,
    "JOB": JobFields,
    "TEMPLATE": TemplateFields,
    "VISIT": VisitFields,
}
_PLACES = {
    f"{name}.{field}": str(place)
    for name, request in _REQUESTS.items()
    for place, field in enumerate(request.__struct_fields__, 1)
}
_NAMED = re.compile(rf"\b(?:{'|'.join(_REQUESTS)})\.\w+")


def with_places(lua: str) -> str:
    """Return the text of a script with the places of fields for their names.

    :raises KeyError: a request has no field of that name
    """
    return _NAMED.sub(lambda found: _PLACES[found[0]], lua)
