"""What is stored and what travels: studies, trials, events, and the pages they come in.

Used by the store, the API, the clients, the driver and the SDK alike; JSON throughout, times in UTC.
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from driftline.study.spec import Study

StudyState = Literal[
    "PENDING", "QUEUED", "RUNNING", "PAUSING", "PAUSED", "CANCELLING", "CANCELLED", "SUCCEEDED", "FAILED"
]
TrialState = Literal["WAITING", "RUNNING", "COMPLETE", "DIVERGED", "FAILED", "CANCELLED"]
Phase = Literal["search", "confirmation"]
Hyperparameters = dict[str, JsonValue]
"""One value for every hyperparameter, by dotted name: client_lr, server.momentum, schedule.window."""

STUDY_FINISHED: frozenset[str] = frozenset({"CANCELLED", "SUCCEEDED", "FAILED"})
TRIAL_FINISHED: frozenset[str] = frozenset({"COMPLETE", "DIVERGED", "FAILED", "CANCELLED"})


class Record(BaseModel):
    """Base of everything on the wire: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Values(Record):
    """What the sampler hears of a complete trial; both are larger when better.

    Attributes:
        quality: Tail of the chosen metric, sign turned for metrics that fall.
        speed: Mean of that quality over log10 cost.
    """

    quality: float = Field(allow_inf_nan=False)
    speed: float = Field(allow_inf_nan=False)


class TrialRecord(Record):
    """One configuration of all hyperparameters, trained with one seed, and how far it has come.

    Attributes:
        id: As `names.trial_id` makes it.
        study_id: Its study.
        label: Its entry.
        phase: "search", or "confirmation" for the best configurations again on fresh seeds.
        number: Counts from 0 within label and phase.
        seed: Seed of cohorts, batches and initial model.
        configuration: Number of the search trial with these hyperparameters: its own in the search.
        hyperparameters: Dotted name to value.
        state: WAITING, RUNNING, or finished: COMPLETE, DIVERGED, FAILED, CANCELLED.
        attempt: How often it has been handed to a pack.
        rounds_done: Server updates reported so far.
        pack: Pack that runs it, or ran it last.
        plan: How it is computed (oracle, width, threads); forced when it is resumed.
        checkpoint: Where its newest checkpoint lies.
        values: What the sampler hears; None unless COMPLETE.
        error: Why it FAILED.
        deaths: How often in a row its worker has died without a newer checkpoint in between.
        death_round: Round of its newest checkpoint when its worker last died; None before the first death.
        created_at: When it was asked for.
        updated_at: When it last changed.
    """

    id: str
    study_id: str
    label: str
    phase: Phase
    number: int = Field(ge=0)
    seed: int
    configuration: int = Field(ge=0)
    hyperparameters: Hyperparameters
    state: TrialState = "WAITING"
    attempt: int = 0
    rounds_done: int = 0
    pack: str | None = None
    plan: dict[str, JsonValue] | None = None
    checkpoint: str | None = None
    values: Values | None = None
    error: str | None = None
    deaths: int = 0
    death_round: int | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def finished(self) -> bool:
        """Whether it has ended; only a FAILED one may run again, when the study's owner retries it."""
        return self.state in TRIAL_FINISHED


class LabelProgress(Record):
    """How far one label has come.

    Attributes:
        search: Number of search trials by state.
        confirmation: Number of confirmation trials by state.
        rounds_done: Rounds reported, over all its trials.
        rounds_total: Rounds that it will take as far as is known now (diverged trials shorten it).
    """

    search: dict[TrialState, int] = {}
    confirmation: dict[TrialState, int] = {}
    rounds_done: int = 0
    rounds_total: int = 0


class StudyRecord(Record):
    """A study as it is stored.

    Attributes:
        id: As `names.new_study_id` makes it.
        name: The study's own name; need not be unique.
        project: Who it belongs to.
        state: PENDING, QUEUED, RUNNING, PAUSING, PAUSED, CANCELLING, or finished: CANCELLED, SUCCEEDED, FAILED.
        reason: Why it is in this state, in one line; "" when there is nothing to say.
        spec: The study as `Study.to_json` gives it.
        fingerprint: `Study.fingerprint` of it.
        version: Grows with every stored result.
        progress: How far each label has come.
        mlflow_url: Where its curves can be seen, once they can.
        created_at: When it was submitted.
        updated_at: When it last changed.
        started_at: When a driver first took it.
        finished_at: When it finished.
    """

    id: str
    name: str
    project: str = "default"
    state: StudyState = "PENDING"
    reason: str = ""
    spec: dict[str, Any]
    fingerprint: str = ""
    version: int = 0
    progress: dict[str, LabelProgress] = {}
    mlflow_url: str | None = None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @cached_property
    def study(self) -> Study:
        """The study that `spec` holds; read once, when it is needed first."""
        return Study.from_json(self.spec)

    @property
    def finished(self) -> bool:
        """Whether its state is final."""
        return self.state in STUDY_FINISHED


class StudyPage(Record):
    """Studies, newest first."""

    studies: list[StudyRecord]
    next_page_token: str | None = None


class TrialPage(Record):
    """Trials in the order label, phase (search before confirmation), number."""

    trials: list[TrialRecord]
    next_page_token: str | None = None


class Event(Record):
    """One line of a study's history, as sent over /events.

    Attributes:
        id: Grows within the study; what Last-Event-ID names.
        study_id: Its study.
        kind: "state" (data: state, reason), "progress" (data: version, progress), "log" (data: level, message).
        data: What happened.
        created_at: When.
    """

    id: int
    study_id: str
    kind: Literal["state", "progress", "log"]
    data: dict[str, JsonValue] = {}
    created_at: datetime
