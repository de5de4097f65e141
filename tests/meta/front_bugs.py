"""Bugs in the charts of the dashboard, in looking back, and in the frame of the pages."""

from tests.meta.bugs import Bug, Edit

_TESTS = "tests/web/test_"


def _bug(name: str, module: str, before: str, after: str, test: str) -> Bug:
    return Bug(
        f"front: {name}",
        (f"{_TESTS}{test}",),
        (Edit(f"forge_jobs/{module}", before, after),),
    )


FRONT_BUGS = (
    _bug(
        "an hour with few minutes counts as a whole step",
        "web/pages/charts/figures.py",
        "return sum(step.counts.get(name, 0) for name in names) / max(counted / MINUTE, 1.0)",
        "return sum(step.counts.get(name, 0) for name in names) / 60",
        "charts.py::test_the_tables_say_what_happened_in_each_minute",
    ),
    _bug(
        "the problems are read by each viewer",
        "operating/snapshots/shared.py",
        "if self.at <= oldest:",
        "if True:",
        "charts.py::test_a_hundred_viewers_at_once_share_the_look",
    ),
    _bug(
        "series of all queues for who sees some",
        "web/pages/charts/over_time.py",
        "if not queue and not visit.actor.access.has(Right.QUEUES):",
        "if False:",
        "charts.py::test_who_sees_some_queues_sees_no_series_of_all",
    ),
    _bug(
        "a resume of the past is not seen",
        "operating/past/reading.py",
        '_PAUSING = ("pause_queue", "resume_queue")',
        '_PAUSING = ("pause_queue",)',
        "past.py::test_pages_of_then_show_what_was_and_offer_nothing",
    ),
    _bug(
        "pods that were lost live on",
        "operating/past/pods.py",
        "found.pop(event.detail, None)",
        "pass",
        "past.py::test_pages_of_then_show_what_was_and_offer_nothing",
    ),
    _bug(
        "a folded hour is shown as a minute",
        "operating/past/reading.py",
        "begin = hour if length == HOUR else at",
        "begin = at",
        "past.py::test_where_minutes_are_folded_the_hour_is_shown",
    ),
    _bug(
        "pods of then tell of closed queues",
        "web/pages/past/views.py",
        "queues: Sequence[str] = [name for name in pod.queues if actor.sees(name)]",
        "queues: Sequence[str] = pod.queues",
        "past.py::test_who_sees_one_queue_sees_that_one_of_then",
    ),
    _bug(
        "cron: words of an expression with seconds are of other fields",
        "web/pages/cron/phrases.py",
        "[fields[-1], *fields[:-1]]",
        "fields",
        "cron_page.py::test_times_in_words",
    ),
    _bug(
        "cron: days that must both fit are said to be alternatives",
        "web/pages/cron/phrases.py",
        "    if _needs_both_days(fields):\n",
        "    if False:\n",
        "cron_page.py::test_times_in_words",
    ),
    _bug(
        "cron: bars of jobs in a closed queue are shown",
        "web/pages/cron/occurrences.py",
        "state if state and visit.actor.sees(state.queue) else None",
        "state",
        "cron_page.py::test_bars_of_a_closed_queue_are_not_shown",
    ),
    _bug(
        "cron: a text that is refused can be stored by its preview",
        "web/pages/acting.py",
        "can_apply=times is None or not times.problem,",
        "can_apply=True,",
        "cron_page.py::test_a_change_says_what_it_means_and_changes_the_zone",
    ),
    _bug(
        "overview: the usual number of dead jobs has today in it",
        "web/pages/glance.py",
        "for count in counts if count.at < until - _DAY)",
        "for count in counts)",
        "overview.py::test_what_lies_ahead_and_what_is_usual",
    ),
    _bug(
        "overview: each viewer reads what lies ahead",
        "web/pages/judged.py",
        "self._glance.get(GLANCED)",
        "self._glance.get(0.0)",
        "overview.py::test_what_is_ahead_is_read_for_all_viewers_together",
    ),
    _bug(
        "pod: gauges of other pods are drawn",
        "web/pages/charts/gauges.py",
        "if each.host_id == host_id]",
        "if host_id]",
        "pod_page.py::test_gauges_over_time_and_runs_beside_what_is_usual",
    ),
    _bug(
        "queue: the newest waiting jobs are called the oldest",
        "web/pages/queues.py",
        'order="due", ',
        "",
        "queue_page.py::test_the_oldest_jobs_come_first",
    ),
    _bug(
        "queue: every setting of a change names who made the change",
        "operating/settings/lines.py",
        "if after[name] != before.get(name):",
        "if True:",
        "queue_page.py::test_a_setting_names_who_has_set_it",
    ),
)
