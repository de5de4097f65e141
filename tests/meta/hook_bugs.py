"""Bugs of middleware around enqueues, and of hooks behind runs."""

from tests.meta.bugs import Bug, Edit

_ENQUEUES = "tests/unit/test_enqueue_middleware.py::"


def _bug(name: str, file: str, old: str, new: str, *tests: str) -> Bug:
    return Bug(f"hook: {name}", tests, (Edit(f"forge_jobs/{file}.py", old, new),))


HOOK_BUGS = (
    _bug(
        "the request that a middleware yields is not the one that is stored",
        "clients/around",
        "                wanted[number] = await _begun(",
        "                await _begun(",
        f"{_ENQUEUES}TestOrder::test_the_registrys_is_outermost_and_both_change_the_request",
    ),
    _bug(
        "a client without the registry forgets the middleware of the handler",
        "clients/around",
        "    if request.handler_options is not None or registry is None:\n"
        "        return request.handler_options\n",
        "    if registry is None:\n        return None\n",
        f"{_ENQUEUES}TestOrder::test_the_registrys_is_outermost_and_both_change_the_request",
    ),
    _bug(
        "an error behind an enqueue is the caller's",
        "clients/around",
        "                if raised is not error:\n",
        "                if raised is not error:\n                    error = raised\n",
        f"{_ENQUEUES}TestErrors::test_behind_the_enqueue_an_error_is_logged_and_the_outcome_stays",
    ),
    _bug(
        "a middleware can swallow an error of the store",
        "clients/around",
        "    except (StopIteration, StopAsyncIteration):\n        return error\n",
        "    except (StopIteration, StopAsyncIteration):\n        return None\n",
        f"{_ENQUEUES}TestErrors::test_an_error_of_the_store_reaches_the_caller_and_cannot_be_swallowed",
    ),
    _bug(
        "of several steps all hear of the one that failed",
        "clients/around",
        "outcomes[number] if number < len(outcomes) else None",
        "outcomes[number] if error is None else None",
        f"{_ENQUEUES}TestMany::test_of_steps_each_hears_whether_its_own_was_stored",
    ),
    _bug(
        "a middleware may change the kind",
        "clients/around",
        "    if changed.kind != request.kind:\n",
        "    if changed.kind == '':\n",
        f"{_ENQUEUES}TestErrors::test_what_is_yielded_must_be_a_request_of_that_kind",
    ),
    _bug(
        "an exception behind an enqueue shows a secret in the log",
        "clients/around",
        "    is_shown = options is None or not options.secrets\n",
        "    is_shown = True\n",
        f"{_ENQUEUES}TestErrors::test_the_log_shows_no_exception_of_a_payload_with_secrets",
    ),
    _bug(
        "steps of a blocking enqueue have contexts of their own",
        "clients/blocking",
        "create_task(task(), context=context)",
        "create_task(task())",
        "tests/unit/test_enqueue_middleware.py::"
        "test_the_blocking_client_runs_plain_middleware_in_the_calling_thread",
    ),
    _bug(
        "within a transaction the blocking client forgets middleware",
        "clients/blocking",
        "        within = self._enqueued_within([request], connection)\n",
        "        within = connection or self._enqueued_within([request], connection)\n"
        "        within = None if connection else within\n",
        "tests/unit/test_enqueue_middleware.py::"
        "test_the_blocking_client_runs_plain_middleware_in_the_calling_thread",
    ),
)
