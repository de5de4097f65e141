"""The table of operations: what each is called on each surface, and which right it needs."""

from msgspec import Struct

from forge_jobs.operating.access import Right

API = "/api/v1"
"""Routes of operations are below this path."""


class Operation(Struct, frozen=True, kw_only=True):
    """An operation. On each surface exactly these exist.

    :param name: of the method of ``Operator``
    :param right: what the operation needs first. ``Operator`` checks that, and what else follows
        from the arguments
    :param command: the words behind ``forge-jobs``. Several operations may share a command
    :param http: method and route, below :data:`API`. Names of arguments are in braces
    :param page: the page that shows the operation, below the dashboard's root
    :param inverse: the operation that takes this one back. "" for reads, and where there is none
    """

    name: str
    right: Right
    command: str
    http: str
    page: str
    inverse: str = ""


def _read(name: str, command: str, route: str, page: str, right: Right = Right.READ) -> Operation:
    return Operation(name=name, right=right, command=command, http=f"GET {route}", page=page)


def _act(name: str, command: str, http: str, page: str, inverse: str = "") -> Operation:
    return Operation(
        name=name, right=Right.ACTIONS, command=command, http=http, page=page, inverse=inverse
    )


_JOB, _QUEUE, _CRON = "/jobs/{job_id}", "/queues/{name}", "/schedules/{name}"
_POD, _WORKFLOW = "/pods/{host_id}", "/workflows/{workflow_id}"
_ACTION, _OF_ACTION = "/actions/{action_id}", "/audit/{action_id}"
_LIMIT, _OF_LIMIT = "/concurrency/{queue}/{name}", "/limits/{queue}/{name}"
_SET = "set_concurrency"
_OF_JOB, _OF_QUEUE, _OF_CRON = "/jobs/{job_id}", "/queues/{name}", "/cron/{name}"

