"""The routes of all pages."""

from starlette.routing import Route

from forge_jobs.web.pages.acting import act_page
from forge_jobs.web.pages.assets import ASSETS
from forge_jobs.web.pages.audit import action_page, audit_page
from forge_jobs.web.pages.cron.editing import edit_schedule_page
from forge_jobs.web.pages.cron.views import cron_page, schedule_page
from forge_jobs.web.pages.errors import error_page, errors_page
from forge_jobs.web.pages.fleet import pod_page, pods_page, store_page
from forge_jobs.web.pages.frame import View, page
from forge_jobs.web.pages.job.editing import edit_page
from forge_jobs.web.pages.job.enqueueing import enqueue_page
from forge_jobs.web.pages.job.revealing import reveal_page
from forge_jobs.web.pages.job.workflows import workflow_page, workflows_page
from forge_jobs.web.pages.jobs import job_page, jobs_page
from forge_jobs.web.pages.judged import Judge
from forge_jobs.web.pages.overview import overview_page
from forge_jobs.web.pages.queue.concurrency import concurrency_page
from forge_jobs.web.pages.queue.limits import limits_page
from forge_jobs.web.pages.queue.outboxes import outbox_page, outboxes_page
from forge_jobs.web.pages.queues import queue_page, queues_page
from forge_jobs.web.source import Source


def page_routes(source: Source) -> list[Route]:
    """Return the routes of the pages and of their files."""
    judge = Judge()
    return [
        ASSETS,
        page(source, judge, "/jobs/new", enqueue_page, ("GET", "POST")),
        *(page(source, judge, path, view) for path, view in _PAGES),
        page(source, judge, "/jobs/{job_id}/edit", edit_page, ("GET", "POST")),
        page(source, judge, "/jobs/{job_id}/reveal", reveal_page, ("GET", "POST")),
        page(source, judge, "/cron/{name}/edit", edit_schedule_page, ("GET", "POST")),
        page(source, judge, "/act/{operation}", act_page, ("GET", "POST")),
    ]


_PAGES: tuple[tuple[str, View], ...] = (
    ("/", overview_page),
    ("/jobs", jobs_page),
    ("/jobs/{job_id}", job_page),
    ("/errors", errors_page),
    ("/errors/{queue}/{group}", error_page),
    ("/queues", queues_page),
    ("/queues/{name}", queue_page),
    ("/pods", pods_page),
    ("/pods/{host_id}", pod_page),
    ("/cron", cron_page),
    ("/cron/{name}", schedule_page),
    ("/limits", limits_page),
    ("/limits/{queue}/{name}", concurrency_page),
    ("/workflows", workflows_page),
    ("/workflows/{workflow_id}", workflow_page),
    ("/store", store_page),
    ("/store/outbox", outboxes_page),
    ("/store/outbox/{name}", outbox_page),
    ("/audit", audit_page),
    ("/audit/{action_id}", action_page),
)
