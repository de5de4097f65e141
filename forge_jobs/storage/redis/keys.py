"""The names of all keys.

All that must change in one step lives in one hash slot, so that a cluster can spread the rest. One
slot has a queue with jobs, unique keys, slots and counters. Another has the fleet with pods,
leader, schedules and rate limits. A key begins with its *base*, ``prefix:{tag}``. Scripts get bases
as their declared keys, and name the keys under the bases, always in the same slot.

Under the base of a queue
-------------------------
===================== ========= ==================================================================
``queue``             hash      settings, pause, cool-down, versions and sequence numbers
``slots``             hash      pod -> lease here, target and grant
``j:<id>``            hash      a job. The field ``more`` stands on each that is not plain: that has
                                a key, tags, schedule, parents, children, expiry, time for its
                                result, recorded start or wish to cancel, or has waited again after
                                a claim. Of others claims and ends do not read these fields
                                ``group`` is the group of the newest failure
``err:<id>``          list      error records of the job, oldest first
``prog:<id>``         hash      last progress, and how far the log of each attempt goes
``log:<id>:<number>`` list      lines of the log of an attempt, oldest first
``ckpt:<id>``         string    checkpoint of the job
``lines``             zset      the lines that hold ready jobs, by priority and by a time before
                                which no job of the line is due (``bounds.lua``)
``ready:<line>``      zset      ready jobs of one line, by due time. A line is one priority and
                                kind, split by whether the job has a crash on record: a claim
                                looks at no job that it may not take
``held``              zset      jobs on hold, ``held:<kind>`` those of one kind. Others than those
                                that wait for a limit
``at_most``           hash      limit -> how many jobs of each of its keys may be in progress,
                                and the share behind a slash
``using:<permit>``    zset      claims of jobs of one limit and key, by when. See ``permits.lua``
``parked:<permit>``   zset      jobs on hold until one of these ends, in the order of the queue.
                                ``parks`` (zset) all permits with such jobs
``struck:<mark>``     zset      jobs that a strike holds, in the order of the queue. ``struck``
                                (zset) all marks of strikes with such jobs
``turns``             zset      permits of limits with a share that have jobs on hold and room, by
                                when each had its last turn. See ``turning.lua``
``sequences``         hash      key of a sequence -> the last job, while that is stored
``claimed``           zset      claims, by their last beat: the list of jobs in progress too
``own:<host>``        set       claims of one pod. ``owners`` (hash) how many each has
``started``           zset      claims whose start is known
``s:<status>``        zset      jobs of any other status, by id. Also ``kind:``, ``tag:``, ``key:``,
                                ``schedule:``, ``group:``, for lists
``unique``            hash      unique key, or another place of one -> the active job that holds it
``cool:<key>``        string    the job that opened the window of a key, when, and until when it
                                lasts. Ends by itself
``merged:<id>``       string    the job that has the content of the request with this id, and until
                                when that is known. Ends by itself
``expiring``          zset      waiting jobs, by ``expires_at``
``ended:<status>``    zset      jobs that have ended, by when
``results``           zset      results with a time of their own, by the end of that time
``waits:<id>``        hash      parents of a job -> the state of its edge, what a failure means to
                                it, and the number of the newest end that counted
``kids:<id>``         hash      children whose edge to a job has not settled -> queue tag and
                                failure policy. Read at the next end of the job
``kin:<id>``          zset      all children of a job, each with its queue tag, also those that
                                wait no more. Goes with the job
``told:<seq>``        hash      the children of a job that has ended, still to be settled.
                                ``handovers`` (zset) lists these
``letter:<id> <token>`` hash    what a dead job leaves for another queue, until it is stored there.
                                ``letters:<queue>`` (zset) lists those for a queue, by when, and
                                ``letters`` (zset) the queues
``m:<minute>``        hash      counters. ``l:<minute>`` histograms. Both end by themselves.
                                ``minutes`` (zset) all, ``unfolded`` those with rows of pods
``hm:<hour>``         hash      counters of an hour that is past its minutes. ``hl:<hour>``
                                histograms. ``hours`` (zset) all
``eg:<group>``         hash      a group of failures. ``errors`` (zset) all, by their last failure
``eh:<hour>``          hash      group -> its failures in each minute of an hour. ``error_hours``
                                (zset) all hours
``fm:<minute>``        hash      kind -> what flowed and waited in a minute, "" for the queue.
                                ``fh:<hour>`` in an hour. ``flow_minutes`` and ``flow_hours``
                                (zset) all. ``flow_totals`` (hash) in all
``fired:<number>``    string    what became of a record of the outbox here. Ends by itself
``events``            zset      timeline, by time. ``event_seq`` (string) the last number.
                                ``ev:<id>`` (list) that of one job, ends by itself
``unlocated``         zset      jobs whose locators are to be written later
``gone``              zset      jobs removed, by when, until their locators are taken away
``act:<id>``          hash      how far an action of operators has come here. ``acted:<id>`` (list)
                                the jobs that it has met, by id. Both end by themselves
``barred``            zset      jobs that may not be stored here by a locator with this mark, or an
                                earlier one. Ends by itself
===================== ========= ==================================================================

Under the base of the fleet
---------------------------
===================== ========= ==================================================================
``queues``            set       the names of all queues, each added before its record is made
``pods``              zset      pods, by when their lease runs out. ``pod:<host>`` (hash) each
``ask:<id>``          hash      a request to a pod. ``asks:<host>`` (list) those to one
                                pod. Both end by themselves
``leader``            hash      holder, term, begin and end of the leader lease
``schedules``         hash      name -> schedule, deleted ones too. ``due`` (zset) those that fire
``outbox``            hash      number -> what a schedule has fired and no queue has got yet.
                                ``outbox_seq`` the last number
``kinds``             hash      kind -> when a pod last described the kind, and how
``limits``            hash      scope -> rate limit and the state of its bucket
``strikes``           hash      name -> when a strike was set, and its rule
``rates``             hash      scope and key -> the bucket of a key of a rate limit
``rates_idle``        zset      the same, by when they are full
``g:<minute>``        hash      gauges of the pods, end by themselves. ``gauges`` (zset) the minutes
``hg:<hour>``         hash      the last gauges of an hour. ``pod_hours`` (zset) the hours
``fm:<minute>``       hash      series of the whole store, with ``fh:<hour>`` and lists, as above
``actions``           zset      actions of operators, by id. ``action:<id>`` (hash) the record of
                                each, ends by itself
``schema``            hash      number of a layout -> when it came
``events``            zset      timeline of what concerns no queue, as above
===================== ========= ==================================================================

``prefix:{@n.i}:ids`` are hashes id -> queue, second and mark, the locators. One is written before
its job, and one without a job means nothing. On one server, and in a cluster that was not moved
yet, they are ``prefix:{@n}:ids``. In their place stands a string once they are moved. While the
move is under way the remains are ``prefix:{@n}:from``. See ``places.py``.
"""

