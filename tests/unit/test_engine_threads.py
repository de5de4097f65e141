"""Threads of the engine: work that raises is begun again."""

import threading

from forge_jobs.engine_threads import EngineThread


def test_work_that_raises_is_begun_again_until_it_returns() -> None:
    errors: list[BaseException] = [SystemExit(1), KeyboardInterrupt(), ValueError()]
    noticed: list[type[BaseException]] = []
    ended = threading.Event()

    async def work() -> None:
        if errors:
            raise errors.pop()

    thread = EngineThread(
        "tried", work, on_failure=lambda error: noticed.append(type(error)), on_end=ended.set
    )
    thread.start()
    assert ended.wait(10)
    thread.join(10)
    assert noticed == [ValueError, KeyboardInterrupt, SystemExit]
    assert not thread.is_alive


def test_a_thread_that_is_over_begins_nothing_again() -> None:
    def over(_: BaseException) -> None:
        thread.over()

    async def work() -> None:
        began.append(1)
        raise ValueError

    began: list[int] = []
    thread = EngineThread("tried", work, on_failure=over)
    thread.start()
    thread.join(10)
    assert (thread.is_alive, began) == (False, [1])
