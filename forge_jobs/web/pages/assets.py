"""The files of the pages: styles, and scripts of others that are kept here."""

import functools
import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from forge_jobs.web.problems import Refused

_FOLDER = Path(__file__).parents[1] / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"

STATIC = "/static"


@functools.cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Return content, type and version of each file, by name."""
    found = {}
    for path in sorted(_FOLDER.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            stamp = hashlib.sha256(content).hexdigest()[:12]
            found[path.name] = content, _TYPES[path.suffix], stamp
    return found


def asset(root: str, name: str) -> str:
    """Return the address of a file, which changes with the content."""
    return f"{root}{STATIC}/{name}?v={_files()[name][2]}"


async def _serve(request: Request) -> Response:
    found = _files().get(request.path_params["name"])
    if found is None:
        raise Refused(404, "unknown-address", "there is no such file", "reload the page")
    content, media_type, stamp = found
    cache = _FOR_EVER if request.query_params.get("v") == stamp else "no-cache"
    return Response(content, headers={"Cache-Control": cache}, media_type=media_type)


ASSETS = Route(f"{STATIC}/{{name}}", _serve)
"""The route of all files. No caller is asked for."""
