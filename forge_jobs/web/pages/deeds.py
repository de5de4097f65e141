"""Actions as people see them: labels, consequences, and which are offered."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from forge_jobs.model.filters import REFUSED, Refusal
from forge_jobs.model.jobs import Hold, JobStatus
from forge_jobs.operating.access import Access

REASONS: Mapping[Refusal, str] = {
    Refusal.NOT_FOUND: "there is no such job",
    Refusal.RUNNING: "they run",
    Refusal.FINISHED: "they have ended",
    Refusal.WAITING: "they wait already, or for others",
    Refusal.KEY_TAKEN: "another active job has their unique key",
    Refusal.PARENT_FAILED: "a job before them is gone and had not succeeded",
    Refusal.CHILDREN_KNOW: "jobs after them went on without them, or ended with them",
    Refusal.EXPIRED: "they have expired meanwhile",
    Refusal.LOCKED: "an open transaction holds them",
    Refusal.SILENT: "a part of the store does not answer",
    Refusal.REFERENCED: "a foreign key or trigger of yours refuses",
}
"""Why jobs are left alone, in words."""


class Deed(Struct, frozen=True, kw_only=True):
    """An action with the words around it.

    :param operation: the name in the table of operations
    :param label: of the button
    :param verb: the key of the table of refusals. "" for what is no change of jobs
    :param past: what has happened to a job afterwards
    :param consequence: what follows, and whether there is a way back
    """

    operation: str
    label: str
    consequence: str
    verb: str = ""
    past: str = ""
    danger: bool = False


JOB_DEEDS = (
    Deed(
        operation="requeue_jobs",
        label="Requeue",
        verb="requeue",
        past="requeued",
        consequence="They get all their attempts again and are due now. Those that have not "
        "started can be cancelled.",
    ),
    Deed(
        operation="restore_jobs",
        label="Restore",
        verb="restore",
        past="restored",
        consequence="Cancelled jobs wait again with their old time and attempts, as if nobody had "
        "cancelled them. Refused where jobs after them know of the cancel.",
    ),
    Deed(
        operation="run_jobs_now",
        label="Run now",
        verb="run_now",
        past="made due",
        consequence="They are due at once, whatever their time or retry says. Attempts stay.",
    ),
    Deed(
        operation="release_held_jobs",
        label="Release",
        verb="release_held",
        past="released",
        consequence="They no longer wait for the unsuccessful jobs that hold them.",
    ),
    Deed(
        operation="cancel_jobs",
        label="Cancel",
        verb="cancel",
        past="cancelled",
        danger=True,
        consequence="Waiting jobs do not run. Running ones are asked to stop. Jobs that wait for "
        "them follow their own rule. Restore takes the cancel back.",
    ),
    Deed(
        operation="delete_jobs",
        label="Delete",
        verb="delete",
        past="deleted",
        danger=True,
        consequence="They are gone for good, with payload, result and errors.",
    ),
)

QUEUE_DEEDS = (
    Deed(
        operation="pause_queue",
        label="Pause",
        consequence="Running jobs finish, nothing new starts, jobs keep coming in. Resume ends it.",
    ),
    Deed(
        operation="resume_queue",
        label="Resume",
        consequence="Jobs of the queue start again. A cool-down ends too.",
    ),
    Deed(
        operation="end_cooldown",
        label="End cool-down",
        consequence="Jobs start again, and the throttles before are forgotten. A pause stays.",
    ),
    Deed(
        operation="clean_up_queue",
        label="Clean up",
        danger=True,
        consequence="Done and cancelled jobs go now, with payload and result, whatever their "
        "retention says. Dead ones stay. There is no undo: forge-jobs export keeps a copy.",
    ),
    Deed(
        operation="delete_queue",
        label="Delete",
        danger=True,
        consequence="Settings, pause and cool-down are forgotten. Refused while the queue has jobs "
        "or a live pod serves the queue.",
    ),
    Deed(
        operation="set_queue",
        label="Change",
        consequence="The new value stays over later deploys, until an operator changes the value.",
    ),
)

SCHEDULE_DEEDS = (
    Deed(
        operation="trigger_schedule",
        label="Trigger now",
        consequence="One job is enqueued now. The next occurrence stays.",
    ),
    Deed(
        operation="pause_schedule",
        label="Pause",
        consequence="The schedule makes no jobs until someone resumes the schedule.",
    ),
    Deed(
        operation="resume_schedule",
        label="Resume",
        consequence="The schedule fires again, from the next occurrence on.",
    ),
    Deed(
        operation="delete_schedule",
        label="Delete",
        danger=True,
        consequence="No occurrence fires, and a deploy does not bring the schedule back.",
    ),
    Deed(
        operation="set_schedule",
        label="Change",
        consequence="The new times count at once and stay over later deploys.",
    ),
)

LIMIT_DEEDS = (
    Deed(
        operation="set_limit",
        label="Change",
        consequence="The new size counts at once and stays over later deploys. Tokens that are "
        "missing stay missing. An undo is in the record.",
    ),
    Deed(
        operation="drain_limit",
        label="Drain",
        danger=True,
        consequence="All tokens are taken: jobs of this limit wait until tokens have come again.",
    ),
    Deed(
        operation="delete_limit",
        label="Delete",
        danger=True,
        consequence="Jobs of handlers that name the limit fail until a program declares the limit "
        "again, as each does when it starts. An undo is in the record.",
    ),
)

STRIKE_DEEDS = (
    Deed(
        operation="add_strike",
        label="Set strike",
        consequence="New jobs are judged when they are enqueued, and all before their run. A lift "
        "makes held jobs ready in their old places, and cancelled ones stay cancelled. An undo is "
        "in the record.",
    ),
    Deed(
        operation="lift_strike",
        label="Lift",
        consequence="Jobs that the strike holds are ready, in the order of their queues, and pods "
        "judge them by the other strikes. An undo is in the record.",
    ),
)

CONCURRENCY_DEEDS = (
    Deed(
        operation="set_concurrency",
        label="Change",
        consequence="The new number counts at once and stays over later deploys. A lower one stops "
        "no running job. An undo is in the record.",
    ),
    Deed(
        operation="delete_concurrency",
        label="Delete",
        danger=True,
        consequence="Any number of jobs of each key may run, until a program declares the limit "
        "again, as each does when it starts. An undo is in the record.",
    ),
)

OUTBOX_DEEDS = (
    Deed(
        operation="retry_outbox",
        label="Retry",
        consequence="The next pass of a relay sends them to their destination. What is refused "
        "again is set aside again.",
    ),
    Deed(
        operation="discard_outbox",
        label="Discard",
        danger=True,
        consequence="They are gone for good, and never stored on their destination. There is no "
        "undo.",
    ),
)

POD_DEEDS = (
    Deed(
        operation="show_stacks",
        label="Show stacks",
        consequence="The pod says where each running job and thread stands: functions, files and "
        "lines, no values. Nothing changes. The answer takes five seconds at most.",
    ),
    Deed(
        operation="quiet_pod",
        label="Quiet",
        consequence="The pod takes no new work. What runs there goes on, and the slots go to other "
        "pods. Resume ends that. Another process that follows the pod is not quiet.",
    ),
    Deed(
        operation="resume_pod",
        label="Resume",
        consequence="The pod takes work again, and gets its share of the slots.",
    ),
    Deed(
        operation="stop_pod",
        label="Stop",
        danger=True,
        consequence="The pod takes no new work and ends, as after SIGTERM. Jobs that still run "
        "after the grace are interrupted, and run again elsewhere. A service manager may start "
        "another process for it.",
    ),
)

ACTION_DEEDS = (
    Deed(
        operation="abort_action",
        label="Abort",
        danger=True,
        consequence="The action ends between two steps. What the steps before have changed stays.",
    ),
    Deed(
        operation="continue_action",
        label="Go on",
        consequence="The steps that are left are taken, each once, also beside another driver.",
    ),
    Deed(
        operation="undo_action",
        label="Undo",
        consequence="The value before is written back, as an action of its own. Refused when "
        "somebody has changed the value since. Cancelled jobs wait again with their old time and "
        "attempts, those left out that have gone on since.",
    ),
)

_ALL = (
    *JOB_DEEDS,
    *QUEUE_DEEDS,
    *SCHEDULE_DEEDS,
    *LIMIT_DEEDS,
    *STRIKE_DEEDS,
    *CONCURRENCY_DEEDS,
    *OUTBOX_DEEDS,
    *POD_DEEDS,
    *ACTION_DEEDS,
)

DEEDS = {deed.operation: deed for deed in _ALL}
"""The actions that have a preview page."""


def offered_for_jobs(access: Access, jobs: Iterable[tuple[JobStatus, Hold | None]]) -> list[Deed]:
    """Return the actions that at least one of the jobs would not refuse."""
    states = set(jobs)
    return [
        deed
        for deed in JOB_DEEDS
        if access.allows(deed.operation)
        and any(REFUSED[deed.verb].refusal(status, hold) is None for status, hold in states)
    ]


def allowed(access: Access, deeds: Iterable[Deed], names: Iterable[str]) -> list[Deed]:
    """Return those of the deeds that fit the moment and that the caller may do."""
    fitting = set(names)
    return [deed for deed in deeds if deed.operation in fitting and access.allows(deed.operation)]
