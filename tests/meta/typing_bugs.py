"""Bugs that only type checkers notice, and results that are not of the type that was promised."""

from tests.meta.bugs import Bug, Edit

_CHECKERS = "tests/type_checkers/test_checkers.py::test_"
_RESULTS = "tests/runtime/test_typed_results.py::test_"
_OPTIONS = "tests/unit/test_options.py::test_"


def _bug(name: str, file: str, old: str, new: str, *tests: str) -> Bug:
    return Bug(f"typing: {name}", tests, (Edit(f"forge_jobs/{file}.py", old, new),))


TYPING_BUGS = (
    _bug(
        "two functions of one factory are one",
        "handlers/handler",
        "_held(self) == _held(other)",
        "_held(self)[0] == _held(other)[0]",
        "tests/unit/test_handlers_registry.py",
    ),
    _bug(
        "a request is typed as the coroutine of the handler",
        "handlers/handler",
        '            self, handler: "Handler[P, Coroutine[Any, Any, R]]", owner: object = None\n',
        '            self, handler: "Handler[P, list[R]]", owner: object = None\n',
        f"{_CHECKERS}right_uses_are_accepted",
    ),
    _bug(
        "any option of enqueue is accepted by type checkers",
        "clients/calls",
        "        connection: object | None = None,\n        **options: Unpack[EnqueueOptions],\n",
        "        connection: object | None = None,\n        **options: Any,\n",
        f"{_CHECKERS}wrong_uses_are_refused_each",
    ),
    _bug(
        "the result of an outcome may be anything",
        "clients/progress",
        "job_id: EnqueueOutcome[R], timeout: timedelta | float) -> R: ...\n",
        "job_id: EnqueueOutcome, timeout: timedelta | float) -> Any: ...\n",
        f"{_CHECKERS}wrong_uses_are_refused_each",
    ),
    _bug(
        "an option that a handler has and type checkers do not know",
        "handlers/options",
        "    max_memory: int | None\n    max_runs",
        "    max_runs",
        f"{_OPTIONS}the_options_of_type_checkers_are_those_of_a_handler",
    ),
    _bug(
        "an outcome forgets the type of the result",
        "clients/results",
        "    if request.result_type is not Any:\n",
        "    if False:\n",
        f"{_RESULTS}the_result_of_an_outcome_is_what_the_handler_returned",
    ),
    _bug(
        "a type that is not there at run time gives JSON types",
        "clients/results",
        "    if kind is Any:\n",
        "    if kind is Any or isinstance(kind, str):\n",
        f"{_RESULTS}a_type_that_no_result_can_have_is_refused_in_words",
    ),
    _bug(
        "an outcome that a handler may return counts as a result",
        "handlers/signatures",
        "        results = [part for part in get_args(annotation) if not _is_outcome(part)]\n",
        "        results = list(get_args(annotation))\n",
        f"{_OPTIONS}outcomes_that_a_handler_returns_are_no_results",
    ),
    _bug(
        "a misspelt option of a handler is ignored",
        "handlers/option_checks",
        '    check_option_names(options, JobOptions.__annotations__, "job")\n',
        "",
        f"{_OPTIONS}a_wrong_option_of_a_handler_is_refused_in_words",
    ),
)
