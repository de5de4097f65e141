"""Requests to a pod: what an operator asks of one pod, carried by the pod's beat."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import HostId

ANSWERED_WITHIN = timedelta(seconds=5)
"""A request without an answer for so long counts as unanswered. A pod that has not heard of the
request by then never will."""

REQUESTS_KEPT = timedelta(hours=1)
"""How long a request and the answer can be read."""

MOST_REQUESTS = 8
"""How often one pod can be asked within :data:`ANSWERED_WITHIN`, and how many of the pod's requests
are kept."""

MAX_ANSWER = 65_536
"""The most bytes of an answer, as UTF-8."""

MAX_ASKED_BY = 200


class PodVerb(StrEnum):
    """The verbs of requests to a pod."""

    QUIET = "quiet"
    """Take no new work. Running jobs go on, and the slots go to other pods."""
    RESUME = "resume"
    """Take work again."""
    STOP = "stop"
    """Drain and end, as after SIGTERM."""
    STACKS = "stacks"
    """Say where each running job and thread stands."""


class RequestState(StrEnum):
    """How far a request to a pod has come."""

    WAITING = "waiting"
    """The pod has not heard of the request yet."""
    HEARD = "heard"
    """The pod has taken the request and has not answered yet."""
    ANSWERED = "answered"
    UNANSWERED = "unanswered"
    """The time is over without an answer. With ``heard_at`` the pod may have acted all the same, or
    may still act. Without ``heard_at`` the pod never will."""


class PodRequest(Struct, frozen=True, kw_only=True):
    """A request to one registration of a pod.

    :param id: of the caller's choice, a ULID. A repeat with the same id asks nothing more
    :param epoch: of the pod's lease when the pod was asked. No other registration hears of this
    :param asked_by: the name of the person or program
    :param until: no pod hears of the request from then on
    :param heard_at: when the pod first took the request
    :param done: the pod did what was asked. False: the answer says why not
    :param answer: text for people. "" before there is one
    """

    id: str
    host_id: HostId
    epoch: str
    verb: PodVerb
    asked_by: str
    asked_at: datetime
    until: datetime
    state: RequestState
    heard_at: datetime | None = None
    answered_at: datetime | None = None
    done: bool = False
    answer: str = ""


def check_request(request_id: str, asked_by: str) -> None:
    """Refuse what no store keeps.

    :raises InvalidInput: an id that is empty or long, or a long name
    """
    if not request_id or len(request_id) > 40 or not request_id.isalnum():
        raise InvalidInput("request", "is no id of a request", "give a ULID")
    if len(asked_by) > MAX_ASKED_BY:
        raise InvalidInput(
            "asked_by", f"has {len(asked_by)} characters", f"give at most {MAX_ASKED_BY}"
        )


def check_answer(answer: str) -> None:
    """Refuse an answer that is too long.

    :raises InvalidInput: the answer has more than :data:`MAX_ANSWER` bytes
    """
    if (length := len(answer.encode())) > MAX_ANSWER:
        raise InvalidInput("answer", f"has {length} bytes", f"give at most {MAX_ANSWER}")
