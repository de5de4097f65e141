"""Bugs of encryption and of secrets, with the test that catches each."""

from tests.meta.bugs import Bug, Edit

_PACKAGE = "forge_jobs/"
_ENCRYPTION, _SECRETS = "tests/unit/test_encryption.py", "tests/unit/test_secrets.py"
_LINES = "tests/runtime/test_job_log.py::test_"
_RUNTIME = "tests/runtime/test_encrypted_jobs.py::test_"


def _bug(name: str, module: str, old: str, new: str, test: str) -> Bug:
    return Bug(name, (test,), (Edit(f"{_PACKAGE}{module}.py", old, new),))


PRIVACY_BUGS = [
    _bug(
        "encryption: any job takes the text of another",
        "privacy/encryption",
        "        if not (is_of_job or is_carried):\n",
        "        if not (is_of_job or envelope.of):\n",
        f"{_ENCRYPTION}::test_a_text_that_was_moved_is_refused",
    ),
    _bug(
        "encryption: an origin brings a text to another kind",
        "privacy/encryption",
        "may_carry = kind in {envelope.kind, DEAD_LETTER_KIND}",
        "may_carry = True",
        f"{_ENCRYPTION}::test_an_origin_of_another_kind_is_refused",
    ),
    _bug(
        "encryption: the part is not authenticated",
        "privacy/encryption",
        "str(_VERSION), part, job_id",
        "str(_VERSION), job_id",
        f"{_ENCRYPTION}::test_a_text_that_was_moved_is_refused",
    ),
    _bug(
        "encryption: the header is not authenticated",
        "privacy/encryption",
        "part, job_id, kind, key_name)).encode()",
        "part)).encode()",
        f"{_ENCRYPTION}::test_a_header_that_was_rewritten_does_not_help",
    ),
    _bug(
        "encryption: a lost key uses an attempt",
        "policy/transitions",
        "cause=Cause.KEY_MISSING, delay=KEY_PAUSE, hand_back=True",
        "cause=Cause.KEY_MISSING, delay=KEY_PAUSE, hand_back=False",
        f"{_RUNTIME}a_job_waits_for_a_pod_with_its_key_and_loses_no_attempt",
    ),
    _bug(
        "encryption: a lost key of a checkpoint uses an attempt",
        "runtime/queue/execution",
        "    return _raised(run, host_id, error)\n",
        "    return _failed(run, host_id, error, Cause.FAILED)\n",
        f"{_RUNTIME}a_lost_key_of_a_checkpoint_uses_no_attempt",
    ),
    _bug(
        "encryption: a lost key of another job uses no attempt",
        "runtime/queue/execution",
        "not isinstance(each, KeyMissing) or each.job_id not in known",
        "not isinstance(each, KeyMissing)",
        f"{_RUNTIME}a_lost_key_of_another_job_is_a_failure",
    ),
    _bug(
        "encryption: a lost key of a parent's result uses an attempt",
        "runtime/queue/execution",
        "{run.job.claim.job_id, *run.parents}",
        "{run.job.claim.job_id}",
        f"{_RUNTIME}a_lost_key_of_a_parents_result_uses_no_attempt",
    ),
    _bug(
        "encryption: a lost key in a group of errors uses an attempt",
        "runtime/queue/execution",
        "    for each in errors_in(error):\n",
        "    for each in [error]:\n",
        f"{_RUNTIME}a_lost_key_in_task_groups_uses_no_attempt",
    ),
    _bug(
        "encryption: an error beside a lost key is forgotten",
        "runtime/queue/execution",
        "            return None\n        lost = each\n",
        "            continue\n        lost = each\n",
        f"{_RUNTIME}a_lost_key_beside_another_error_is_a_failure",
    ),
    _bug(
        "encryption: results are stored as they are",
        "runtime/queue/run",
        "        return None if text is None else self._encrypted(text, Part.RESULT)",
        "        return text",
        f"{_RUNTIME}a_store_sees_neither_payload_nor_result",
    ),
    _bug(
        "encryption: the fingerprint is of what was encrypted",
        "handlers/preparing",
        'encryption.fingerprint(content_of(job)) if has_own_id else ""',
        '""',
        f"{_RUNTIME}an_id_of_the_caller_makes_a_repeat_or_a_conflict",
    ),
    _bug(
        "encryption: a schedule is encrypted anew at each deploy",
        "clients/schedules",
        "always_same=True",
        "always_same=False",
        f"{_RUNTIME}a_schedule_is_encrypted_and_a_deploy_is_no_change",
    ),
    _bug(
        "metadata: callers write the keys that are ours",
        "handlers/preparing",
        "    if ours:\n",
        "    if len(ours) > len(given):\n",
        "tests/unit/test_requests.py::TestChecks::test_metadata_of_a_job_that_was_read_says_what_to_leave_out",
    ),
    _bug(
        "secrets: an exception is logged with them",
        "runtime/queue/job_log",
        "    if raised is None or end.is_redacted:\n",
        "    if raised is None:\n",
        f"{_RUNTIME}no_error_and_no_log_line_holds_a_secret",
    ),
    _bug(
        "secrets: lists are passed over",
        "privacy/secrets",
        "    elif isinstance(value, list) and step == EACH:\n",
        "    elif isinstance(value, tuple) and step == EACH:\n",
        f"{_SECRETS}::test_people_see_asterisks",
    ),
    _bug(
        "secrets: a hidden one goes to the next item of a shorter list",
        "privacy/secrets",
        " and len(value) == len(stored):",
        ":\n        stored = stored[: len(value)]",
        f"{_SECRETS}::test_a_hidden_secret_is_that_of_no_other_place",
    ),
    _bug(
        "secrets: asterisks become the secret",
        "privacy/secrets",
        "        if _hides(_at(after, path)) and not _hides(_at(before, path)):",
        "        if False:",
        f"{_SECRETS}::test_a_hidden_secret_is_that_of_no_other_place",
    ),
    _bug(
        "secrets: fields of a line show them",
        "runtime/queue/job_log",
        "{name: _hidden(value, secrets) for name, value in extra.items()}",
        "{name: value for name, value in extra.items()}",
        f"{_LINES}the_lines_of_a_handler_show_no_secret",
    ),
    _bug(
        "secrets: the exception of a line shows them",
        "runtime/queue/job_log",
        'kwargs.pop("exc_info", None)',
        'kwargs.get("exc_info")',
        f"{_LINES}the_lines_of_a_handler_show_no_secret",
    ),
    _bug(
        "secrets: a process logs them",
        "runtime/executors/remote",
        "        self.secrets = secrets\n",
        "",
        "tests/executors/test_calls_of_children.py::test_lines_of_a_child_show_no_secret",
    ),
]
