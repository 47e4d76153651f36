"""Measurements of a project's earlier studies: time, traffic and gradients per round."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from service.store import progress
from service.store.curve_segments import arrays
from service.store.schema import CURVE_SEGMENTS, PACKS, STUDIES, TRIALS
from service.store.session import KEPT, StorePart
from service.store.states import DRIVEN
from service.store.stored_spec import StoredSpec
from trainers import ROLES

COUNTERS = ("client_gradients", "bytes_up", "bytes_down")
_LATEST = 20  # maximum number of studies read
_TRIALS = 8  # maximum number of trials of a label whose counters are read
_TRIED = 3  # maximum number of studies searched for an entry's counters
_STEPS = ("local_steps", "local_epochs")
_NO_WORK = frozenset({"name", "methods", "objective", "budget", "resources", "sampler", "seed", "init", "weighting"})
"""Keys of a study that do not affect the cost of a trial's round."""


@dataclass(frozen=True)
class Speed:
    """Measured speed of trials.

    Attributes:
        pack_seconds_a_round: Seconds of a pack per round of one of its trials.
        at_once: Average number of packs that ran at the same time, at least 1.
        gpus: GPUs per pack.
        studies: Ids of the measured studies.
    """

    pack_seconds_a_round: float
    at_once: float
    gpus: float
    studies: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """Measurements of earlier studies for one entry of a new study; None if there are none.

    Attributes:
        speed: Speed of the trials.
        counters: Mean of each of `COUNTERS` per round of one trial; without `client_gradients` if only studies with
            other local steps are known.
        study: Id of the study in which the counters were measured.
    """

    speed: Speed | None = None
    counters: Mapping[str, float] | None = None
    study: str = ""


class _Earlier:
    """Entries of earlier studies, grouped by the work of a round; newest study first."""

    def __init__(self) -> None:
        self.studies: list[str] = []
        self.same: dict[str, list[tuple[str, str]]] = {}
        self.but_steps: dict[str, list[tuple[str, str]]] = {}

    def add(self, study_id: str, spec: Mapping[str, Any]) -> None:
        """Adds the entries of one study."""
        self.studies.append(study_id)
        for entry in StoredSpec(spec).entries:
            where = (study_id, entry["label"])
            self.same.setdefault(_key(_work(entry)), []).append(where)
            self.but_steps.setdefault(_key(_work(entry, steps=False)), []).append(where)