import re
import zlib
from binascii import crc_hqx
from functools import cache, lru_cache
from itertools import count
from urllib.parse import quote, unquote

from forge_jobs.errors import InvalidInput

HASHES = 48
"""Over how many hashes the locators of a cluster are spread, a multiple of :data:`OLD_HASHES`."""

OLD_HASHES = 16
"""Over how many those of one server are, and of a cluster before layout 2."""

_SLOTS = 16_384

_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_BASE = re.compile(r"\{(?P<tag>[^}]*)\}")


class Keys:
    """The keys of one store.

    :param prefix: the begin of every key
    :param database: the number of the database. Channels are shared by all databases
    :raises InvalidInput: the prefix could be mistaken for something else in a key
    """

    def __init__(self, prefix: str, database: int = 0) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise InvalidInput(
                "url", "has an unusable prefix", "give 1 to 100 letters, digits, or any of _ . : -"
            )
        self.prefix = prefix
        self.fleet = f"{prefix}:{{#}}"
        self.channel = f"{prefix}:wake:{database}"
        """The channel of the fleet. The channel of a queue begins with the same text."""
        self.first_channel = f"{prefix}:wake"
        """Of programs before version 2 of the wake-ups, which publish all they do there."""

    def queue(self, name: str) -> str:
        """Return the base of a queue. The tag is the name, percent-encoded."""
        return f"{self.prefix}:{{{queue_tag(name)}}}"

    def channel_of(self, queue: str) -> str:
        """The channel for what comes to the queue."""
        return f"{self.channel}:{{{queue_tag(queue)}}}"

    def locators(self, job_id: str) -> str:
        """The hash that says which queue the job is in, where locators are spread."""
        return self._spread(zlib.crc32(job_id.encode()) % HASHES)

    def all_locators(self, number: int) -> list[str]:
        """The hashes to which the ids of one old hash are spread."""
        return [self._spread(each) for each in range(number, HASHES, OLD_HASHES)]

    def old_locators(self, number: int) -> str:
        """The base of one old hash of locators."""
        return f"{self.prefix}:{{@{number}}}"

    def _spread(self, number: int) -> str:
        return f"{self.prefix}:{{{locator_tag(number)}}}:ids"


def old_hash(job_id: str) -> int:
    """The number of the old hash that says, or said, which queue the job is in."""
    return zlib.crc32(job_id.encode()) % OLD_HASHES


@cache
def locator_tag(number: int) -> str:
    """Return the tag of a hash of locators, with a slot in the middle of the share of the hash.

    So servers with a range of slots each have their exact share of the locators. By chance one of
    three servers had half of sixteen hashes.
    """
    share = _SLOTS / HASHES
    tags = (f"@{number}.{attempt}" for attempt in count())
    return next(
        tag
        for tag in tags
        if abs(crc_hqx(tag.encode(), 0) % _SLOTS - (number + 0.5) * share) < share / 8
    )


@lru_cache(maxsize=1000)
def queue_tag(name: str) -> str:
    """Return a queue's name as it stands between the braces of the base."""
    return quote(name, safe="")


def queue_of(base_or_tag: str) -> str:
    """The queue whose base or tag that is."""
    found = _BASE.search(base_or_tag)
    return unquote(found["tag"] if found else base_or_tag)
