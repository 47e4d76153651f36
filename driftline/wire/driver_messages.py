"""Bodies of a driver's requests, and their answers.

Every write carries the driver's attempt. If another driver has taken over since, the answer is `StaleDriver`.
"""

from __future__ import annotations

import base64
import itertools
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from driftline.errors import InvalidRequest, InvalidSpec
from driftline.study.validation import dotted
from driftline.wire.curve_codec import check_block, head
from driftline.wire.logs import Storable
from driftline.wire.records import Hyperparameters, Phase, Record, StudyPlan, Values

PROTOCOL = 4
"""Version of these messages. It increases with a change that an older API would refuse or ignore.

Every answer of an API has it in the header `PROTOCOL_HEADER`. A driver waits until the API has at
least its own version. `Acquire`, `Heartbeat` and `Release` never change, so that waiting drivers keep their leases.
"""

PROTOCOL_HEADER = "Driftline-Protocol"

CODE_HEADER = "Driftline-Code"
"""Every answer of an API has a digest of its code in this header."""

NONCE_HEADER = "Driftline-Nonce"
"""Random text that a driver sends with every request. After a backup was restored, two drivers may have the same
attempt; this tells them apart."""

_LEAST_BYTES = 1024
"""Every block counts as at least this large: checking one takes time even if it is tiny."""

Desired = Literal["run", "pause", "cancel"]
Outcome = Literal["COMPLETE", "STOPPED", "DIVERGED", "FAILED", "WAITING"]
Released = Literal["SUCCEEDED", "FAILED", "PAUSED", "CANCELLED"]


def _decoded(block: object) -> object:
    return base64.b64decode(block, validate=True) if isinstance(block, str) else block


Block = Annotated[
    bytes,
    BeforeValidator(_decoded),
    PlainSerializer(lambda block: base64.b64encode(block).decode("ascii"), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]


def _ascending(blocks: list[bytes]) -> list[bytes]:
    segments = [head(block).segment for block in blocks]
    if any(after <= before for before, after in itertools.pairwise(segments)):
        raise ValueError("blocks must be of different segments, in ascending order")
    return blocks


Blocks = Annotated[list[Block], AfterValidator(_ascending)]
"""New rounds of one trial, from `curve_codec.encode`; base64 in JSON. Parsing checks only the heads."""


class Acquire(Record):
    """POST driver:acquire. Takes the study if it is free or its lease has expired.

    Attributes:
        holder: Name of the driver's process, from `driftline.wire.ids.holder`.
    """

    holder: str = Field(min_length=1, max_length=200)


class Lease(Record):
    """Answer to `Acquire`: the driver holds the study under this attempt until it is silent for `lease_seconds`."""

    attempt: int = Field(ge=1)
    lease_seconds: float = Field(gt=0)


class DataUrls(Record):
    """What the URLs of a study's data must begin with, see `trainers.UrlPrefix`; null for any."""

    prefixes: list[str] | None


class Heartbeat(Record):
    """POST driver:heartbeat. Renews the lease."""

    attempt: int


class HeartbeatAnswer(Record):
    """What the study's owner wants the driver to do."""

    desired: Desired


class StorePlan(Record):
    """POST plan. Answered with the stored `StudyPlan`, which keeps the exceptions that were stored before.

    Attributes:
        attempt: The driver's attempt.
        plan: The plan, from now on; its own exceptions are added to the stored ones.
        reason: Why it changes; becomes an event of the study, and an exception. "" for the first plan.
    """

    attempt: int
    plan: StudyPlan
    reason: str = ""


class NewTrial(Record):
    """A trial to create; see `TrialRecord` for the fields."""

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
    """POST trials. Answered with a `TrialPage` in the given order.

    Repeating the request is harmless; another trial under the same id gives 409.
    """

    attempt: int
    trials: list[NewTrial]


class StartPack(Record):
    """POST packs: marks trials as running, and increments the attempt of each. Answered with a `TrialPage`.

    Attributes:
        attempt: The driver's attempt.
        pack: Id of the pack.
        trials: Ids of its trials, in the order of its members.
        gpus: Number of its GPUs, or its share of one; counted against the project's quota.
    """

    attempt: int
    pack: str
    trials: list[str] = Field(min_length=1)
    gpus: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False, strict=True)


class Report(Record):
    """POST reports: new reports of a pack, upserted on (trial, round). Answered with `Stored`.

    Attributes:
        attempt: The driver's attempt.
        pack: Id of the pack.
        reports: New rounds by trial id.
        rounds_done: Server updates done by every trial of the pack.
        checkpoint: Location of the newest checkpoint that the pack has written or restored; None keeps the stored one.
        plan: How the pack is computed; None keeps the stored plan.
        after: For trials that may leave out rounds, those of programs: the round that they were stored up to before,
            as far as the driver knows. None: the reports leave out no round.
    """

    attempt: int
    pack: str
    reports: dict[str, Blocks] = Field(default_factory=dict)
    rounds_done: int = Field(ge=0)
    checkpoint: str | None = None
    plan: dict[str, JsonValue] | None = None
    after: int | None = Field(default=None, ge=0)

    def check_blocks(self, most: int) -> None:
        """Refuse blocks that no worker sends, and blocks of more than `most` bytes in total after decompression.

        A driver may send anything; all readers trust what is stored.

        Raises:
            InvalidSpec: A block is invalid.
            InvalidRequest: The blocks are too large.
        """
        size = sum(max(head(block).size, _LEAST_BYTES) for blocks in self.reports.values() for block in blocks)
        if size > most:
            raise InvalidRequest("reports", f"must have at most {most} bytes decompressed (body_bytes), got {size}")
        for trial, blocks in self.reports.items():
            for number, block in enumerate(blocks):
                try:
                    check_block(block)
                except ValueError as error:
                    raise InvalidSpec(dotted(["reports", trial, number]), str(error)) from None


class TrialResult(Record):
    """How a trial ended; WAITING returns it, to be run again.

    Attributes:
        trial: Id of the trial.
        state: COMPLETE (with values), STOPPED (at a rung), DIVERGED, FAILED (with an error) or WAITING.
        values: The objectives' values for the sampler.
        error: Why it failed.
        rounds_done: Rounds that the driver has reported. A database that holds fewer was replaced by an older backup:
            the API refuses the result, so that no finished trial lacks rounds. None checks nothing.
        deaths: As in `TrialRecord`, if its worker has died; None keeps the stored value.
        death_round: As in `TrialRecord`, if its worker has died; None keeps the stored value.
    """

    trial: str
    state: Outcome
    values: Values | None = None
    error: Storable | None = None
    rounds_done: int | None = Field(default=None, ge=0)
    deaths: int | None = Field(default=None, ge=1)
    death_round: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _values_of_the_complete(self) -> Self:
        if (self.state == "COMPLETE") != (self.values is not None):
            raise ValueError(f"values belong to a COMPLETE trial only, got state={self.state}")
        return self


class Results(Record):
    """POST results. Answered with `Stored`.

    A finished state is final: repeating it is harmless, another one gives 409.
    """

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
    """POST driver:release: the driver releases the study and says how it ended."""

    attempt: int
    state: Released
    reason: Storable = ""
