"""The bench of requests to pods counts those that were in time."""

from datetime import timedelta

from bench.pod_requests import told
from forge_jobs.clock import EPOCH
from forge_jobs.model.ids import HostId
from forge_jobs.model.pod_requests import ANSWERED_WITHIN, PodRequest, PodVerb, RequestState


def request(heard_s: float | None, answered_s: float | None) -> PodRequest:
    def after(seconds: float | None) -> timedelta | None:
        return None if seconds is None else timedelta(seconds=seconds)

    heard, answered = after(heard_s), after(answered_s)
    return PodRequest(
        id="r",
        host_id=HostId("pod"),
        epoch="1",
        verb=PodVerb.STACKS,
        asked_by="",
        asked_at=EPOCH,
        until=EPOCH + ANSWERED_WITHIN,
        state=RequestState.UNANSWERED if answered is None else RequestState.ANSWERED,
        heard_at=None if heard is None else EPOCH + heard,
        answered_at=None if answered is None else EPOCH + answered,
    )


def test_late_and_missing_answers_are_not_in_time() -> None:
    asked = [request(0.5, 1.0), request(1.0, 5.0), request(1.5, 5.5), request(None, None)]
    assert told(asked) == (
        "4 requests: 2 there within 1 s (p50 1000, p99 1500, most 1500 ms), "
        "2 answered within 5 s (p50 5000, p99 5500, most 5500 ms)"
    )


def test_no_answer_has_no_times() -> None:
    assert told([request(None, None)]) == "1 requests: 0 there within 1 s, 0 answered within 5 s"
