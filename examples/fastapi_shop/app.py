"""A shop on FastAPI. An order and the receipt are one transaction. The job is asked for over HTTP.

The application and the jobs share one database, on SQLite or PostgreSQL:

    export FORGE_STORAGE_URL=sqlite:///shop.db DATABASE_URL=sqlite+aiosqlite:///shop.db
    uvicorn app:app                              # enqueues only
    forge-jobs worker jobs:handlers --queues mail=4

For a small deployment the web process can run the jobs too: WORKER_IN_WEB=1 uvicorn app:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from jobs import handlers, send_receipt
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from forge_jobs import (
    InvalidInput,
    JobClient,
    JobNotSuccessful,
    NotFound,
    QueueRuntime,
    ResultTimeout,
    open_storage,
)

engine = create_async_engine(os.environ["DATABASE_URL"])


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    address: Mapped[str]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the store once per process. Leaving the block stops the worker, then the client."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.dispose)
        storage = await stack.enter_async_context(
            await open_storage(os.environ["FORGE_STORAGE_URL"])
        )
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        app.state.client = await stack.enter_async_context(JobClient(storage, handlers))
        if os.environ.get("WORKER_IN_WEB") == "1":
            runtime = QueueRuntime(storage, handlers).with_queues(mail=4)
            await stack.enter_async_context(runtime.start())
        yield


app = FastAPI(lifespan=lifespan)


async def transaction() -> AsyncIterator[AsyncSession]:
    """Commit the request's session when the endpoint returns, roll back when the endpoint
    raises."""
    async with AsyncSession(engine) as session, session.begin():
        yield session


def job_client(request: Request) -> JobClient:
    client: JobClient = request.app.state.client
    return client


# "function": the commit comes before the answer, so a client that has the answer finds the order.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]
Client = Annotated[JobClient, Depends(job_client)]


class NewOrder(BaseModel):
    address: str
    stock: int = 1


@app.post("/orders", status_code=202)
async def place_order(new: NewOrder, session: Transaction, client: Client) -> dict[str, Any]:
    """Store the order, and the receipt as a job in the same transaction."""
    order = Order(address=new.address)
    session.add(order)
    await session.flush()
    outcome = await client.enqueue(send_receipt.request(order.id, new.address), connection=session)
    if new.stock == 0:
        raise HTTPException(409, "sold out")  # neither the order nor the job is stored
    return {"order": order.id, "job": outcome.job_id}


@app.get("/jobs/{job_id}")
async def look_at_job(
    job_id: str, client: Client, wait: Annotated[float, Query(ge=0, le=30)] = 0
) -> dict[str, Any]:
    """Answer the status of a job, with the result or the error once the job has ended.

    ``?wait=10`` answers as soon as the job has ended, after ten seconds at the latest.
    """
    try:
        return {"status": "done", "result": await client.result(job_id, timeout=wait)}
    except InvalidInput as error:
        raise HTTPException(422, str(error)) from None
    except NotFound:
        raise HTTPException(404, f"there is no job {job_id}") from None
    except JobNotSuccessful as error:
        return {"status": "ended", "error": error.message}
    except ResultTimeout:
        job = await client.get(job_id)
        return {"status": job.status if job else "deleted"}
