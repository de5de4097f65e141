"""The demo with the dashboard beside, and drills for the visitor."""

from collections.abc import Callable

import anyio

from forge_jobs.demo.crew import two_workers
from forge_jobs.demo.drills import QUEUES as QUEUES_OF_DRILLS
from forge_jobs.demo.drills import STORY, Drills, set_back
from forge_jobs.demo.play import QUEUES, Plan, Play, clear
from forge_jobs.demo.summary import Summary
from forge_jobs.demo.view import View
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.alone.server import WebOptions, serving_beside


async def play_with_dashboard(
    storage: Storage,
    plan: Plan,
    view: View,
    stopped: anyio.Event,
    *,
    url: str,
    options: WebOptions,
    tell: Callable[[str], None],
    tell_summary: Callable[[Summary], None],
) -> Summary:
    """Play, and serve the dashboard with the drills until ``stopped``.

    :param url: of the store, for the workers
    :param tell: hears of what happens before and behind the play
    :raises ConfigError: the port cannot be used
    """
    queues = (*QUEUES, *QUEUES_OF_DRILLS)
    say = tell

    def say_now(text: str) -> None:
        say(text)

    try:
        await clear(storage, queues)
        await set_back(storage)
        with two_workers(url, plan.folder, has_drills=True) as members:
            async with (
                serving_beside(storage, options) as address,
                anyio.create_task_group() as group,
            ):
                tell(f"The dashboard: {address}\n\n{STORY}\n")
                group.start_soon(Drills(storage, plan.folder, say_now).run)
                say = view.say
                with view:
                    summary = await Play(storage, plan, members, view).run(stopped)
                say = tell
                if not stopped.is_set():
                    tell_summary(summary)
                    tell(f"The dashboard goes on until Ctrl-C: {address}")
                await stopped.wait()
                for member in members:
                    member.ask_to_stop()
                group.cancel_scope.cancel()
            return summary
    finally:
        await clear(storage, queues)
        await set_back(storage)
