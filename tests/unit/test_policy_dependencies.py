"""Effects of the end of a parent on a child."""

import pytest

from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.transitions import Handover
from forge_jobs.policy.dependencies import delivery


@pytest.mark.parametrize(
    ("parent", "on_failure", "action"),
    [
        (JobStatus.DONE, "cancel", "settle"),
        (JobStatus.DONE, "continue", "settle"),
        (JobStatus.DONE, "hold", "settle"),
        (JobStatus.DEAD, "cancel", "cancel"),
        (JobStatus.DEAD, "continue", "settle"),
        (JobStatus.DEAD, "hold", "hold"),
        (JobStatus.CANCELLED, "cancel", "cancel"),
        (JobStatus.CANCELLED, "continue", "settle"),
        (JobStatus.CANCELLED, "hold", "hold"),
        (JobStatus.DEAD, "of a later version", "cancel"),
    ],
)
def test_the_edge_decides_what_a_parent_without_success_means(
    parent: JobStatus, on_failure: str, action: str
) -> None:
    handover = Handover(
        id="1",
        queue="default",
        child_id=new_job_id(),
        parent_id=new_job_id(),
        parent_status=parent,
        on_failure=on_failure,
    )

    delivered = delivery(handover)

    assert (delivered.handover, delivered.action) == (handover, action)
