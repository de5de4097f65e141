"""A live view of jobs that talk: ``python live_view.py 3``.

A worker and a viewer in one program. The viewer knows the jobs only by the store, so it may as well
run in a web server and send each line to a browser.
"""

import asyncio
import os
import sys

import anyio

from forge_jobs import HandlerRegistry, JobClient, JobContext, QueueRuntime, open_storage

handlers = HandlerRegistry()
SENTENCE = ["Let", "me", "think", "about", "that"]


@handlers.job("answer", queue="chat")
async def answer(ctx: JobContext, question: str) -> str:
    said: list[str] = []
    for number, word in enumerate(SENTENCE, 1):
        said.append(word)
        ctx.progress.set(number, len(SENTENCE), " ".join(said))
        ctx.log.info("said %s", word)
        await anyio.sleep(0.3)  # as long as a model thinks
    return f"{question} Yes."


async def view(client: JobClient, job_id: str, question: str) -> None:
    async for state in client.watch(job_id):
        if state.progress is not None and not state.is_final:
            print(f"{question} ... {state.progress.message}", flush=True)
    print(f"{question} [{state.status}] {await client.result(job_id, timeout=10)}", flush=True)


async def main(count: int) -> None:
    url = os.environ.get("FORGE_STORAGE_URL", "sqlite:///chat.db")
    async with (
        await open_storage(url) as storage,
        JobClient(storage, handlers) as client,
        QueueRuntime(storage, handlers).with_queues(chat=5).start(),
    ):
        questions = [f"Question {number}?" for number in range(1, count + 1)]
        outcomes = await client.enqueue_many([answer.request(each) for each in questions])
        views = (
            view(client, outcome.job_id, question)
            for outcome, question in zip(outcomes, questions, strict=True)
        )
        await asyncio.gather(*views)


asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
