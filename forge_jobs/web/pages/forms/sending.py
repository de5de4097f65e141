"""The fields of a form that was sent."""

from urllib.parse import parse_qsl

from starlette.requests import Request

from forge_jobs.web.problems import Refused


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form that was sent.

    :raises Refused: the body is no form
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = await request.body()
    if content and media != "application/x-www-form-urlencoded":
        raise Refused(
            415, "wrong-media-type", "the body is no form", "use the page's own form",
            field="Content-Type",
        )  # fmt: skip
    return dict(
        parse_qsl(content.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100)
    )
