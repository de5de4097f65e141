"""Counts calls of functions, for tests that hold a cost without a clock."""

from pathlib import Path
from types import FrameType
from typing import Any

import forge_jobs

_OURS = str(Path(forge_jobs.__file__).parent)


class Calls:
    """A function for ``sys.setprofile``. Counts the calls of this thread into and from our modules.

    A coroutine that goes on after a wait counts as called again.
    """

    def __init__(self) -> None:
        self.count = 0
        self._ours: dict[str, bool] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            path = frame.f_code.co_filename
            ours = self._ours.get(path)
            if ours is None:
                ours = self._ours[path] = path.startswith(_OURS)
            self.count += ours
