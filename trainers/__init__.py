"""Local update methods on PyTorch: trial documents, training, and the theory of the methods.

The public interface, with everything that `service`, `driftline` and `search_spaces` need for training:

    spec = parse(document)                  a fully checked trial document (trainers/trial)
    pack = Pack.from_spec(spec)             trials of one structure, trained together on one device (trainers/engine)
    lines = pack.advance(rounds)            report lines; pack.to_bytes(), Pack.restore(spec, data) for checkpoints,
                                            Pack.split(data) by member, Pack.join(parts) for another pack
    Plan                                    how a pack is computed; enforced when a pack is restored
    estimate_curvature(spec)                curvature and gradient noise of a task at its initial model
    run.run(document)                       the report lines of a whole trial

Modules and packages; each line uses only lines below it. Every plug-in is a module of its own:

    plugin                        everything that plug-ins of other packages import
    run, catalogue, curvature     trains a document; prints docs/methods.md; measures curvature and gradient noise
    data_description              describes a user's data, and proposes a task for them
    methods, models, reports      plug-ins: what clients and server do; models; optional metrics of report lines
    engine                        trains packs
    tasks, trial                  plug-ins: a model, a loss and federated data; trial documents
    theory, data                  closed forms on quadratics; data for tasks
    schedules, optimizers         plug-ins: rates by round; optimizers of clients, server, central data and merge
    registry                      finds plug-ins by name
    contracts                     what methods and schedules must define
    optimizer_contract            what optimizers must define
    plugins, problem              loads and checks plug-ins; the contract of a task
    hyperparameters, fused_steps  hyperparameters as dataclass fields; steps of torch's fused optimizers
    first_square                  the squared gradients that adaptive optimizers start from
    over_the_rounds               warm-up, decay and floor over a known number of rounds, for schedules
    costs                         the costs of training and their counters
    replacements                  finds every error of a document: replaces invalid values and reads it again
    target_kinds                  kinds of targets, and the metrics of each
    spelling, values, errors      nearest known words; numbers in documents; errors
    working_directory             keeps files in the working directory from hiding modules
    own_files, disk_cache         writes files, never through a link; caches files on disk
    own_function                  finds the function of a user's file or package that a document names

Nothing in this package depends on a network, a database, Ray, Optuna, MLflow or Kubernetes.
"""

from __future__ import annotations

# isort: off
from trainers import working_directory as working_directory  # before any module that a file there could hide
# isort: on

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.costs import ADVICE, COSTS, COUNTERS, REPORTED, cost_named
    from trainers.curvature import LossEstimate, estimate_curvature
    from trainers.data.folder import data_dir
    from trainers.data.named_files import files_of, urls_of
    from trainers.data.remote import local_copy, reading_only
    from trainers.data.url_prefixes import UrlPrefix, allowing, is_url
    from trainers.engine.memory import total_memory
    from trainers.engine.packs.pack import Pack
    from trainers.engine.packs.plan import Plan
    from trainers.errors import (
        ChangedDataError,
        CheckpointError,
        MissingDataError,
        PluginError,
        SpecError,
        TooLargeError,
    )
    from trainers.hyperparameters import Hyperparameter, join, refuse_unknown, tunable, withdrawals
    from trainers.own_function import loaded_by_path, located, require_declared
    from trainers.plugins import Configured
    from trainers.problem import Task
    from trainers.registry import Registry
    from trainers.replacements import ABSENT, Changes, StandIns, Steps, every_error
    from trainers.spelling import hint, nearest
    from trainers.target_kinds import is_of_test, reporting, validating
    from trainers.trial.batching import round_batches
    from trainers.trial.document import TrialSpec, check_task_keys, parse, trial_setting
    from trainers.trial.document_errors import STAND_IN_METHODS, STAND_IN_SCHEDULE, STAND_IN_TASKS
    from trainers.trial.evaluation_rounds import evaluation_grid, evaluation_work
    from trainers.trial.inactive import inactive, inactive_rules
    from trainers.trial.parts import REGISTRIES, offered
    from trainers.trial.roles import PLAIN, ROLES, refuse_role
    from trainers.trial.sizes import check_models, round_bytes
    from trainers.trial.spend import UncountedSpend, spend
    from trainers.trial.warnings import data_remarks, mixed, rate_remark
    from trainers.values import digits, integer, number, shown, step