OPERATIONS: tuple[Operation, ...] = (
    _read("list_jobs", "jobs list", "/jobs", "/jobs"),
    _read("export_jobs", "export", "/jobs/export", "/jobs"),
    _read("job_hints", "jobs hints", "/jobs/hints", "/jobs"),
    _read("count_jobs", "jobs count", "/jobs/count", "/jobs"),
    _read("get_job", "jobs show", _JOB, _OF_JOB),
    _read("explain_job", "explain", f"{_JOB}/explain", _OF_JOB),
    _read("job_timeline", "jobs timeline", f"{_JOB}/timeline", _OF_JOB),
    _read("job_kin", "jobs kin", f"{_JOB}/kin", _OF_JOB),
    _read("job_log", "jobs logs", f"{_JOB}/logs", _OF_JOB, Right.PAYLOADS),
    _read("job_progress", "watch", f"{_JOB}/progress", _OF_JOB),
    _read("job_result", "jobs show", f"{_JOB}/result", _OF_JOB, Right.PAYLOADS),
    _act("enqueue", "enqueue", "POST /jobs", "/jobs/new"),
    _act("cancel_jobs", "jobs cancel", "POST /jobs/cancel", "/jobs", "restore_jobs"),
    _act("requeue_jobs", "jobs requeue", "POST /jobs/requeue", "/jobs"),
    _act("restore_jobs", "jobs restore", "POST /jobs/restore", "/jobs"),
    _act("delete_jobs", "jobs delete", "POST /jobs/delete", "/jobs"),
    _act("release_held_jobs", "jobs release-held", "POST /jobs/release-held", "/jobs"),
    _act("run_jobs_now", "jobs run-now", "POST /jobs/run-now", "/jobs"),
    _act("reveal_job", "jobs reveal", f"POST {_JOB}/reveal", f"{_OF_JOB}/reveal"),
    _act("edit_job", "jobs edit", f"PATCH {_JOB}", f"{_OF_JOB}/edit", "edit_job"),
    _read("preview_action", "jobs cancel", "/actions/preview", "/jobs"),
    _act("apply_action", "jobs cancel", "POST /actions", "/jobs", "undo_action"),
    _read("list_actions", "actions list", "/actions", "/audit"),
    _read("get_action", "actions show", "/actions/{action_id}", "/audit/{action_id}"),
    _read("action_jobs", "actions jobs", "/actions/{action_id}/jobs", "/audit/{action_id}"),
    _act("continue_action", "actions continue", f"POST {_ACTION}/continue", _OF_ACTION),
    _act("abort_action", "actions abort", f"POST {_ACTION}/abort", _OF_ACTION),
    _act("undo_action", "actions undo", f"POST {_ACTION}/undo", _OF_ACTION),
    _read("list_workflows", "workflows list", "/workflows", "/workflows"),
    _read("get_workflow", "workflows show", _WORKFLOW, _WORKFLOW),
    _act("cancel_workflow", "workflows cancel", f"POST {_WORKFLOW}/cancel", _WORKFLOW),
    _act("resume_workflow", "workflows resume", f"POST {_WORKFLOW}/resume", _WORKFLOW),
    _read("list_errors", "errors list", "/errors", "/errors"),
    _read("get_error", "errors show", "/errors/{queue}/{group}", "/errors/{queue}/{group}"),
    _read("list_kinds", "kinds", "/kinds", "/jobs/new"),
    _read("get_kind", "kinds", "/kinds/{kind}", "/jobs/new"),
    _read("queue_stats", "jobs stats", "/stats", "/queues"),
    _read("list_queues", "queues list", "/queues", "/queues"),
    _read("list_objectives", "queues objectives", "/objectives", "/queues"),
    _read("what_if", "what-if", f"{_QUEUE}/what-if", _OF_QUEUE),
    _read("desired_pods", "what-if", f"{_QUEUE}/desired-pods", _OF_QUEUE),
    _read("queue_history", "queues history", f"{_QUEUE}/history", _OF_QUEUE),
    _read("queue_settings", "queues settings", f"{_QUEUE}/settings", _OF_QUEUE),
    _act("set_queue", "queues set", f"PATCH {_QUEUE}", _OF_QUEUE, "set_queue"),
    _act("delete_queue", "queues delete", f"DELETE {_QUEUE}", _OF_QUEUE),
    _act("pause_queue", "queues pause", f"POST {_QUEUE}/pause", _OF_QUEUE, "resume_queue"),
    _act("resume_queue", "queues resume", f"POST {_QUEUE}/resume", _OF_QUEUE, "pause_queue"),
    _act("clean_up_queue", "queues clean-up", f"POST {_QUEUE}/clean-up", _OF_QUEUE),
    _act("end_cooldown", "queues end-cooldown", f"DELETE {_QUEUE}/cool-down", _OF_QUEUE),
    _read("series", "series", "/series", "/"),
    _read("board", "top", "/board", "/"),
    _read("list_pods", "pods list", "/pods", "/pods"),
    _read("pod_requests", "pods requests", f"{_POD}/requests", _POD),
    _act("quiet_pod", "pods quiet", f"POST {_POD}/quiet", _POD, "resume_pod"),
    _act("resume_pod", "pods resume", f"POST {_POD}/resume", _POD, "quiet_pod"),
    _act("stop_pod", "pods stop", f"POST {_POD}/stop", _POD),
    _act("show_stacks", "pods stacks", f"POST {_POD}/stacks", _POD),
    _read("list_schedules", "cron list", "/schedules", "/cron"),
    _act("add_schedule", "cron add", f"PUT {_CRON}", _OF_CRON, "delete_schedule"),
    _act("set_schedule", "cron set", f"PATCH {_CRON}", f"{_OF_CRON}/edit", "set_schedule"),
    _act("pause_schedule", "cron pause", f"POST {_CRON}/pause", _OF_CRON, "resume_schedule"),
    _act("resume_schedule", "cron resume", f"POST {_CRON}/resume", _OF_CRON, "pause_schedule"),
    _act("delete_schedule", "cron delete", f"DELETE {_CRON}", _OF_CRON, "add_schedule"),
    _read("schedule_fires", "cron fires", f"{_CRON}/fires", _OF_CRON),
    _act("trigger_schedule", "cron trigger", f"POST {_CRON}/trigger", _OF_CRON),
    _read("list_limits", "limits list", "/limits", "/limits"),
    _act("set_limit", "limits set", "PUT /limits/{name}", "/limits", "set_limit"),
    _act("delete_limit", "limits delete", "DELETE /limits/{name}", "/limits", "set_limit"),
    _act("drain_limit", "limits drain", "POST /limits/{name}/drain", "/limits"),
    _read("list_concurrency", "limits concurrency", "/concurrency", "/limits"),
    _read("get_concurrency", "limits show", _LIMIT, _OF_LIMIT),
    _act("set_concurrency", "limits set-concurrency", f"PUT {_LIMIT}", _OF_LIMIT, _SET),
    _act("delete_concurrency", "limits delete-concurrency", f"DELETE {_LIMIT}", _OF_LIMIT, _SET),
    _read("list_strikes", "strikes list", "/strikes", "/limits"),
    _read("preview_strike", "strikes add", "/strikes/preview", "/limits"),
    _act("add_strike", "strikes add", "PUT /strikes/{name}", "/limits", "lift_strike"),
    _act("lift_strike", "strikes lift", "DELETE /strikes/{name}", "/limits", "add_strike"),
    _read("outbox_state", "outbox state", "/outbox", "/store/outbox"),
    _read("list_outbox", "outbox list", "/outbox/{name}", "/store/outbox/{name}"),
    _act("retry_outbox", "outbox retry", "POST /outbox/{name}/retry", "/store/outbox/{name}"),
    _act("discard_outbox", "outbox discard", "POST /outbox/{name}/discard", "/store/outbox/{name}"),
    _read("problems", "problems", "/problems", "/"),
    _read("doctor", "doctor", "/doctor", "/store"),
    _read("store", "store", "/store", "/store"),
    _read("me", "me", "/me", "/", Right.NONE),
)

BY_NAME = {operation.name: operation for operation in OPERATIONS}
