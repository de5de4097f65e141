"""Alembic's autogenerate beside our tables."""

from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, Table, Text
from sqlalchemy.ext.asyncio import create_async_engine

from forge_jobs.alembic import include_object
from forge_jobs.storage.protocols import Storage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", ["sqlite", "postgres"])]


def engine_url(url: str) -> str:
    if url.startswith("sqlite"):
        return url.partition("?")[0].replace("sqlite:", "sqlite+aiosqlite:")
    return url.replace("postgresql:", "postgresql+asyncpg:")


async def proposed(url: str, theirs: MetaData, **options: Any) -> list[Any]:
    """Return what autogenerate would write for a program with these tables."""
    engine = create_async_engine(engine_url(url))
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(
                lambda plain: compare_metadata(
                    MigrationContext.configure(plain, opts=options), theirs
                )
            )
    finally:
        await engine.dispose()


async def test_it_proposes_the_program_s_own_changes_alone(
    storage: Storage, url: str, tmp_path: Path
) -> None:
    theirs = MetaData()
    Table("invoices", theirs, Column("id", Integer, primary_key=True), Column("text", Text))
    assert len([one for one in await proposed(url, theirs) if one[0] == "remove_table"]) >= 15
    [only] = await proposed(url, theirs, include_object=include_object)
    assert (only[0], only[1].name) == ("add_table", "invoices")


async def test_a_table_of_theirs_is_looked_at_whatever_its_name(storage: Storage, url: str) -> None:
    theirs = MetaData()
    Table("forge_orders", theirs, Column("id", Integer, primary_key=True))
    [only] = await proposed(url, theirs, include_object=include_object)
    assert only[0] == "add_table"
