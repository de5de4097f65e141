"""Commands that help a job that does not run. Explanations and the doctor name them."""

from forge_jobs.model.names import command_line


def resume_queue(queue: str) -> str:
    """Ends a pause, and a cool-down."""
    return command_line("queues resume", queue)


def set_max_workers(queue: str, count: int) -> str:
    """Gives a queue so many slots in the cluster."""
    return command_line("queues set", queue, options=("--max-workers", str(count)))


def set_anew(queue: str) -> str:
    """Writes the settings of a queue that cannot be read. What they are to be is the reader's."""
    return command_line("queues set", queue, options=("--help",))


def start_worker(queue: str) -> str:
    """Starts a pod that serves the queue."""
    return command_line("worker", "MODULE:ATTR", options=("--queues", queue))


def list_jobs(queue: str, status: str) -> str:
    """Shows the jobs of a queue in one status."""
    return command_line("jobs list", options=("--queue", queue, "--status", status))


def explain_job(job_id: str) -> str:
    """Says why a job does not run."""
    return f"forge-jobs explain {job_id}"


def lift_strike(name: str) -> str:
    """Lifts a strike, and makes the jobs due that it held."""
    return command_line("strikes lift", name)


def run_now(job_id: str) -> str:
    """Makes a job due now."""
    return f"forge-jobs jobs run-now {job_id}"


def cancel(job_id: str) -> str:
    """Cancels a waiting job, and asks the owner of a running one to stop."""
    return f"forge-jobs jobs cancel {job_id}"


def list_crashed(kind: str) -> str:
    """Shows the jobs of a kind whose process died."""
    return command_line("jobs list", options=("--kind", kind, "--cause", "crashed"))


def pause_queue(queue: str) -> str:
    """Lets no further job of a queue start. Running ones go on."""
    return command_line("queues pause", queue)


def trigger_schedule(name: str) -> str:
    """Makes the job of a schedule now, beside its occurrences."""
    return command_line("cron trigger", name)


def requeue(*job_ids: str) -> str:
    """Gives jobs all their attempts again."""
    return f"forge-jobs jobs requeue {' '.join(job_ids)}"


def resume_workflow(workflow_id: str) -> str:
    """Requeues the steps of a workflow that ended without success."""
    return f"forge-jobs workflows resume {workflow_id}"


def release_held(job_id: str) -> str:
    """Lets a job run without the parents that hold it."""
    return f"forge-jobs jobs release-held {job_id}"


def set_limit(queue: str, limit: str, at_most: int) -> str:
    """Lets so many jobs of each key of a limit run at once."""
    return command_line("limits set-concurrency", queue, limit, str(at_most))


def show_key(queue: str, limit: str, key: str) -> str:
    """Shows the jobs that run at a key of a limit, and those that wait there."""
    return command_line("limits show", queue, limit, options=("--key", key))


def list_outbox(name: str) -> str:
    """Shows the records of an outbox, those set aside first with the reason."""
    return command_line("outbox list", name)


def retry_outbox(name: str, job_id: str) -> str:
    """Relays a job of an outbox again that was set aside."""
    return command_line("outbox retry", name, job_id)


LIST_QUEUES = "forge-jobs queues list"
LIST_LIMITS = "forge-jobs limits list"
LIST_SCHEDULES = "forge-jobs cron list"
LOOK_AT_PODS = "forge-jobs pods"
EXAMINE = "forge-jobs doctor"
