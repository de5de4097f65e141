"""Opens a cluster whose server of the fleet's own records is silent, and checks the layout later.

The layout is noted with those records. Which programs work with it also stands beside the locators,
on every server, so that much is checked at once. A store that does not say so there is not opened.
"""

import asyncio

from forge_jobs.errors import NotFound, SchemaMismatch, StorageRefused, Unavailable
from forge_jobs.reports import reporter
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.rights import check_rights_at
from forge_jobs.storage.redis.base.schema import check_noted, settle_schema
from forge_jobs.storage.redis.locators.moving import look
from forge_jobs.storage.wakeups import until_set

logger = reporter(__name__)

_AGAIN_AFTER_S = 0.5


class LateCheck:
    """Checks as soon as there is an answer."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._task: asyncio.Task[None] | None = None

    async def begin(self, error: Unavailable) -> None:
        """Check what can be checked without the fleet's records, and the rest when they answer.

        :param error: why they do not
        :raises Unavailable: nothing can be
        :raises SchemaMismatch: the store does not work with this program
        """
        db = self._db
        if not db.is_cluster or isinstance(error, StorageRefused):
            raise error
        stages = await look(db)
        noted = {number: stage.works_from for number, stage in stages.items() if stage.works_from}
        if not noted:
            raise error
        check_noted(max(noted.values()))
        await check_rights_at(db, db.keys.old_locators(next(iter(noted))))
        logger.warning(
            "opened without the records of pods, leader and schedules, whose server does not "
            "answer; they are checked when it does: %s",
            error,
        )
        self._task = asyncio.get_running_loop().create_task(self._check())
        db.at_close(self._end)

    async def _check(self) -> None:
        while True:
            await until_set(asyncio.Event(), _AGAIN_AFTER_S)
            try:
                await settle_schema(self._db, migrate=False, create=False)
            except (SchemaMismatch, NotFound) as error:
                self._db.known.problem = str(error)
                logger.error(
                    "this process makes no more calls to the store; mend the cause and "
                    "start the process again: %s",
                    error,
                )
            except Unavailable:
                continue
            return

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
