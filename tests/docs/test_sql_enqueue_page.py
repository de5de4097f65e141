"""The page about plain SQL: the statements run, and the table names all arguments."""

import re
from pathlib import Path

import pytest

from tests.support import backends
from tests.support.postgres import raw

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[2] / "docs" / "sql-enqueue.md").read_text(encoding="utf-8")


async def test_the_statements_of_the_page_run(tmp_path: Path) -> None:
    url = await backends.url_of("postgres", tmp_path)
    async with raw(url) as connection:
        for block in re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
            await connection.execute(block)
        await connection.execute("INSERT INTO parcels VALUES (7, 'new')")
        await connection.execute("UPDATE parcels SET state = 'sent'")
        rows = await connection.fetch("SELECT kind, payload FROM forge_jobs ORDER BY kind")
        arguments = await connection.fetchval(
            "SELECT proargnames FROM pg_proc WHERE proname = 'forge_enqueue'"
        )
    await backends.forget("postgres", tmp_path)
    assert [row["kind"] for row in rows] == ["mail.receipt", "parcel.sent", "report.daily"]
    assert rows[1]["payload"] == '{"id" : 7}'
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == arguments
