"""The explanation of a job that is in an outbox of the database."""

import pytest

from forge_jobs.errors import NotFound
from forge_jobs.model.ids import new_job_id
from forge_jobs.operating.access import Access, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.policy.explanations import Reason
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.protocols.letters import HasOutbox
from tests.support.outboxes import write_down
from tests.web.conftest import ADA

pytestmark = pytest.mark.anyio


async def test_a_job_of_an_outbox_says_whether_it_waits_or_why_it_was_refused(
    storage: Storage,
) -> None:
    async with Operator(storage, ADA) as operator:
        if not isinstance(storage.jobs, HasOutbox):
            with pytest.raises(NotFound):
                await operator.explain_job(new_job_id())
            return
        aside, waits = await write_down(storage, "billing", 2, "Conflict: the id is taken")
        found = await operator.explain_job(aside)
        assert (found.reason, found.job_id) == (Reason.SET_ASIDE, aside)
        assert found.text == (
            "not stored: mail.send for queue 'mail' is set aside in the outbox for 'billing': "
            "Conflict: the id is taken"
        )
        assert found.help == f"forge-jobs outbox retry billing {aside}"
        found = await operator.explain_job(waits)
        assert (found.reason, found.help) == (
            Reason.NOT_RELAYED,
            "forge-jobs outbox list billing",
        )
        assert found.text.startswith("not yet relayed: mail.send for queue 'mail' waits in the")
        assert found.since is not None
        with pytest.raises(NotFound):
            await operator.explain_job(new_job_id())


async def test_who_may_not_see_outboxes_or_payloads_reads_less(sqlite_storage: Storage) -> None:
    [aside] = await write_down(sqlite_storage, "billing", 1, "Conflict: card 4711")
    async with Operator(
        sqlite_storage, Actor(name="eve", access=Access(payloads=False))
    ) as operator:
        assert "4711" not in (await operator.explain_job(aside)).text
    some = Actor(name="eve", access=Access(queues=frozenset({"mail"})))
    async with Operator(sqlite_storage, some) as operator:
        with pytest.raises(NotFound):
            await operator.explain_job(aside)
