"""Pictures of the pages for the manual: ``python -m tests.browser.pictures FOLDER``.

The data are those of the tests: a store with a past, and a scene at work. Small PNG files, 1,024
pixels wide, some 390 and some dark.
"""

import asyncio
import linecache
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, async_playwright

from forge_jobs.clock import ManualClock, SystemClock, from_us
from forge_jobs.operating.operator import Operator
from forge_jobs.web import dashboard
from tests.browser.conftest import ADA, served
from tests.support.backends import BACKENDS
from tests.web.past import MINUTES, PAUSED, Past
from tests.web.scene import playing, sync_issue

HANDLERS = "shop/handlers.py"
"""Where the handlers lie in the tracebacks of the pictures, on whichever machine these are made."""

WIDE, NARROW = 1024, 390
SCALE = 0.75
MOST_BYTES = 1_900_000
"""Of all pictures together."""


def move(handler: Any, file: str) -> None:
    """Let a handler's tracebacks name a file of this name, with the lines of the real one."""
    function = handler.__wrapped__
    lines = linecache.getlines(function.__code__.co_filename)
    linecache.cache[file] = (0, None, lines, file)
    function.__code__ = function.__code__.replace(co_filename=file)


@asynccontextmanager
async def at_work(folder: Path) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """Serve a store with a past, on which a pod works now. Names of jobs and the like beside."""
    move(sync_issue, HANDLERS)
    start = from_us(SystemClock().time_us()) - timedelta(minutes=MINUTES)
    clock = ManualClock(start)
    async with BACKENDS["sqlite"](folder, clock) as storage:
        await Past(storage, clock).live()
    async with (
        BACKENDS["sqlite"](folder, None) as storage,
        playing(storage) as scene,
        served(dashboard(storage, authorize=lambda _: ADA, hosts=())) as address,
    ):
        async with Operator(storage, ADA) as operator:
            action = (await operator.list_actions()).actions[0].id
            groups = (await operator.list_errors()).groups
        group = next(each.id for each in groups if each.queue == "gh")
        yield address, {**scene.jobs, "pod": scene.pod, "action": action, "group": group}


_PAGES = (
    "overview jobs job enqueue edit errors error queues queue pods pod cron schedule limits store "
    "audit action preview"
)
_MORE = "looking-back overview-dark overview-narrow queue-dark queue-narrow"
NAMES = frozenset(f"{_PAGES} {_MORE}".split())
"""Names of all pictures."""


def pages_of(names: Mapping[str, str]) -> dict[str, str]:
    """Return the pages by name."""
    return {
        "overview": "/",
        "jobs": "/jobs?q=queue:gh",
        "job": f"/jobs/{names['dead']}",
        "enqueue": "/jobs/new?kind=gh.sync_issue",
        "edit": f"/jobs/{names['scheduled']}/edit",
        "errors": "/errors",
        "error": f"/errors/gh/{names['group']}",
        "queues": "/queues",
        "queue": "/queues/gh",
        "pods": "/pods",
        "pod": f"/pods/{names['pod']}",
        "cron": "/cron",
        "schedule": "/cron/nightly",
        "limits": "/limits",
        "store": "/store",
        "audit": "/audit",
        "action": f"/audit/{names['action']}",
        "preview": "/act/requeue_jobs?q=status:dead",
    }


async def shoot(
    browser: Browser,
    address: str,
    path: str,
    target: Path,
    *,
    width: int = WIDE,
    dark: bool = False,
) -> None:
    """Write a picture of a page."""
    context = await browser.new_context(
        viewport={"width": width, "height": 700},
        color_scheme="dark" if dark else "light",
        device_scale_factor=SCALE,
    )
    page = await context.new_page()
    await page.goto(address + path)
    await page.wait_for_load_state("networkidle")
    height = min(await page.evaluate("document.documentElement.scrollHeight"), 1150)
    await page.set_viewport_size({"width": width, "height": height})
    await page.screenshot(path=target)
    await context.close()


async def shoot_all(folder: Path) -> None:
    """Write all pictures."""
    program = os.environ.get("FORGE_TEST_CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as store:
        async with at_work(Path(store)) as (address, names), async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=program, args=["--no-sandbox"]
            )
            for name, path in pages_of(names).items():
                await shoot(browser, address, path, folder / f"{name}.png")
            then = from_us(SystemClock().time_us()) - timedelta(minutes=MINUTES - PAUSED - 2)
            path = f"/?at={then:%Y-%m-%dT%H:%MZ}"
            await shoot(browser, address, path, folder / "looking-back.png")
            for name in ("overview", "queue"):
                path = pages_of(names)[name]
                await shoot(browser, address, path, folder / f"{name}-dark.png", dark=True)
                await shoot(browser, address, path, folder / f"{name}-narrow.png", width=NARROW)
            await browser.close()


def main(folder: Path) -> int:
    """Write all pictures. Return the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(shoot_all(folder))
    size = sum(each.stat().st_size for each in folder.glob("*.png"))
    print(f"{size:,} bytes in {folder}")
    return 0 if size <= MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
