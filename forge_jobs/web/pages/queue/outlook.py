"""The form of a queue that says what other numbers would do."""

from typing import Any

from forge_jobs.errors import InvalidInput
from forge_jobs.model.names import command_line
from forge_jobs.model.queues import QueueState
from forge_jobs.web.pages.frame import Visit

FIELDS = ("max_workers", "arrivals")
"""Parameters of the address."""


async def outlook_of(visit: Visit, state: QueueState) -> dict[str, Any]:
    """Return the form, and the outlook where the address has numbers."""
    most = state.settings.max_workers
    typed = {name: visit.parameter(name).strip()[:20] for name in FIELDS}
    values: dict[str, Any] = {
        "max_workers": typed["max_workers"] or str(most),
        "arrivals": typed["arrivals"] or "1",
        "problem": None,
        "found": None,
        "wanted": None,
        "command": "",
    }
    if not any(typed.values()):
        return values
    name = state.name
    try:
        workers = _number("max_workers", values["max_workers"], int)
        arrivals = _number("arrivals", values["arrivals"], float)
        values["found"] = await visit.operator.what_if(name, max_workers=workers, arrivals=arrivals)
    except InvalidInput as error:
        values["problem"] = error
        return values
    values["wanted"] = workers if workers != most else None
    values["command"] = command_line(
        "what-if",
        name,
        options=("--max-workers", str(workers), "--arrivals", f"{arrivals:g}"),
    )
    return values


def _number(name: str, text: str, form: Any) -> Any:
    try:
        return form(text)
    except ValueError:
        raise InvalidInput(name, f"is {text!r}", "give a number") from None