_PLACES = {
    "costs": ("ADVICE", "COSTS", "COUNTERS", "REPORTED", "cost_named"),
    "errors": ("ChangedDataError", "CheckpointError", "MissingDataError", "PluginError", "SpecError", "TooLargeError"),
    "replacements": ("ABSENT", "Changes", "StandIns", "Steps", "every_error"),
    "values": ("digits", "integer", "number", "shown", "step"),
    "spelling": ("hint", "nearest"),
    "target_kinds": ("is_of_test", "reporting", "validating"),
    "hyperparameters": ("Hyperparameter", "join", "refuse_unknown", "tunable", "withdrawals"),
    "registry": ("Registry",),
    "own_function": ("loaded_by_path", "located", "require_declared"),
    "plugins": ("Configured",),
    "problem": ("Task",),
    "data.folder": ("data_dir",),
    "data.named_files": ("files_of", "urls_of"),
    "data.remote": ("local_copy", "reading_only"),
    "data.url_prefixes": ("UrlPrefix", "allowing", "is_url"),
    "trial.batching": ("round_batches",),
    "trial.document": ("TrialSpec", "check_task_keys", "parse", "trial_setting"),
    "trial.evaluation_rounds": ("evaluation_grid", "evaluation_work"),
    "trial.inactive": ("inactive", "inactive_rules"),
    "trial.parts": ("REGISTRIES", "offered"),
    "trial.roles": ("PLAIN", "ROLES", "refuse_role"),
    "trial.sizes": ("check_models", "round_bytes"),
    "trial.spend": ("UncountedSpend", "spend"),
    "trial.document_errors": ("STAND_IN_METHODS", "STAND_IN_SCHEDULE", "STAND_IN_TASKS"),
    "trial.warnings": ("data_remarks", "mixed", "rate_remark"),
    "curvature": ("LossEstimate", "estimate_curvature"),
    "engine.memory": ("total_memory",),
    "engine.packs.pack": ("Pack",),
    "engine.packs.plan": ("Plan",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "ABSENT",
    "ADVICE",
    "COSTS",
    "COUNTERS",
    "PLAIN",
    "REGISTRIES",
    "REPORTED",
    "ROLES",
    "STAND_IN_METHODS",
    "STAND_IN_SCHEDULE",
    "STAND_IN_TASKS",
    "ChangedDataError",
    "Changes",
    "CheckpointError",
    "Configured",
    "Hyperparameter",
    "LossEstimate",
    "MissingDataError",
    "Pack",
    "Plan",
    "PluginError",
    "Registry",
    "SpecError",
    "StandIns",
    "Steps",
    "Task",
    "TooLargeError",
    "TrialSpec",
    "UncountedSpend",
    "UrlPrefix",
    "allowing",
    "check_models",
    "check_task_keys",
    "cost_named",
    "data_dir",
    "data_remarks",
    "digits",
    "estimate_curvature",
    "evaluation_grid",
    "evaluation_work",
    "every_error",
    "files_of",
    "hint",
    "inactive",
    "inactive_rules",
    "integer",
    "is_of_test",
    "is_url",
    "join",
    "loaded_by_path",
    "local_copy",
    "located",
    "mixed",
    "nearest",
    "number",
    "offered",
    "parse",
    "rate_remark",
    "reading_only",
    "refuse_role",
    "refuse_unknown",
    "reporting",
    "require_declared",
    "round_batches",
    "round_bytes",
    "shown",
    "spend",
    "step",
    "total_memory",
    "trial_setting",
    "tunable",
    "urls_of",
    "validating",
    "withdrawals",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
