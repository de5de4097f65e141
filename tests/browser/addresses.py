"""The addresses of the pages that Chromium opens."""

from collections.abc import Mapping

from forge_jobs.clock import SystemClock, from_us


def pages_of(
    jobs: Mapping[str, str], pod: str, actions: Mapping[str, str], groups: Mapping[str, str]
) -> dict[str, str]:
    """Return the pages of a scene by name.

    :param jobs: ids of jobs by what they show
    :param actions: ids of records by the verb
    :param groups: groups of errors by queue
    """
    minute = from_us(SystemClock().time_us()).strftime("%Y-%m-%dT%H:%MZ")
    return {
        "overview": "/",
        "overview-month": "/?over=30d&compare=week",
        "overview-then": f"/?at={minute}",
        "queues-then": f"/queues?at={minute}",
        "pods-then": f"/pods?at={minute}",
        "jobs": "/jobs",
        "jobs-columns": "/jobs?columns=kind,cause,priority,enqueued,due,started,finished,pod,tags",
        "jobs-none": "/jobs?q=queue:none",
        "jobs-wrong": "/jobs?q=satus:dead",
        "kinds": "/jobs/new",
        "enqueue": "/jobs/new?kind=gh.sync_issue",
        "enqueue-unheard": "/jobs/new?kind=mail.send",
        "enqueue-copy": f"/jobs/new?copy={jobs['done']}",
        **{f"job-{status}": f"/jobs/{job_id}" for status, job_id in jobs.items()},
        "edit": f"/jobs/{jobs['scheduled']}/edit",
        "edit-late": f"/jobs/{jobs['done']}/edit",
        "reveal": f"/jobs/{jobs['scheduled']}/reveal",
        "errors": "/errors",
        **{f"error-{queue}": f"/errors/{queue}/{group}" for queue, group in groups.items()},
        "queues": "/queues",
        "queue": "/queues/gh",
        "queue-what-if": "/queues/gh?max_workers=20&arrivals=1.5",
        "queue-paused": "/queues/mail",
        "pods": "/pods",
        "pod": f"/pods/{pod}",
        "cron": "/cron",
        "schedule": "/cron/nightly",
        "schedule-edit": "/cron/nightly/edit",
        "schedule-draft": "/cron/nightly?expression=0+6+*+*+1-5&timezone=Asia/Tokyo",
        "schedule-wrong": "/cron/nightly?expression=61+*+*+*+*&timezone=UTC",
        "limits": "/limits",
        "limits-found": "/limits?find=mail",
        "limit": "/limits/mail/hosts",
        "limit-key": "/limits/mail/hosts?key=acme",
        "workflows": "/workflows",
        "workflow": f"/workflows/{jobs['workflow']}",
        "store": "/store",
        "outboxes": "/store/outbox",
        "outbox": "/store/outbox/billing",
        "audit": "/audit",
        **{f"action-{verb}": f"/audit/{action_id}" for verb, action_id in actions.items()},
        "preview": "/act/requeue_jobs?q=status:dead,done",
        "preview-setting": "/act/set_queue?name=gh&max_workers=8",
        "preview-strike": "/act/add_strike?name=down&kind=mail.send&effect=cancel",
        "preview-pod": f"/act/show_stacks?name={pod}",
        "problem": "/queues/none",
    }
