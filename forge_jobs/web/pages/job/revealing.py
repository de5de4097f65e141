"""The page that shows the secrets of a job, after a question: the answer leaves a record."""

import shlex

from forge_jobs.operating.access import REVEAL_JOB
from forge_jobs.web.pages.forms.elsewhere import curl
from forge_jobs.web.pages.forms.sending import form_of
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.words import pretty


async def reveal_page(visit: Visit) -> Shown:
    """Ask for the reason, or show what is hidden elsewhere."""
    visit.actor.act(REVEAL_JOB)
    job = await visit.operator.get_job(visit.name("job_id"))
    command = shlex.join(["forge-jobs", "jobs", "reveal", job.id])
    if visit.request.method != "POST":
        same = (
            command,
            curl(visit, "POST", link("", "jobs", job.id, "reveal")),
            f"await operator.reveal_job({job.id!r})",
        )
        asking = {"job": job, "revealed": None, "same": same}
        return Shown(template="reveal.html", title="Reveal", commands=(command,), values=asking)
    typed = await form_of(visit.request)
    reason = typed.get("reason", "").replace("\0", "").strip()
    revealed = await visit.operator.reveal_job(job.id, reason=reason)
    values = {
        "job": job,
        "revealed": revealed,
        "payload": pretty(revealed.payload),
        "result": None if revealed.result is None else pretty(revealed.result),
    }
    return Shown(template="reveal.html", title="Revealed", commands=(command,), values=values)
