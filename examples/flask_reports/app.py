"""Reports on Flask, with the blocking client. Any store will do:

    export FORGE_STORAGE_URL=sqlite:///reports.db
    flask --app app run                          # or gunicorn --workers 4 app:app
    forge-jobs worker jobs:handlers --queues reports=2

One client serves all threads. A forked worker of gunicorn opens another connection at the
first call.
"""

import os
from typing import Any

from flask import Flask, request
from jobs import build_report, handlers

from forge_jobs import (
    InvalidInput,
    JobNotSuccessful,
    NotFound,
    ResultTimeout,
    SyncJobClient,
    open_storage,
)

app = Flask(__name__)
client = SyncJobClient(lambda: open_storage(os.environ["FORGE_STORAGE_URL"]), handlers)

Answer = tuple[dict[str, Any], int]


@app.errorhandler(InvalidInput)
def refuse(error: InvalidInput) -> Answer:
    """Tell the caller which value is wrong, and what would be accepted."""
    return {"error": str(error)}, 422


@app.post("/reports/<day>")
def order_report(day: str) -> Answer:
    """Order the report of a day. While a report is on the way, a second request gets the same
    job."""
    outcome = client.enqueue(build_report.request(day), unique_key=f"report-{day}")
    return {"job": outcome.job_id, "new": not outcome.deduplicated}, 202


@app.get("/jobs/<job_id>")
def look_at_job(job_id: str) -> Answer:
    """Answer the result of a job. ``?wait=10`` waits for ten seconds at most."""
    wait = min(max(request.args.get("wait", 0.0, type=float), 0.0), 30.0)
    try:
        return {"result": client.result(job_id, timeout=wait)}, 200
    except ResultTimeout:
        return {"why": client.explain(job_id).text}, 202
    except JobNotSuccessful as error:
        return {"error": error.message}, 500
    except NotFound:
        return {"error": f"there is no job {job_id}"}, 404
