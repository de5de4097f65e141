"""Schedules as users and operators write them: checked here, then stored."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast, get_args

import msgspec
from msgspec import UNSET

from forge_jobs.clients.strikes import Strikes, with_strikes
from forge_jobs.errors import InvalidInput, NotFound, a_type
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.preparing import unencrypted
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import OPTION_NAMES, EnqueueRequest
from forge_jobs.handlers.routing import Router
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import EnqueueOutcome, NewJob, Unique
from forge_jobs.model.names import MAX_NAME_LENGTH, check_name
from forge_jobs.model.payloads import encode_json
from forge_jobs.model.schedules import CatchUp, Overlap, Schedule, ScheduleSpec
from forge_jobs.policy.cron import first_occurrence, parse_cron
from forge_jobs.privacy.encryption import Encryption, Part, origin_of
from forge_jobs.privacy.secrets import ORIGIN
from forge_jobs.storage.protocols import CronStore, Storage

SCHEDULE_OPTIONS = frozenset(
    {
        "queue",
        "priority",
        "max_attempts",
        "timeout",
        "tags",
        "metadata",
        "keep_result",
        "result_ttl",
        "concurrency_key",
        "sequence_key",
    }
)
"""Options of a request that a schedule gives to each of its jobs."""

MAX_JITTER = timedelta(days=1)
MAX_WINDOW = timedelta(days=366)
_DAY = timedelta(days=1)

# The key under which jobs of a schedule exclude each other must be a name too.
_MAX_SCHEDULE_NAME = MAX_NAME_LENGTH - len("cron:")


def schedule(
    name: str,
    what: EnqueueRequest | Handler[..., Any] | str,
    expression: str,
    *,
    timezone: str = "UTC",
    jitter: timedelta | float = 0,
    catch_up: CatchUp = "latest",
    window: timedelta | float = _DAY,
    overlap: Overlap = "allow",
    registry: HandlerRegistry | None = None,
    router: Router | None = None,
) -> ScheduleSpec:
    """Describe a recurring job: ``schedule("nightly", report.request("octo/repo"), "30 2 * * *")``.

    :param name: unique in the store. To change a schedule, declare the name again
    :param what: the request each occurrence enqueues, with the options queue, priority,
        max_attempts, timeout, tags, metadata, keep_result, result_ttl, concurrency_key and
        sequence_key. Or a handler, or a kind, without arguments
    :param expression: five cron fields, six with seconds last, ``@daily`` and the like, or ``@every
        90s``
    :param timezone: IANA name
    :param jitter: each job is due later by a random part of this, a timedelta or seconds
    :param catch_up: what to do with occurrences missed while nothing ran: ``skip`` them, fire the
        ``latest`` alone, or ``all`` of those within ``window``
    :param overlap: ``skip`` an occurrence while a job of the schedule is active. The option
        ``unique`` of the handler does not hold for jobs of a schedule
    :param registry: knows the handler of a kind: its defaults, and the form of its payload
    :param router: chooses the queue where neither request nor handler do
    :raises InvalidInput: a value is wrong. Names the field and the fix
    """
    check_name("name", name)
    if len(name) > _MAX_SCHEDULE_NAME:
        fix = f"give at most {_MAX_SCHEDULE_NAME}"
        raise InvalidInput("name", f"has {len(name)} characters", fix)
    # A key of the handler is for requests of programs, see docs/schedules.md.
    job, encryption = unencrypted(_request(what).options(unique=None), registry, router)
    if encryption is not None:
        job = _encrypted(job, f"schedule:{name}", encryption)
    spec = ScheduleSpec(
        name=name,
        queue=job.queue,
        kind=job.kind,
        expression=_text("expression", expression),
        payload=job.payload,
        timezone=_text("timezone", timezone),
        jitter=_within("jitter", check_duration("jitter", jitter), MAX_JITTER),
        catch_up=cast("CatchUp", _one_of("catch_up", catch_up, get_args(CatchUp))),
        window=_within("window", check_duration("window", window, above_zero=True), MAX_WINDOW),
        overlap=cast("Overlap", _one_of("overlap", overlap, get_args(Overlap))),
        priority=job.priority,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        tags=job.tags,
        metadata=job.metadata,
        keep_result=job.keep_result,
        result_ttl=job.result_ttl,
        limit_name=job.limit_name,
        limit_key=job.limit_key,
        sequence=job.sequence,
    )
    parse_cron(spec.expression, spec.timezone)
    return spec


def _encrypted(job: NewJob, origin: str, encryption: Encryption) -> NewJob:
    """Return the job with the payload encrypted for all jobs of the schedule.

    Equal definitions stay equal, so that a deploy does not count as a change.
    """
    metadata = msgspec.json.decode(job.metadata, type=dict[str, str])
    metadata[ORIGIN] = origin_of(origin, job.kind)
    payload = encryption.encrypt(
        job.payload, job_id=origin, kind=job.kind, part=Part.PAYLOAD, always_same=True
    )
    return msgspec.structs.replace(job, payload=payload, metadata=encode_json("metadata", metadata))


def declared_schedules(handlers: HandlerRegistry, router: Router | None) -> list[ScheduleSpec]:
    """Return the schedules that ``cron`` decorators of the registry declare.

    :raises InvalidInput: an option or argument is wrong. Names the field and the fix
    """
    return [
        schedule(
            recurring.name,
            recurring.handler.request(**recurring.arguments),
            recurring.expression,
            router=router,
            **recurring.options,
        )
        for recurring in handlers.recurring()
    ]


async def ensure_schedules(cron: CronStore, specs: Sequence[ScheduleSpec]) -> list[Schedule]:
    """Declare schedules from code, at every start of a process.

    A schedule that an operator edited or deleted stays so. A schedule with the same spec in the
    store stays as well. A new schedule first fires at its next occurrence, never at once, and so
    does a schedule with a new expression or time zone. Other changes keep the next occurrence: the
    catch-up policy judges an occurrence that was missed meanwhile.
    """
    now = await cron.now()
    return [await cron.ensure_schedule(spec, first_occurrence(spec, now)) for spec in specs]


async def put_schedule(cron: CronStore, spec: ScheduleSpec) -> Schedule:
    """Create or replace a schedule as an operator's edit, which stays over later deploys."""
    return await cron.put_schedule(spec, first_occurrence(spec, await cron.now()))


