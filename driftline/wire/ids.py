"""Identifiers of studies, trials and packs.

A study's id is 26 lower-case characters that sort by time of creation (a ULID: 48 bits of milliseconds and 80 random
bits in Crockford's base 32). A trial's id is made from its study, label, phase and number, so that creating it twice is
harmless: ``01k6...x.fedavg.s00012`` is search trial 12 of label fedavg, ``....c00003`` confirmation trial 3.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time

from driftline.wire.records import Phase

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH = 26
_RANDOM_BITS = 80
_turn = threading.Lock()
_last = 0  # the last random id of this process, as a number


def new_study_id(milliseconds: int | None = None, randomness: int | None = None) -> str:
    """A fresh id for a study: 26 lower-case characters, sortable by time of creation, also within a millisecond.

    Args:
        milliseconds: Time since 1970; now by default.
        randomness: 80 random bits; from the system by default.

    Examples:
        >>> new_study_id(0, 31)
        '0000000000000000000000000z'
    """
    stamp = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
    number = (stamp << _RANDOM_BITS) | (_increasing(stamp) if randomness is None else randomness)
    return "".join(_ALPHABET[number >> 5 * position & 31] for position in reversed(range(_LENGTH)))


def _increasing(stamp: int) -> int:
    """80 random bits; after the last ones if this process has made an id in the same millisecond."""
    global _last
    with _turn:
        after, bits = _last + 1, secrets.randbits(_RANDOM_BITS - 1)  # half of the range is left for what follows
        if after >> _RANDOM_BITS == stamp:
            bits = after - (stamp << _RANDOM_BITS)
        _last = (stamp << _RANDOM_BITS) | bits
        return bits


def trial_id(study_id: str, label: str, phase: Phase, number: int) -> str:
    """The id of a trial, made from its study, label, phase and number.

    Args:
        study_id: Id of the study.
        label: Label of the entry, without a dot (checked by `Entry`).
        phase: "search" or "confirmation".
        number: Counts from 0 within label and phase.

    Examples:
        >>> trial_id("01k6", "fedavg", "search", 12)
        '01k6.fedavg.s00012'
    """
    return f"{study_id}.{label}.{phase[0]}{number:05d}"


def pack_id(study_id: str, attempt: int, number: int) -> str:
    """The id of a pack: the `number`-th that the driver of this attempt started.

    Examples:
        >>> pack_id("01k6", 2, 7)
        '01k6.p2.00007'
    """
    return f"{study_id}.p{attempt}.{number:05d}"


def holder() -> str:
    """The name of this process as the holder of a lease: ``host/pid``."""
    return f"{socket.gethostname()}/{os.getpid()}"
