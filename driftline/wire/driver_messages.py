"""Bodies of the driver's requests and their answers.

Every write carries the attempt under which the driver holds the study; a stale one is answered with `StaleDriver`.
"""

from __future__ import annotations

import base64
import itertools
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, PlainSerializer, WithJsonSchema, model_validator

from driftline.wire.curve_codec import head
from driftline.wire.records import Hyperparameters, Phase, Record, Values

Desired = Literal["run", "pause", "cancel"]
Outcome = Literal["COMPLETE", "DIVERGED", "FAILED", "WAITING"]
Released = Literal["SUCCEEDED", "FAILED", "PAUSED", "CANCELLED"]


def _bytes(value: object) -> object:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


def _rising(blocks: list[bytes]) -> list[bytes]:
    heads = [head(block) for block in blocks]
    if any(after.first <= before.last for before, after in itertools.pairwise(heads)):
        raise ValueError("the rounds of a trial's blocks must increase")
    return blocks


Block = Annotated[
    bytes,
    BeforeValidator(_bytes),
    PlainSerializer(lambda block: base64.b64encode(block).decode("ascii"), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
Blocks = Annotated[list[Block], AfterValidator(_rising)]
"""Rounds of one trial as `curve_codec.encode` packs them; in JSON as base64. Only their heads are checked here."""


class Acquire(Record):
    """POST driver:acquire. Takes the study when it is free, or when its lease has expired.

    Attributes:
        holder: Who asks, as `names.holder` says it.
    """

    holder: str = Field(min_length=1, max_length=200)


class Lease(Record):
    """Answer to `Acquire`: the driver holds the study under this attempt, until it is silent for the lease's time."""

    attempt: int = Field(ge=1)
    lease_seconds: float = Field(gt=0)


class Heartbeat(Record):
    """POST driver:heartbeat. Renews the lease."""

    attempt: int


class HeartbeatAnswer(Record):
    """What the study's owner wants the driver to do."""

    desired: Desired


class NewTrial(Record):
    """A trial to be created; see `TrialRecord` for the fields."""

    label: str
    phase: Phase
    number: int = Field(ge=0)
    seed: int
    configuration: int = Field(ge=0)
    hyperparameters: Hyperparameters

    @model_validator(mode="after")
    def _own_number(self) -> Self:
        if self.phase == "search" and self.configuration != self.number:
            problem = f"configuration must be the number of a search trial, {self.number}, got {self.configuration}"
            raise ValueError(problem)
        return self


class CreateTrials(Record):
    """POST trials; answered with a `TrialPage` in the order given. The same again is harmless, a different one 409."""

    attempt: int
    trials: list[NewTrial]


class StartPack(Record):
    """POST packs: these trials run from now on; each one's attempt grows by 1. Answered with a `TrialPage`.

    Attributes:
        attempt: The driver's.
        pack: Id of the pack.
        trials: Ids of its trials, in the order of its members.
        gpus: GPUs that it has, or its share of one; counted against the project's quota.
    """

    attempt: int
    pack: str
    trials: list[str] = Field(min_length=1)
    gpus: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False, strict=True)


class Report(Record):
    """POST reports: what a pack has reported since last time; upserted on (trial, round). Answered with `Stored`.

    Attributes:
        attempt: The driver's.
        pack: Id of the pack.
        reports: New rounds by trial id.
        rounds_done: Server updates done by every trial of the pack.
        checkpoint: Where the newest checkpoint that the pack has written or restored lies; None leaves the old one.
        plan: How the pack is computed; None leaves the old one.
    """

    attempt: int
    pack: str
    reports: dict[str, Blocks] = Field(default_factory=dict)
    rounds_done: int = Field(ge=0)
    checkpoint: str | None = None
    plan: dict[str, JsonValue] | None = None


class TrialResult(Record):
    """How a trial ended; WAITING hands it back to be run again.

    Attributes:
        trial: Id of the trial.
        state: COMPLETE (with values), DIVERGED, FAILED (with an error) or WAITING.
        values: What the sampler hears.
        error: Why it failed.
        deaths: As in `TrialRecord`, when its worker has died; None leaves what is stored.
        death_round: As in `TrialRecord`, when its worker has died; None leaves what is stored.
    """

    trial: str
    state: Outcome
    values: Values | None = None
    error: str | None = None
    deaths: int | None = Field(default=None, ge=1)
    death_round: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _values_of_the_complete(self) -> Self:
        if (self.state == "COMPLETE") != (self.values is not None):
            raise ValueError(f"values belong to a COMPLETE trial and to no other, got state={self.state}")
        return self


class Results(Record):
    """POST results, answered with `Stored`. A finished state is final: the same again is harmless, another is 409."""

    attempt: int
    results: list[TrialResult]


class Stored(Record):
    """Answer to `Report` and `Results`.

    Attributes:
        version: The study's version afterwards.
        desired: What the study's owner wants the driver to do.
    """

    version: int
    desired: Desired = "run"


class Release(Record):
    """POST driver:release: the driver lets go of the study and says how it ended."""

    attempt: int
    state: Released
    reason: str = ""
