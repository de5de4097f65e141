"""Bugs of the live stream: who sees what, at which pace, and what a slow viewer costs."""

from tests.meta.bugs import Bug, Edit

_RIGHTS = "tests/operating/test_live.py::test_no_viewer_sees_beyond_the_access"
_PACE = "tests/operating/test_live.py::test_a_minute_of_readings_is_three_calls_a_second"
_AGAIN = "tests/operating/test_live.py::test_only_what_has_changed_is_told_again"
_SHARED = "tests/operating/test_shared_reads.py::test_"
_WEB = "tests/web/test_live.py::test_"


def _bug(name: str, module: str, old: str, new: str, test: str) -> Bug:
    return Bug(f"live: {name}", (test,), (Edit(f"forge_jobs/{module}.py", old, new),))


LIVE_BUGS: tuple[Bug, ...] = (
    _bug(
        "closed queues are told",
        "operating/live/seeing",
        "queue for queue in queues if actor.sees(queue.name)",
        "queues",
        _RIGHTS,
    ),
    _bug(
        "jobs of closed queues are told",
        "operating/live/seeing",
        "value is None or not actor.sees(value.queue)",
        "value is None",
        _RIGHTS,
    ),
    _bug(
        "pods tell of closed queues",
        "operating/live/seeing",
        "if actor.access.queues is None:\n        return pods.value",
        "if True:\n        return pods.value",
        _RIGHTS,
    ),
    _bug(
        "messages of progress need no right",
        "operating/live/seeing",
        "return value if with_messages and actor.access.payloads else hide_state(value)",
        "return value",
        "tests/operating/test_live.py::test_progress_is_told_at_the_next_reading",
    ),
    _bug(
        "problems are read each second",
        "operating/live/reading",
        'self._put_off("problems", PROBLEMS_EVERY)',
        "pass",
        _PACE,
    ),
    _bug(
        "those who wait for a reading read again",
        "operating/snapshots/shared",
        "if self.at <= oldest:",
        "if self.at <= self._clock() - age / 2:",
        f"{_SHARED}of_many_who_ask_at_once_one_reads",
    ),
    _bug(
        "a reading that was cancelled is an answer",
        "operating/snapshots/shared",
        "        try:\n            self._found",
        "        self.at = began\n        try:\n            self._found",
        f"{_SHARED}a_viewer_who_leaves_takes_no_answer_from_others",
    ),
    _bug(
        "a silent store is asked by each viewer",
        "operating/snapshots/shared",
        "            self._error = error\n",
        "            self._error = error\n            raise\n",
        f"{_SHARED}a_failure_is_an_answer_for_as_long",
    ),
    _bug(
        "what has not changed is told again",
        "operating/live/reading",
        "if before is not None and before.value == value:",
        "if False:",
        _AGAIN,
    ),
    _bug(
        "a queue that has gone stays on the page",
        "operating/live/reading",
        "self.now.renamed = self.now.version",
        "pass",
        "tests/operating/test_live.py::test_a_queue_that_comes_or_goes_makes_the_state_whole",
    ),
    _bug(
        "the reader goes on when nobody looks",
        "web/live/hub",
        "while self._is_looked_at():",
        "while True:",
        f"{_WEB}hundred_viewers_have_one_reader_and_none_when_they_left",
    ),
    _bug(
        "each viewer has a reader",
        "web/live/hub",
        "if self._task is None:",
        "if True:",
        f"{_WEB}hundred_viewers_have_one_reader_and_none_when_they_left",
    ),
    _bug(
        "an outage ends the news",
        "web/live/hub",
        '            self._lost = ""\n        except',
        "            pass\n        except",
        f"{_WEB}the_stream_says_that_the_store_is_away_and_goes_on",
    ),
    _bug(
        "a stream is cut as a long request",
        "web/live/route",
        "request.state.time_limit.reschedule(None)",
        "pass",
        f"{_WEB}a_stream_outlives_the_bound_of_a_request",
    ),
    _bug(
        "any number of streams",
        "web/live/route",
        "hub.check_room()",
        "pass",
        f"{_WEB}one_stream_too_many_is_told_when_to_come_again",
    ),
    _bug(
        "a condition is not looked at",
        "web/api/conditions",
        'known != ["*"] and f\'"{tag}"\' not in known',
        "False",
        "tests/web/test_conditions.py::test_settings_of_a_queue_are_changed_as_they_were_seen",
    ),
    _bug(
        "conditions are checked side by side",
        "web/api/conditions",
        "await stack.enter_async_context(self._one_at_a_time)",
        "pass",
        "tests/web/test_conditions.py::test_of_ten_who_saw_the_same_one_changes",
    ),
    _bug(
        "a condition tells of a closed queue",
        "web/api/conditions",
        "if not operator.actor.sees(name):",
        "if False:",
        "tests/web/test_conditions.py::test_a_condition_tells_nothing_of_what_is_closed",
    ),
    _bug(
        "a condition is ignored where none is possible",
        "web/api/conditions",
        "if tag_of is None:\n            raise",
        "if tag_of is None:\n            return\n            raise",
        "tests/web/test_conditions.py::test_a_condition_where_none_is_possible_is_refused",
    ),
    _bug(
        "a prefix that a host cuts off is forgotten",
        "web/guard",
        "if prefix else scope",
        "if False else scope",
        "tests/web/test_mounts.py::test_two_dashboards_of_a_host_stay_below_their_prefixes",
    ),
)
