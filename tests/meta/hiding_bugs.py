"""Bugs of what is hidden: fields that `redact=` names, and control characters."""

from tests.meta.bugs import Bug, Edit

_HIDING = "tests/operating/test_redaction.py::test_"
_REDACTION, _BASE = "forge_jobs/operating/redaction.py", "forge_jobs/operating/base.py"

HIDDEN_FIELDS = tuple(
    Bug(f"redact: {name}", (f"{_HIDING}{test}",), (Edit(f"{module}", old, new),))
    for name, module, old, new, test in (
        (
            "lists of jobs quote hidden fields",
            _BASE,
            "clean_line(line, self.redaction.texts(jobs[line.id]))",
            "line",
            "no_read_shows_a_hidden_field",
        ),
        (
            "errors quote hidden fields",
            "forge_jobs/operating/hiding.py",
            "clean_job(shown_job, redaction.texts(job)) if redaction else shown_job",
            "shown_job",
            "no_read_shows_a_hidden_field",
        ),
        (
            "groups of failures quote hidden fields",
            "forge_jobs/operating/errors/calls.py",
            "return await self._cleaned(found) if self.redaction else found",
            "return found",
            "no_read_shows_a_hidden_field",
        ),
        (
            "fields of the elements of a list are shown",
            _REDACTION,
            "yield from self._walk(child, (*path, EACH))",
            "yield from ()",
            "no_read_shows_a_hidden_field",
        ),
        (
            "a search finds what is hidden",
            _BASE,
            "            self._may_search(which)\n",
            "",
            "a_hidden_field_is_not_found_by_asking",
        ),
        (
            "an edit writes the stars",
            "forge_jobs/operating/actions/editing.py",
            "return self.redaction.marks(payload, job.metadata)",
            "return job.metadata",
            "an_edit_keeps_what_is_hidden_and_no_record_shows_one",
        ),
        (
            "records of schedules show their payloads",
            _REDACTION,
            'if not path and isinstance(payload := found.get("payload"), str):',
            'if False and isinstance(payload := found.get("payload"), str):',
            "records_from_before_the_name_was_given_are_hidden_too",
        ),
        (
            "all actions include the reveal",
            "forge_jobs/operating/access.py",
            "        if action == REVEAL_JOB:\n",
            "        if False:\n",
            "a_reveal_has_to_be_named_and_leaves_nothing_when_refused",
        ),
        (
            "the record of a reveal names no job",
            "forge_jobs/operating/jobs/calls.py",
            "self._action(REVEAL_JOB, target=stored.id, ",
            "self._action(REVEAL_JOB, ",
            "a_reveal_shows_all_and_is_recorded_with_actor_and_job",
        ),
    )
)

HOSTILE = tuple(
    Bug(f"hostile texts: {name}", (test,), (Edit(module, old, new),))
    for name, test, module, old, new in (
        (
            "explain moves the cursor",
            "tests/cli/test_hostile.py",
            "forge_jobs/cli/commands/explain.py",
            "click.echo(printable(explanation.text))",
            "click.echo(explanation.text)",
        ),
        (
            "pages hold control characters",
            "tests/web/test_hostile.py::test_a_store_full_of_hostile_texts_is_text_on_every_surface",
            "forge_jobs/web/pages/frame.py",
            '_CONTROL.sub("\\N{REPLACEMENT CHARACTER}", body)',
            "body",
        ),
        (
            "templates escape nothing",
            "tests/web/test_hostile.py::test_a_store_full_of_hostile_texts_is_text_on_every_surface",
            "forge_jobs/web/pages/frame.py",
            "autoescape=True",
            "autoescape=False",
        ),
    )
)

_SPECS = "forge_jobs/operating/settings/specs.py"
_KINDS = "forge_jobs/operating/kinds/schemas.py"

SCHEDULES = tuple(
    Bug(
        f"secrets of schedules: {name}",
        (f"tests/web/test_schedule_kinds.py::test_{test}",),
        (Edit(module, old, new),),
    )
    for name, module, old, new, test in (
        (
            "a new schedule has no marks",
            _SPECS,
            "handler_options=known.options, ",
            "",
            "a_schedule_has_the_marks_of_secrets_and_the_options_of_the_kind",
        ),
        (
            "another kind takes the marks away",
            _SPECS,
            "(*paths_in(metadata), *paths_in(made))",
            "paths_in(made)",
            "another_kind_takes_the_marks_along",
        ),
        (
            "a schedule of another kind needs no key",
            _SPECS,
            "if is_moved or ",
            "if ",
            "a_kind_whose_payloads_are_encrypted_takes_no_plain_schedule",
        ),
        (
            "an edit without the key writes plain text",
            _KINDS,
            "        if self.lacks_key:\n            raise needs_key()\n",
            "",
            "a_kind_whose_payloads_are_encrypted_takes_no_plain_schedule",
        ),
    )
)

HIDING_BUGS: tuple[Bug, ...] = (*HIDDEN_FIELDS, *HOSTILE, *SCHEDULES)
