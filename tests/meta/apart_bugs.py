"""Bugs of ends that the store refuses while others are taken. Each names the test of its rule."""

from tests.meta.bugs import Bug
from tests.meta.policy_bugs import in_policy
from tests.meta.runtime_bugs import in_runtime

_APART = "set_aside.py::test_"
_KEPT = f"{_APART}an_end_that_is_not_taken_is_kept_beaten_for_and_in_nobodys_way"
_OF_ALL = f"{_APART}what_is_refused_to_all_is_waited_out_and_nothing_is_set_aside"
_REFUSED = "lanes_refused.py::test_"

APART_BUGS: tuple[Bug, ...] = (
    in_runtime(
        "apart: an end whose row is locked counts as refused",
        "queue/outbox",
        "            if answer is None:\n"
        "                self._aside.take(self, [item], None)\n"
        "                continue\n",
        "",
        _KEPT,
    ),
    in_runtime(
        "apart: an end that is refused alone is dropped",
        "queue/outbox",
        "                self._aside.take(self, [item], why)\n",
        "                self._outbox.let_go([self.claim_of(item)])\n",
        _KEPT,
    ),
    in_runtime(
        "apart: an end that is refused alone stays in everybody's way",
        "queue/outbox",
        "                del self.waiting[id(item)]\n                self._aside",
        "                break\n                self._aside",
        _KEPT,
    ),
    in_runtime(
        "apart: nobody beats for what is set aside",
        "queue/set_aside",
        "        because = LOCKED if error is None else reason_of(error)\n        for item",
        "        because = LOCKED if error is None else reason_of(error)\n"
        "        self._services.held.remove(way.claim_of(each) for each in items)\n"
        "        for item",
        _KEPT,
    ),
    in_runtime(
        "apart: an error that is of no value condemns an end",
        "queue/outbox",
        "        if not isinstance(error, OF_VALUES):\n            refused",
        "        if not isinstance(error, Exception):\n            refused",
        _KEPT,
    ),
    in_runtime(
        "apart: what is refused to all is set aside one by one",
        "queue/outbox",
        "            if not await works():\n                raise error\n",
        "",
        _OF_ALL,
    ),
    in_runtime(
        "apart: what is refused to all is searched to its end",
        "queue/outbox",
        "            takes = any([await self._try([items[n]], refused) for n in tried])\n",
        "            tried = range(len(items))\n"
        "            takes = any([await self._try([item], refused) for item in items])\n",
        _OF_ALL,
    ),
    in_runtime(
        "apart: beats that are answered raise no doubt about the ends",
        "queue/loop",
        "            self.outbox.doubts = self.failures >= _DOUBTS_AFTER\n",
        "",
        f"{_APART}an_end_that_alone_gets_no_answer_while_beats_do_is_set_aside",
    ),
    in_runtime(
        "apart: jobs start however many ends are set aside",
        "queue/outbox",
        " or self.aside.count >= BACKLOG",
        "",
        f"{_APART}no_more_jobs_start_when_too_many_ends_are_set_aside",
    ),
    in_runtime(
        "apart: a stop does not tell of it",
        "queue/outbox",
        "*self.releases.claims(), *self.aside.claims()]",
        "*self.releases.claims()]",
        f"{_APART}a_stop_says_which_ends_were_set_aside",
    ),
    in_runtime(
        "apart: a stop waits for what is refused again and again",
        "queue/set_aside",
        "entry.is_locked or entry.failures < _TRIES_AT_LAST",
        "True",
        f"{_APART}a_stop_does_not_wait_for_an_end_that_is_refused_again_and_again",
    ),
    in_runtime(
        "apart: a stop does not wait for a row that is locked",
        "queue/set_aside",
        "entry.is_locked or entry.failures < _TRIES_AT_LAST",
        "entry.failures < _TRIES_AT_LAST",
        f"{_APART}a_stop_takes_an_end_along_whose_row_is_unlocked_meanwhile",
    ),
    in_policy(
        "apart: pauses do not grow",
        "runtime/queue/set_aside",
        "pauses.after(entry.failures, self._services.rng)",
        "pauses.after(1, self._services.rng)",
        "set_aside_pauses.py::test_pauses_grow_up_to_a_bound_that_a_lock_and_a_refusal_have_each",
    ),
    in_policy(
        "outages: pauses have no jitter",
        "outages",
        "(1 - self._jitter) * most",
        "most",
        "outages.py::test_jitter_is_the_part_of_a_pause_that_is_drawn",
    ),
    in_policy(
        "outages: a cause is logged with each failure",
        "outages",
        "        self._causes.add(cause)\n",
        "",
        "outages.py::test_each_cause_is_logged_once_until_the_outage_is_over",
    ),
    in_policy(
        "outages: the others are over with the first of them",
        "outages",
        "is_last = self._others == {name}",
        "is_last = name in self._others",
        "outages.py::test_of_many_that_fail_alike_the_first_are_named_and_the_rest_together",
    ),
    in_policy(
        "lane: what is refused is raised at once",
        "lanes",
        "_AGAIN = (Locked, StorageRefused)",
        "_AGAIN = (Locked,)",
        f"{_REFUSED}one_item_that_is_refused_alone_holds_up_no_other",
    ),
    in_policy(
        "lane: what is refused to all is searched to its end",
        "lanes",
        "                    if refused_alone == _REFUSED_ALONE:\n",
        "                    if refused_alone == 1_000_000:\n",
        f"{_REFUSED}a_store_that_refuses_everything_is_not_searched_and_is_asked_ever_more_rarely",
    ),
    in_policy(
        "lane: a store that refuses everything is asked without a pause",
        "lanes",
        "        self._refusals += 1\n",
        "",
        f"{_REFUSED}a_store_that_refuses_everything_is_not_searched_and_is_asked_ever_more_rarely",
    ),
)
