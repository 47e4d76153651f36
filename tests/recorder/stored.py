"""Made-up studies in a real store."""

import math
from collections.abc import Sequence
from typing import Any

from driftline.results.curves import TrialCurve
from driftline.study.directions import sign
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import NewTrial, Report, TrialResult
from driftline.wire.ids import holder
from driftline.wire.records import Values
from service.store.store import Store


class Stored:
    """A study in a store, moved on by hand."""

    def __init__(
        self, store: Store, labels: Sequence[str], rounds: int, name: str = "digits", spec: dict[str, Any] | None = None
    ) -> None:
        self.store = store
        spec = spec or {
            "name": name,
            "task": {"name": "digits", "clients": 50},
            "methods": [{"label": label, "name": label, "server": {"name": "sgd"}} for label in labels],
            "objective": {"quality": "test_accuracy", "cost": "rounds", "optimize": "both"},
            "budget": {"trials_per_method": 4, "rounds": rounds, "seeds": 3, "confirm": 2},
        }
        self.id = store.studies.create(spec, "f" * 64).id
        self.attempt = store.leases.acquire(self.id, holder()).attempt
        self._packs = 0

    def add(self, curves: Sequence[TrialCurve], *, until: int | None = None) -> list[str]:
        """Train these trials, to their end or until a round; gives their ids."""
        names = ("label", "phase", "number", "seed", "configuration", "hyperparameters")
        new = [NewTrial.model_validate({name: getattr(curve, name) for name in names}) for curve in curves]
        ids = [trial.id for trial in self.store.trials.create(self.id, self.attempt, new)]
        pack = f"pack{self._packs}"
        self._packs += 1
        self.store.trials.start_pack(self.id, self.attempt, pack, ids)
        for trial, curve in zip(ids, curves, strict=True):
            keep = curve.rounds <= (math.inf if until is None else until)
            columns = {
                name: [int(v) if name == "round" else (None if math.isnan(v) else float(v)) for v in values[keep]]
                for name, values in curve.columns.items()
            }
            done = int(columns["round"][-1])
            report = Report(attempt=self.attempt, pack=pack, reports={trial: encode(columns)}, rounds_done=done)
            self.store.curves.report(self.id, report)
        if until is None:
            self.finish(ids, curves)
        return ids

    def finish(self, ids: Sequence[str], curves: Sequence[TrialCurve]) -> None:
        results = []
        for trial, curve in zip(ids, curves, strict=True):
            values = None
            if curve.state == "COMPLETE":
                _, quality = curve.metric("test_accuracy")
                values = Values(quality=sign("test_accuracy") * float(quality[-1]), speed=0.5)
            error = "out of memory" if curve.state == "FAILED" else None
            results.append(TrialResult(trial=trial, state=curve.state, values=values, error=error))
        self.store.trials.finish(self.id, self.attempt, results)

    def succeed(self) -> None:
        self.store.leases.release(self.id, self.attempt, "SUCCEEDED")
