"""The HTTP API and the dashboard: an ASGI application for any host, and alone on uvicorn."""

try:
    import starlette as _starlette  # noqa: F401
except ImportError as error:
    raise ImportError(
        "forge_jobs.web needs Starlette; install it by pip install 'forge-jobs[web]'"
    ) from error

from forge_jobs.operating.access import Access as Access
from forge_jobs.operating.access import Actor as Actor
from forge_jobs.web.application import dashboard as dashboard

__all__ = ["Access", "Actor", "dashboard"]