class Speeds(StorePart):
    """Reads the cost of earlier studies from stored packs and curves."""

    def measured(self, project: str, spec: Mapping[str, Any]) -> dict[str, Measured]:
        """Measurements of the project's latest studies for the entries of a new study, by label.

        An earlier entry counts if its study has the same task, cohorts and batches, and the entry the same method,
        optimizers, schedule and integer or categorical hyperparameters (real-valued ones do not change the work).
        Traffic is also taken from entries with other local steps, if their trials with different local steps all sent
        the same.

        Args:
            project: The project whose studies are read.
            spec: The new study, in canonical form.
        """
        latest = (
            sa.select(*STUDIES.c["id", "spec"])
            .where(STUDIES.c.project == project, STUDIES.c.started_at.is_not(None), KEPT)
            .order_by(STUDIES.c.id.desc())
            .limit(_LATEST)
        )
        with self._session.read() as connection:
            rows = connection.execute(latest).all()
            around = _surroundings(spec)
            earlier = _Earlier()
            for row in rows:
                if _surroundings(row.spec) == around:
                    earlier.add(row.id, row.spec)
            packs = self._packs_of(connection, earlier.studies)
            entries = StoredSpec(spec).entries
            return {entry["label"]: self._measured(connection, entry, earlier, packs) for entry in entries}

    def left_seconds(self) -> float | None:
        """Seconds that the waiting and running studies will still take, one after the other.

        Returns:
            None if the speed of one of them is unknown, or there are too many to read.
        """
        driven = STUDIES.c.state.in_(tuple(DRIVEN))
        query = sa.select(*STUDIES.c["id", "spec", "started_at"]).where(driven).limit(_LATEST + 1)
        with self._session.read() as connection:
            unknown = sa.select(STUDIES.c.id).where(driven, STUDIES.c.started_at.is_(None)).limit(1)
            if connection.execute(unknown).first() is not None:
                return None
            rows = connection.execute(query).all()
            labels = progress.of(connection, {row.id: row.spec for row in rows})
        if len(rows) > _LATEST:
            return None
        left = 0.0
        for row in rows:
            done = sum(one.rounds_done for one in labels[row.id].values())
            total = sum(one.rounds_total for one in labels[row.id].values())
            if not done:
                return None
            left += max(0.0, self._session.clock() - row.started_at) * max(0, total - done) / done
        return left

    def _packs_of(self, connection: sa.Connection, studies: Iterable[str]) -> list[Any]:
        """Time and rounds of ended packs, by study and label."""
        seconds = PACKS.c.ended_at - PACKS.c.started_at
        query = (
            sa.select(
                PACKS.c.study_id,
                PACKS.c.label,
                sa.func.sum(seconds).label("seconds"),
                sa.func.sum(seconds * PACKS.c.gpus).label("gpu_seconds"),
                sa.func.sum(PACKS.c.rounds).label("rounds"),
                sa.func.min(PACKS.c.started_at).label("began"),
                sa.func.max(PACKS.c.ended_at).label("ended"),
            )
            .where(PACKS.c.study_id.in_(tuple(studies)), PACKS.c.rounds > 0)
            .group_by(PACKS.c.study_id, PACKS.c.label)
        )
        return list(connection.execute(query).all())

    def _measured(
        self,
        connection: sa.Connection,
        entry: Mapping[str, Any],
        earlier: _Earlier,
        packs: list[Any],
    ) -> Measured:
        same = earlier.same.get(_key(_work(entry)), [])
        speed = _speed(same, packs)
        for study, label in same[:_TRIED]:
            if trials := self._counters(connection, study, label):
                counters = {name: sum(one[name] for _, one in trials) / len(trials) for name in COUNTERS}
                return Measured(speed, counters, study)
        for study, label in earlier.but_steps.get(_key(_work(entry, steps=False)), [])[:_TRIED]:
            trials = self._counters(connection, study, label)
            sent = {(one["bytes_up"], one["bytes_down"]) for _, one in trials}
            if len(sent) == 1 and len({steps for steps, _ in trials}) > 1:
                return Measured(speed, {name: trials[0][1][name] for name in ("bytes_up", "bytes_down")}, study)
        return Measured(speed)

    def _counters(
        self, connection: sa.Connection, study_id: str, label: str
    ) -> list[tuple[tuple[Any, ...], dict[str, float]]]:
        """Local steps of the label's first trials, with the mean of each of `COUNTERS` per round."""
        segment = sa.func.max(CURVE_SEGMENTS.c.segment)
        last = sa.select(segment).where(CURVE_SEGMENTS.c.trial_id == TRIALS.c.id).correlate(TRIALS)
        query = (
            sa.select(TRIALS.c.hyperparameters, CURVE_SEGMENTS.c.payload)
            .join(CURVE_SEGMENTS, CURVE_SEGMENTS.c.trial_id == TRIALS.c.id)
            .where(
                TRIALS.c.study_id == study_id,
                TRIALS.c.label == label,
                CURVE_SEGMENTS.c.segment == last.scalar_subquery(),
            )
            .order_by(TRIALS.c.phase.desc(), TRIALS.c.number)  # search trials first, which cover the space
            .limit(_TRIALS)
        )
        counters = []
        for hyperparameters, payload in connection.execute(query):
            columns = arrays(payload, {"round", *COUNTERS})
            rounds = columns["round"]
            if all(name in columns for name in COUNTERS) and rounds.size and rounds[-1] > 0:
                each = {name: float(columns[name][-1] / rounds[-1]) for name in COUNTERS}
                if all(value == value for value in each.values()):
                    counters.append((tuple(hyperparameters.get(name) for name in _STEPS), each))
        return counters


def _surroundings(spec: Mapping[str, Any]) -> str:
    return _key({key: value for key, value in spec.items() if key not in _NO_WORK})


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _work(entry: Mapping[str, Any], *, steps: bool = True) -> list[Any]:
    """The parts of an entry that determine the work of a round."""
    parts = (entry, *(entry.get(kind) or {} for kind in (*ROLES, "schedule")))
    return [
        (
            part.get("name"),
            {
                name: form
                for name, form in part.get("space", {}).items()
                if not _real(form) and (steps or name not in _STEPS)
            },
        )
        for part in parts
    ]


def _real(form: Any) -> bool:
    """Whether a parameter takes only real values."""
    if isinstance(form, Mapping):
        return "float" in form or all(isinstance(value, float) for value in form.get("choice", [None]))
    return isinstance(form, float)


def _speed(same: Iterable[tuple[str, str]], packs: list[Any]) -> Speed | None:
    """The speed of some labels of some studies, given as (study, label)."""
    wanted = set(same)
    parts = [row for row in packs if (row.study_id, row.label) in wanted and row.seconds > 0]
    if not parts:
        return None
    seconds = float(sum(part.seconds for part in parts))
    return Speed(
        pack_seconds_a_round=seconds / float(sum(part.rounds for part in parts)),
        at_once=sum(_at_once(part.study_id, packs) * part.seconds for part in parts) / seconds,
        gpus=float(sum(part.gpu_seconds for part in parts)) / seconds,
        studies=tuple(sorted({part.study_id for part in parts})),
    )


def _at_once(study_id: str, packs: list[Any]) -> float:
    whole = [row for row in packs if row.study_id == study_id]
    span = max(row.ended for row in whole) - min(row.began for row in whole)
    return max(1.0, sum(row.seconds for row in whole) / span) if span > 0 else 1.0
