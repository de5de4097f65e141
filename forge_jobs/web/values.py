"""Words and texts that the API and the pages share."""

import difflib
import hashlib
from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a wrong one is most like."""
    return next(iter(difflib.get_close_matches(name[:100], list(known), n=1, cutoff=0.6)), None)


def tagged(
    request: Request, body: bytes, media_type: str, *, cache: str = "private, no-cache"
) -> Response:
    """Return the body with an ETag, or 304 when the caller has the same body already."""
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    if request.method not in ("GET", "HEAD"):
        # What a request has done, or has revealed, is kept by no cache.
        return Response(body, headers={"Cache-Control": "no-store"}, media_type=media_type)
    headers = {"ETag": etag, "Cache-Control": cache}
    known = request.headers.get("if-none-match", "")
    given = [each.strip().removeprefix("W/") for each in known.split(",")]
    if etag in given or given == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media_type)
