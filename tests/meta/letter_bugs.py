"""Bugs of letters: of the step that writes them, of their reads, and of the relay."""

from tests.meta.bugs import Bug, Edit, files_of

_SQL = "forge_jobs/storage/sql/"
_REDIS = "forge_jobs/storage/redis/"
_LUA = f"{_REDIS}lua/lib/"
_LETTERS = files_of("letters")
_PASS = "tests/runtime/test_letters.py::test_"


def _sql(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"letters: {name}", _LETTERS, (Edit(f"{_SQL}{file}.py", old, new),))


def _redis(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"redis letters: {name}", _LETTERS, (Edit(f"{_REDIS}{file}", old, new),), "redis")


def _of_relay(name: str, old: str, new: str, test: str) -> Bug:
    edit = Edit("forge_jobs/runtime/passes/letters.py", old, new)
    return Bug(f"relay: {name}", (f"{_PASS}{test}",), (edit,))


def _other(name: str, file: str, old: str, new: str, test: str) -> Bug:
    return Bug(f"letters: {name}", (test,), (Edit(f"forge_jobs/{file}.py", old, new),))


LETTER_BUGS = (
    _sql(
        "every end leaves one",
        "jobs/endings",
        "if status is JobStatus.DEAD and queue is not None and queue.dead_letter:",
        "if queue is not None and queue.dead_letter:",
    ),
    _sql(
        "the payload goes before the letter is written",
        "jobs/endings",
        '    write_letters(tx, dead)\n    if dropped:\n        tx.execute(_DROP_PAYLOAD, {"ids": '
        "dropped})\n",
        '    if dropped:\n        tx.execute(_DROP_PAYLOAD, {"ids": dropped})\n'
        "    write_letters(tx, dead)\n",
    ),
    _sql(
        "a letter that dies leaves one",
        "letters/write",
        ", jobs.c.kind != DEAD_LETTER_KIND)",
        ")",
    ),
    _sql(
        "no death wakes the relay", "letters/write", "        tx.wake_letters()\n", "        pass\n"
    ),
    _sql(
        "no beat says that letters wait",
        "fleet/pods",
        "bool(row.handovers), bool(row.letters), ",
        "bool(row.handovers), False, ",
    ),
    _sql(
        "letters for a silent queue come all the same",
        "letters/read",
        ', not_(one_of(letters.c.queue, "not_to"))',
        "",
    ),
    _sql(
        "letters to be passed over come all the same",
        "letters/read",
        'not_(one_of(letters.c.id, "skip")), ',
        "",
    ),
    _sql(
        "one answer brings all payloads",
        "letters/read",
        "if chosen and size > BYTES_AT_ONCE:",
        "if False:",
    ),
    _sql(
        "none is ever forgotten",
        "letters/read",
        '        tx.execute(_FORGET, {"ids": portion})\n',
        "        pass\n",
    ),
    Bug(
        "letters: the model notices a death without one",
        files_of("model"),
        (
            Edit(
                f"{_SQL}jobs/endings.py",
                "            dead[row.id] = queue.dead_letter\n",
                "            pass\n",
            ),
        ),
    ),
    Bug(
        "letters: two deaths of a job share an id",
        _LETTERS,
        (
            Edit(
                "forge_jobs/model/ids.py",
                '    seed = f"{queue}\\n{job_id}\\n{token}".encode()\n',
                '    seed = f"{queue}\\n{job_id}".encode()\n    died_us = 0\n',
            ),
        ),
    ),
    _other(
        "the newest errors give way to old ones",
        "storage/letters",
        "    for whole in reversed(errors):",
        "    for whole in errors:",
        "tests/conformance/test_letters.py",
    ),
    _other(
        "an encrypted payload does not say whose it is",
        "storage/letters",
        "    metadata.setdefault(ORIGIN, origin_of(origin.job_id, origin.kind))\n",
        "",
        f"{_PASS}an_encrypted_payload_is_read_by_who_has_the_key",
    ),
    _redis(
        "a plain death leaves none",
        "lua/lib/jobs/finalize/settling.lua",
        " and not leaves_letter(base, outcome.status) then",
        " then",
    ),
    _redis(
        "every end leaves one",
        "lua/lib/jobs/finalize/endings.lua",
        "  if to and status == 'dead' then",
        "  if to then",
    ),
    _redis(
        "a letter that dies leaves one",
        "lua/lib/letters/letters.lua",
        "  if kind == 'forge.dead_letter' then\n    return\n  end\n",
        "",
    ),
    _redis(
        "no death wakes the relay",
        "lua/lib/letters/letters.lua",
        "  wake('letters')\n",
        "",
    ),
    _redis(
        "two deaths of a job are one letter",
        "lua/lib/letters/letters.lua",
        "job.id .. ' ' .. text(job.token)",
        "job.id .. ' 1'",
    ),
    _redis(
        "a queue that is deleted takes its letters along",
        "lua/jobs/cleanup/leave_queue.lua",
        "'handovers', 'letters', 'gone'",
        "'handovers', 'gone'",
    ),
    _redis(
        "letters for a silent queue come all the same",
        "lua/letters/letters.lua",
        "stays[to] and {} or nil",
        "nil",
    ),
    _redis(
        "one answer brings all payloads",
        "lua/letters/letters.lua",
        "if #found < most and size < bytes and not",
        "if #found < most and not",
    ),
    _redis(
        "a list stays when its last letter is forgotten",
        "lua/letters/forget_letters.lua",
        "      redis.call('ZREM', base .. ':letters', to)\n",
        "",
    ),
    Bug(
        "redis letters: the model notices a death without one",
        files_of("model"),
        (
            Edit(
                f"{_LUA}jobs/finalize/endings.lua",
                "    write_letter(base, job, to, cause)\n",
                "",
            ),
        ),
        "redis",
    ),
    _of_relay(
        "letters are forgotten before they are stored",
        "        await self._jobs.enqueue([letter.job for letter in letters])\n",
        "        await self._letters.forget_letters(letters)\n"
        "        await self._jobs.enqueue([letter.job for letter in letters])\n",
        "a_queue_that_is_silent_delays_its_own_letters_only",
    ),
    _of_relay(
        "a silent queue ends the pass",
        "                    away.add(queue)\n",
        "                    raise\n",
        "a_queue_that_is_silent_delays_its_own_letters_only",
    ),
    _of_relay(
        "one refused letter ends the pass",
        "                    relayed += sum(await self._sender.send(letters, self._relay, _key))\n",
        "                    relayed += await self._relay(letters)\n",
        "a_letter_that_is_refused_delays_no_other",
    ),
    _of_relay(
        "a pass names all letters that are gone",
        "            kept |= before.intersection(map(str, self._sender.waiting))\n",
        "            kept |= before\n",
        "what_a_pass_names_to_the_store_does_not_grow_with_the_letters_that_are_gone",
    ),
    _of_relay(
        "a pass sends a refused letter again and again",
        "            kept |= before.intersection(map(str, self._sender.waiting))\n",
        "",
        "a_letter_that_was_refused_is_sent_once_in_a_pass",
    ),
    _of_relay(
        "a store that keeps a letter holds the pass for ever",
        "            kept |= before.intersection(map(_key, found))\n",
        "",
        "a_source_that_forgets_nothing_holds_no_pass_for_ever",
    ),
    _other(
        "the text of a dead job's payload is read as arguments",
        "handlers/signatures",
        "        if self.takes_letter:\n            # The job",
        "        if False:\n            # The job",
        f"{_PASS}a_payload_that_nobody_can_read_comes_as_it_is",
    ),
    _other(
        "errors of their handler show secrets",
        "runtime/queue/run",
        "        if self.job.kind == DEAD_LETTER_KIND:\n            return self._metadata()\n",
        "",
        f"{_PASS}an_error_of_the_handler_shows_no_secret_of_the_dead_job",
    ),
    _other(
        "a death wakes no loop, and a beat none",
        "runtime/pod/loops",
        '        self.letters = self._loop("letters", self._relay, settings.handover_interval)\n',
        '        self.letters = self._loop("letters", self._fire, settings.handover_interval)\n',
        f"{_PASS}a_handler_reads_the_letter_of_a_dead_job",
    ),
)
