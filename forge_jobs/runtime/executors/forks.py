"""Processes that a handler forks without executing another program.

Such a process begins as a copy of the child: with the connection to the pod, with the signal
handlers of the child, and with the child's way back from the handler.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn


def let_go_in_forks(ours: Sequence[tuple[int, Any]], close: Callable[[], None]) -> None:
    """Have forked processes end by signals as usual, and use no connection.

    :param ours: signals, and the handlers of them that are not for forked processes
    :param close: closes the connection
    """

    before: dict[int, set[int | signal.Signals]] = {}
    signals = [signum for signum, _ in ours]

    def hold() -> None:
        # A signal that comes before the handlers are gone would be lost in the fork.
        before[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    def go_on() -> None:
        mask = before.pop(threading.get_ident(), None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def let_go() -> None:
        close()
        for signum, handler in ours:
            if signal.getsignal(signum) == handler:
                signal.signal(signum, signal.SIG_DFL)
        go_on()

    os.register_at_fork(before=hold, after_in_parent=go_on, after_in_child=let_go)


def end_fork(error: BaseException | None) -> NoReturn:
    """End a forked process whose code has come back from the handler.

    Only the process of the handler tells the pod how the run ended.

    :param error: by which the code came back
    """
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code or 0
        if not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code & 0xFF if isinstance(code, int) else 1)
