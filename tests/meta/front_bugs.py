"""Bugs in the charts of the dashboard, in looking back, and in the frame of the pages."""

from tests.meta.bugs import Bug, Edit

_TESTS = "tests/web/test_"


def _bug(name: str, module: str, before: str, after: str, test: str) -> Bug:
    return Bug(
        f"front: {name}",
        (f"{_TESTS}{test}",),
        (Edit(f"forge_jobs/web/{module}", before, after),),
    )


FRONT_BUGS = (
    _bug(
        "an hour with few minutes counts as a whole step",
        "pages/charts/figures.py",
        "return sum(step.counts.get(name, 0) for name in names) / max(counted / MINUTE, 1.0)",
        "return sum(step.counts.get(name, 0) for name in names) / 60",
        "charts.py::test_the_tables_say_what_happened_in_each_minute",
    ),
    _bug(
        "the problems are read by each viewer",
        "pages/judged.py",
        "if self._of is not storage or now - self._at >= (FRESH if age is None else age):",
        "if True:",
        "charts.py::test_thirty_days_take_ten_calls_beside_the_problems",
    ),
    _bug(
        "series of all queues for who sees some",
        "pages/overview.py",
        "if not visit.actor.access.has(Right.QUEUES):",
        "if False:",
        "charts.py::test_who_sees_some_queues_sees_no_series_of_all",
    ),
)
