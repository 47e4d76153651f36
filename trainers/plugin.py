"""Everything that plug-ins of other packages import from trainers: `from trainers.plugin import LocalSteps, tunable`.

    every kind  tunable, withdrawn, SpecError, shown, hint
    contracts   Method, Optimizer, Schedule, ReportModule, Task, ModelBuilder: what a module must and may define
    method      ServerSteps, LocalSteps, LocalWork, StepPlan, Local, last_step_only, RoundGradients; Cohort, State
                with the server's own data: MixedLoss, Branches, merge, server_branch, mixed_values
    report      ModelView, RoundView
    task        Problem, Examples, Quadratics, TaskSettings; Federated, FederatedKeys, Pool, divide, labelled, examples,
                choose_model, settings_of, partitions, Rows; check, describe, join; data_dir, MissingDataError
    model       Model, Network, settings_from, examples_of, outputs_of; Affine, CrossEntropy
                an oracle of its own: Oracle, Batch, Group, client_major, replicas

`trainers.run.run` trains a plug-in, `trainers.registry` finds it. Everything else in trainers may change at any time.
"""

from __future__ import annotations

from trainers.contracts import Method, Optimizer, RoundGradients, Schedule
from trainers.data import partitions
from trainers.data.federated import (
    Federated,
    FederatedKeys,
    Pool,
    choose_model,
    divide,
    examples,
    labelled,
    settings_of,
)
from trainers.data.folder import data_dir
from trainers.data.partitions import Rows
from trainers.engine.evaluation.views import ModelView, ReportModule, RoundView
from trainers.engine.local.step_plan import StepPlan, last_step_only
from trainers.engine.local.work import Local, LocalSteps, LocalWork, ServerSteps
from trainers.engine.oracles.oracle import Batch, Group, Model, ModelBuilder, Oracle, client_major, replicas
from trainers.engine.rounds.central_branch import Branches, MixedLoss, merge, server_branch
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.errors import MissingDataError, SpecError
from trainers.hyperparameters import check, describe, join, tunable, withdrawn
from trainers.models._affine import Affine
from trainers.models._losses import CrossEntropy
from trainers.models._network import Network
from trainers.models._problem import examples_of, outputs_of, settings_from
from trainers.problem import Examples, Problem, Quadratics, Task, TaskSettings
from trainers.spelling import hint
from trainers.trial import mixed_values
from trainers.values import shown

# fmt: off
__all__ = [
    "Affine", "Batch", "Branches", "Cohort", "CrossEntropy", "Examples", "Federated", "FederatedKeys", "Group",
    "Local", "LocalSteps", "LocalWork", "Method", "MissingDataError", "MixedLoss", "Model", "ModelBuilder",
    "ModelView", "Network", "Optimizer", "Oracle", "Pool", "Problem", "Quadratics", "ReportModule", "RoundGradients",
    "RoundView", "Rows", "Schedule", "ServerSteps", "SpecError", "State", "StepPlan", "Task", "TaskSettings", "check",
    "choose_model", "client_major", "data_dir", "describe", "divide", "examples", "examples_of", "hint",
    "join", "labelled", "last_step_only", "merge", "mixed_values", "outputs_of", "partitions", "replicas",
    "server_branch", "settings_from", "settings_of", "shown", "tunable", "withdrawn",
]
# fmt: on
