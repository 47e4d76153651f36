"""Local update methods on PyTorch: what a trial is, how it is trained, and the theory of it.

Public, and all that `service`, `driftline` and `search_spaces` need to train:

    spec = parse(document)                  a trial document, checked in full (trainers/trial)
    structure_key(document)                 equal for trials that may share a pack
    pack = Pack.from_spec(spec)             trials of one structure, trained together on one device (trainers/engine)
    lines = pack.advance(round)             report lines; pack.to_bytes(), Pack.restore(spec, data) for checkpoints,
                                            which engine/packs/checkpoint.py takes apart by member and joins
    Plan                                    how a pack is computed: forced by a resume
    run(document)                           the lines of a whole trial

The way of one round, from the document to the arithmetic:

    trial/document.py          reads the document once, from top to bottom
    engine/packs/pack.py       trains all trials of a pack round by round
    engine/packs/lane.py       asks the schedule for the rates of the round, and for every trial
    methods/fedavg.py          says what clients and server do: its own term only
    engine/rounds/cohort.py    what a method may ask of the clients of a round; counts what is sent
    engine/local/loop.py       the local steps of all clients and trials at once
    engine/oracles, models     gradients

Folders of plug-ins, one module each: methods, optimizers, schedules, reports, tasks, models; `registry` finds them,
`contracts` says what each must define. `theory` has closed forms on quadratics. Nothing here knows a network, a
database, Ray, Optuna, MLflow or Kubernetes. Imports run downwards in this order:

    run, catalogue > methods | models | reports > engine > tasks | trial > theory | data | schedules | optimizers
    > registry > contracts > plugins | problem > hyperparameters > spelling > values > errors
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.engine.packs.pack import Pack
    from trainers.engine.packs.plan import Plan
    from trainers.errors import CheckpointError, MissingDataError, PluginError, SpecError
    from trainers.run import run
    from trainers.trial.document import TrialSpec, parse, structure_key

_PLACES = {
    "Pack": "engine.packs.pack",
    "Plan": "engine.packs.plan",
    **dict.fromkeys(("CheckpointError", "MissingDataError", "PluginError", "SpecError"), "errors"),
    "run": "run",
    **dict.fromkeys(("TrialSpec", "parse", "structure_key"), "trial.document"),
}

__all__ = [
    "CheckpointError",
    "MissingDataError",
    "Pack",
    "Plan",
    "PluginError",
    "SpecError",
    "TrialSpec",
    "parse",
    "run",
    "structure_key",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
