"""Settings of trials: those that a study gives all its trials, and those that an entry may set for its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field as Key
from pydantic import JsonValue

from driftline.study.validation import Section, Whole, auto_or_number

MOST_ROUNDS = 1_000_000_000
LARGEST = 2**53
"""Largest seed, cohort and batch, far above any real one: every database and random generator represents it."""


class EntrySettings(Section):
    """Settings that an entry may set for itself; an entry that does not has the study's.

    Attributes:
        clients_per_round, batch_size, eval_every: As in a trial; None leaves them to the study or the task.
        upload: ``int8`` or ``int4``, to quantise what clients return; None sends numbers as they are.
        stragglers: Clients that take a part of their local steps, or are dropped; None is none.
        fragments: In how many parts the model is exchanged, one a round; None exchanges all of it.
        weighting: How clients are weighted, in the training of an entry or of all; metrics have the study's.
    """

    clients_per_round: Annotated[Whole, Key(le=LARGEST)] | None = None
    batch_size: Annotated[Whole, Key(le=LARGEST)] | None = None
    weighting: str | None = None
    upload: str | None = None
    stragglers: dict[str, JsonValue] | None = None
    fragments: Annotated[Whole, Key(le=LARGEST)] | None = None
    eval_every: Annotated[int | Literal["auto"] | None, auto_or_number(least=1, most=LARGEST, whole=True)] = None


class TrialSettings(EntrySettings):
    """Settings that a study gives its trials unchanged.

    Attributes:
        batching, drop_last, dtype, loss_data, init, report, adaptation: As in a trial; None leaves them to the task.
    """

    batching: str | None = None
    drop_last: bool | None = None
    dtype: str | None = None
    loss_data: str | None = None
    init: JsonValue = None
    report: list[str] | None = None
    adaptation: dict[str, JsonValue] | None = None


OWN = tuple(EntrySettings.model_fields)
SIZES = ("clients_per_round", "batch_size")
"""Settings that an entry may have in its space instead, so that each configuration has its own."""

SHARED = tuple(TrialSettings.model_fields)
