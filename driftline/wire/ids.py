"""Identifiers: how studies, trials and packs are called, and how they are told apart again.

A study's id is 26 lower-case characters that sort by time of creation (a ULID: 48 bits of milliseconds and 80 random
bits in Crockford's base 32). A trial's id follows from what it is, so that creating it twice is harmless:
``01k6...x.fedavg.s00012`` is search trial 12 of label fedavg, ``....c00003`` confirmation trial 3.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from typing import NamedTuple

from driftline.errors import NotFound
from driftline.wire.records import Phase
from trainers import shown

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH = 26
_PHASES: dict[str, Phase] = {"s": "search", "c": "confirmation"}
_TRIAL = re.compile(r"(?P<study>[^.]+)\.(?P<label>[^.]+)\.(?P<phase>[sc])(?P<number>\d{5,})")


class TrialName(NamedTuple):
    """The parts of a trial's id."""

    study_id: str
    label: str
    phase: Phase
    number: int


def new_study_id(milliseconds: int | None = None, randomness: int | None = None) -> str:
    """A fresh id for a study: 26 lower-case characters, sortable by time of creation.

    Args:
        milliseconds: Time since 1970; now by default.
        randomness: 80 random bits; from the system by default.

    Examples:
        >>> new_study_id(0, 31)
        '0000000000000000000000000z'
    """
    stamp = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
    number = (stamp << 80) | (secrets.randbits(80) if randomness is None else randomness)
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(_LENGTH)))


def trial_id(study_id: str, label: str, phase: Phase, number: int) -> str:
    """The id of a trial, which follows from what it is.

    Args:
        study_id: Id of the study.
        label: Label of the entry; holds no dot (`Entry` sees to it).
        phase: "search" or "confirmation".
        number: Counts from 0 within label and phase.

    Examples:
        >>> trial_id("01k6", "fedavg", "search", 12)
        '01k6.fedavg.s00012'
    """
    return f"{study_id}.{label}.{phase[0]}{number:05d}"


def parse_trial_id(text: str) -> TrialName:
    """The parts of a trial's id.

    Raises:
        NotFound: The text is no trial's id.

    Examples:
        >>> parse_trial_id("01k6.fedavg.c00003")
        TrialName(study_id='01k6', label='fedavg', phase='confirmation', number=3)
    """
    match = _TRIAL.fullmatch(text)
    if match is None:
        raise NotFound(f"a trial's id looks like STUDY.LABEL.s00012, got {shown(text)}")
    return TrialName(match["study"], match["label"], _PHASES[match["phase"]], int(match["number"]))


def pack_id(study_id: str, attempt: int, number: int) -> str:
    """The id of a pack: the `number`-th that the driver of this attempt started.

    Examples:
        >>> pack_id("01k6", 2, 7)
        '01k6.p2.00007'
    """
    return f"{study_id}.p{attempt}.{number:05d}"


def holder() -> str:
    """Who this process is when it takes a lease: ``host/pid``."""
    return f"{socket.gethostname()}/{os.getpid()}"
