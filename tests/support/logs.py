"""Log handlers that behave badly, as those of programs do."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class BlockingHandler(logging.Handler):
    """Blocks in the records that ``concerns`` picks until released.

    :param until: polled while the handler blocks. True releases the handler
    """

    def __init__(
        self,
        concerns: Callable[[logging.LogRecord], bool],
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self.blocks = threading.Event()
        """Set when the handler has blocked for the first time."""
        self._concerns = concerns
        self._until = until
        self._let_go = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Block, for half a minute at most."""
        if not self._concerns(record):
            return
        self.blocks.set()
        for _ in range(10_000):
            if self._until() or self._let_go.wait(0.003):
                return

    def let_go(self) -> None:
        """Block no more."""
        self._let_go.set()


class RaisingHandler(logging.Handler):
    """Raises at every record of the engine."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise, as a handler of a log server does that has gone."""
        if record.name.startswith("forge_jobs"):
            raise OSError("the log server has gone")


@contextmanager
def added(handler: logging.Handler) -> Iterator[None]:
    """The root logger with one more handler."""
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        if isinstance(handler, BlockingHandler):
            handler.let_go()
        root.removeHandler(handler)
