"""Bugs of spread windows and of jobs that begin again, with the test that catches each."""

from tests.meta.bugs import Bug, Edit

_SPREAD = "tests/unit/test_spreading.py::"


def _bug(name: str, module: str, old: str, new: str, test: str, backend: str = "sqlite") -> Bug:
    suffix = "" if "." in module else ".py"
    return Bug(name, (test,), (Edit(f"forge_jobs/{module}{suffix}", old, new),), backend)


AGAIN_BUGS = [
    _bug(
        "spread: the window is part of the fingerprint",
        "handlers/preparing",
        "    job = _finished(job, own or encryption, has_own_id=request.id is not None)\n"
        "    return spread_out(job, request, _defaults_of(request, registry))\n",
        "    job = spread_out(job, request, _defaults_of(request, registry))\n"
        "    return _finished(job, own or encryption, has_own_id=request.id is not None)\n",
        f"{_SPREAD}TestOne::test_a_repeat_with_another_window_is_the_same_request",
    ),
    _bug(
        "spread: all jobs of a call at one moment of their steps",
        "handlers/spreading",
        "digest_size=8).digest())",
        "digest_size=8).digest()) * 0",
        f"{_SPREAD}TestMany::test_each_job_has_a_step_of_its_own",
    ),
    _bug(
        "spread: the moment is not that of the id",
        "handlers/spreading",
        "hashlib.blake2b(job_id.encode(), digest_size=8).digest()",
        "__import__('os').urandom(8)",
        f"{_SPREAD}TestOne::test_one_id_has_one_moment",
    ),
    _bug(
        "spread: in place of the delay",
        "handlers/spreading",
        "delay=(job.delay or _ZERO) + later",
        "delay=later",
        f"{_SPREAD}TestOne::test_the_part_comes_on_top_of_delay_and_run_at",
    ),
    _bug(
        "spread: requests alike share the moment of the first",
        "handlers/preparing",
        "        jobs.append(spread_out(job, request, defaults))\n",
        "        jobs.append(spread_out(job, request, defaults))\n        like = jobs[-1]\n",
        f"{_SPREAD}TestMany::test_without_a_window_each_request_has_its_own",
    ),
]