async def pause_schedule(cron: CronStore, name: str) -> Schedule:
    """Fire the schedule no more until :func:`resume_schedule`.

    :raises NotFound: no such schedule
    """
    return await cron.pause_schedule(name, True, None)


async def resume_schedule(cron: CronStore, name: str) -> Schedule:
    """Go on with the next occurrence from now. Occurrences of the pause are not made up for.

    :raises NotFound: no such schedule
    :raises InvalidInput: the stored expression is wrong. Edit the schedule first
    """
    stored = await cron.get_schedule(name)
    if stored is None:
        raise NotFound(f"no schedule is named {name!r}; forge-jobs cron list names all")
    next_at = first_occurrence(stored.spec, await cron.now())
    return await cron.pause_schedule(name, False, next_at)


async def trigger_now(storage: Storage, name: str) -> EnqueueOutcome:
    """Enqueue a schedule's job out of turn, by the same rules as a fire. The next time stays.

    With ``overlap="skip"`` and an active job of the schedule, the outcome names that job.

    :raises NotFound: no such schedule
    """
    schedule = await storage.cron.get_schedule(name)
    if schedule is None:
        raise NotFound(f"no schedule is named {name!r}; forge-jobs cron list names all")
    job, known = job_of(schedule.spec), Strikes(storage.config)
    await known.read_again()
    if known.judge is not None:
        job = known.judge(job)
    [outcome] = with_strikes([job], [await storage.cron.trigger(name, job)])
    return outcome


def job_of(spec: ScheduleSpec) -> NewJob:
    """Make a job of the schedule that is due now."""
    unique = Unique(f"cron:{spec.name}") if spec.overlap == "skip" else None
    return NewJob(
        id=new_job_id(),
        queue=spec.queue,
        kind=spec.kind,
        payload=spec.payload,
        priority=spec.priority,
        max_attempts=spec.max_attempts,
        unique=unique,
        timeout=spec.timeout,
        tags=spec.tags,
        metadata=spec.metadata,
        keep_result=spec.keep_result,
        result_ttl=spec.result_ttl,
        schedule=spec.name,
        limit_name=spec.limit_name,
        limit_key=spec.limit_key,
        sequence=spec.sequence,
    )


def _request(what: EnqueueRequest | Handler[..., Any] | str) -> EnqueueRequest:
    if isinstance(what, Handler):
        return what.request()
    if isinstance(what, str):
        return EnqueueRequest(what)
    if not isinstance(what, EnqueueRequest):
        fix = "give handler.request(...), a handler, or a kind"
        raise InvalidInput("what", f"is {a_type(what)}", fix)
    plain = EnqueueRequest(what.kind)
    for option in sorted(OPTION_NAMES - SCHEDULE_OPTIONS):
        given = getattr(what, option)
        if given is not UNSET and given != getattr(plain, option):
            raise InvalidInput(
                option,
                "cannot be an option of a schedule",
                f"leave it out; a schedule takes {', '.join(sorted(SCHEDULE_OPTIONS))}",
            )
    return what


def _text(field: str, value: object) -> str:
    fix = f"give a string of 1 to {MAX_NAME_LENGTH} characters"
    if not isinstance(value, str):
        raise InvalidInput(field, f"is {a_type(value)}", fix)
    if not 0 < len(value) <= MAX_NAME_LENGTH:
        raise InvalidInput(field, f"has {len(value)} characters", fix)
    return value


def _within(field: str, duration: timedelta, most: timedelta) -> timedelta:
    if duration > most:
        raise InvalidInput(field, f"is {duration}", f"give at most {most}")
    return duration


def _one_of(field: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidInput(field, f"is {value!r}", f"give one of {', '.join(allowed)}")
    return str(value)
