"""The routes of all pages."""

from starlette.routing import Route

from forge_jobs.web.pages.acting import act_page
from forge_jobs.web.pages.assets import ASSETS
from forge_jobs.web.pages.audit import action_page, audit_page
from forge_jobs.web.pages.cron import cron_page, schedule_page
from forge_jobs.web.pages.errors import error_page, errors_page
from forge_jobs.web.pages.fleet import limits_page, pod_page, pods_page, store_page
from forge_jobs.web.pages.frame import Source, page
from forge_jobs.web.pages.jobs import job_page, jobs_page
from forge_jobs.web.pages.overview import overview_page
from forge_jobs.web.pages.queues import queue_page, queues_page


def page_routes(source: Source) -> list[Route]:
    """Return the routes of the pages and of their files."""
    return [
        ASSETS,
        page(source, "/", overview_page),
        page(source, "/jobs", jobs_page),
        page(source, "/jobs/{job_id}", job_page),
        page(source, "/errors", errors_page),
        page(source, "/errors/{queue}/{group}", error_page),
        page(source, "/queues", queues_page),
        page(source, "/queues/{name}", queue_page),
        page(source, "/pods", pods_page),
        page(source, "/pods/{host_id}", pod_page),
        page(source, "/cron", cron_page),
        page(source, "/cron/{name}", schedule_page),
        page(source, "/limits", limits_page),
        page(source, "/store", store_page),
        page(source, "/audit", audit_page),
        page(source, "/audit/{action_id}", action_page),
        page(source, "/act/{operation}", act_page, ("GET", "POST")),
    ]
