"""Sentry for forge_jobs: an event for each failed attempt, in the trace of who enqueued the job.

``HandlerRegistry(enqueue_middleware=[sending], middleware=[processing], on_error=report)``
"""

from collections.abc import AsyncIterator, Generator

import sentry_sdk

from forge_jobs import EnqueueOutcome, EnqueueRequest, JobContext, RunEnd


def sending(request: EnqueueRequest) -> Generator[EnqueueRequest, EnqueueOutcome, None]:
    headers = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
    sent = {name: text for name, text in headers.items() if text}
    yield request.options(trace={**request.trace, **sent})


async def processing(ctx: JobContext) -> AsyncIterator[None]:
    with sentry_sdk.isolation_scope():
        transaction = sentry_sdk.continue_trace(dict(ctx.trace), op="queue.process", name=ctx.kind)
        with sentry_sdk.start_transaction(transaction):
            yield


def report(ctx: JobContext, end: RunEnd) -> None:
    with sentry_sdk.isolation_scope() as scope:
        # Tasks of a pod share a scope: its span may be the statement of another task.
        sentry_sdk.get_current_scope().span = None
        sentry_sdk.continue_trace(dict(ctx.trace))
        scope.set_tags({"job.kind": ctx.kind, "job.queue": ctx.queue, "job.cause": end.cause})
        scope.set_context("job", {"id": ctx.job_id, "attempt": ctx.attempt, "status": end.status})
        scope.set_level("error" if end.retry_in is None else "warning")
        if end.exception is not None:
            sentry_sdk.capture_exception(end.exception)
        elif end.error is not None:  # of a handler in a process, or of a crash
            sentry_sdk.capture_message(f"{end.error.type}: {end.error.message}")
