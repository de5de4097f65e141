"""Thumbnails in processes, on every store."""

import re
import sys
from pathlib import Path

import pytest

from tests.examples.running import copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_every_whole_picture_is_shrunk_and_the_broken_one_given_up(
    backend: str, tmp_path: Path
) -> None:
    url = await backends.url_of(backend, tmp_path)
    program = copied("image_batch", tmp_path, FORGE_STORAGE_URL=url)

    done = program.run(sys.executable, "batch.py")

    await backends.forget(backend, tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"broken.ppm is given up: .*broken.ppm is no whole PPM", done.stdout)
    assert re.search(r"8 thumbnails were made by [12] processes beside the worker", done.stdout)
    picture = (program.folder / "thumbnails" / "picture-3.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert not list((program.folder / "thumbnails").glob("*.png.*")), "no half of a picture is left"
