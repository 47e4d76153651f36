"""FedAvg with MaSS: accelerated local steps that do not over-descend on mini-batches.

Every client has a model w, a look-ahead u and an auxiliary v, all initially x. In each of local_steps steps

    g = grad f_i(u; batch),   v <- (1 - mixing) v + mixing u - auxiliary_lr g,   w <- u - client_lr g
    u <- (mixing v + w) / (1 + mixing)

or, written with two sequences,

    w' = u - client_lr g,   u <- w' + momentum (w' - w) + compensation_lr g,   w <- w'
    mixing = (1 - momentum) / (1 + momentum),   compensation_lr = (client_lr - mixing auxiliary_lr) / (1 + mixing)

Then x becomes the mean of w over the cohort (with plain SGD on the server; another server optimizer steps along the
mean of (x - w) / client_lr with rate client_lr). `sync` says how the next round starts:

    lyapunov           v stays with its client; the next round starts with w = x and u = (mixing v + x) / (1 + mixing)
    momentum_half      lyapunov in two sequences: u = (1 + momentum) / 2 (x + w) - momentum w_ + compensation_lr g
    momentum_literal   u = x + momentum (x - w_) + compensation_lr g;  for comparison only: if clients differ, it is
                       unstable with 3 or more local steps and momentum above 0.618
    momentum_wu        u is averaged too, and starts the next round
    avg_v              v is averaged too, and starts the next round
    reset              every round starts with v = u = w = x: nothing is remembered

where w_ is the model before the last step and g the gradient of that step. There are three ways to set the rates:
client_lr with momentum (default 0.9) and compensation_lr (default 0); client_lr with mixing and auxiliary_lr; or
client_lr with mixing and batch_statistical_condition_number = client_lr / (mixing auxiliary_lr) (default 1). The other
rates follow; schedules of client_lr scale auxiliary_lr and compensation_lr with it. Or give `constants` in place of
all of these. "estimate" computes them from the data of all clients and batch_size, exactly for linear regression and
quadratics, by bounds for softmax regression with weight_decay. An object contains smoothness, strong_convexity and,
with mini-batches, sample_smoothness and statistical_condition_number. Both give client_lr = 1 / L_m and mixing = 1 /
sqrt(kappa_m kappa~_m), with kappa~_m from the theorem, the largest L_m and kappa~_m and the smallest mu of all clients.

With "estimate_by_client" every client has rates of its own, from its own L_m and kappa~_m and the smallest mu of all:
auxiliary_lr / mixing is then equal for all clients, as the proof needs. client_lr is the largest of all clients. Lists
by client hold each client's share of client_lr, mixing and batch_statistical_condition_number; they may also be given
directly, in the order of the clients, beside client_lr and in place of momentum and the four hyperparameters after it.
momentum_wu averages each client's u, computed from its own w.

Limits: compensation_lr 0 is Nesterov's method on the clients (auxiliary_lr = client_lr / mixing,
batch_statistical_condition_number 1), which a full batch also gives. momentum 0 with compensation_lr 0 (mixing 1,
auxiliary_lr = client_lr) is local_sgd for momentum_literal, momentum_wu, avg_v and reset; lyapunov and momentum_half
then start a round half way between x and the client's own w. One client with any local_steps is MaSS itself.
auxiliary_lr is at most client_lr / mixing.

The theorem assumes all clients in every round. With fewer (an extension of this package), reset, avg_v and momentum_wu
do not depend on earlier participation. With any other sync a client continues with the state from its last round, and
starts with v = u = x in its first round. With reset a round multiplies the expected squared distance to the optimum by
at most 2 (1 - mixing)^local_steps.

Exchanges: one a round, the model down and a pseudo-gradient up, also u with momentum_wu and v with avg_v, both down and
up. With lyapunov, momentum_half and momentum_literal every client stores one model-sized tensor; with momentum_wu and
avg_v the server does.

Source: "Accelerating SGD with momentum for over-parameterized learning" (Liu, Belkin 2020), with FedAvg as in an
untitled draft, "Exponential Convergence of FedAvg with MaSS for Linear Regression Problem with 0 Loss".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.mass_sequences import AUXILIARY, MODEL, ThreeSequences, TwoSequences
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable, withdrawn
from trainers.problem import Problem
from trainers.theory import mass_settings

ROLES = {"client": "none: its local steps are those of MaSS"}
TIED = True
_KEPT = {"lyapunov": "auxiliary", "momentum_half": "rest", "momentum_literal": "rest"}
_AVERAGED = {"momentum_wu": "lookahead", "avg_v": "auxiliary"}
SPACE = {
    "client_lr": {"float": [1e-4, 1.0], "log": True},
    "mixing": {"float": [0.005, 0.5], "log": True},
    "batch_statistical_condition_number": {"float": [1.0, 12.0], "log": True},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
}
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of MaSS."""

    client_lr: Tensor = tunable(low=0, low_open=True, doc="step size of the model sequence, and of the server")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", doc="gradients a round")
    momentum: Tensor = tunable(
        None, kind="float", low=0, high=1, high_open=True, limit="0 is SGD", doc="of the two-sequence form"
    )
    compensation_lr: Tensor = tunable(
        None, kind="float", low=0, limit="0 is Nesterov", doc="multiple of the gradient that is added back"
    )
    mixing: Tensor = tunable(
        None, kind="float", low=0, low_open=True, high=1, limit="1 is SGD", doc="of the three-sequence form"
    )
    auxiliary_lr: Tensor = tunable(
        None, kind="float", low=0, low_open=True, limit="client_lr / mixing is Nesterov", doc="step of the auxiliary"
    )
    batch_statistical_condition_number: Tensor = tunable(
        None, kind="float", low=1, limit="1 is Nesterov", doc="client_lr / (mixing auxiliary_lr)"
    )
    constants: Any = tunable(
        None,
        kind="any",
        traced=False,
        doc='"estimate" or numbers, from which client_lr and the five above follow, or "estimate_by_client"',
    )
    rate_share_by_client: Tensor | None = tunable(
        None, kind="floats", low=0, low_open=True, high=1, doc="of client_lr, one for each client"
    )
    mixing_by_client: Tensor | None = tunable(
        None, kind="floats", low=0, low_open=True, high=1, doc="mixing, one for each client"
    )
    condition_by_client: Tensor | None = tunable(
        None, kind="floats", low=1, doc="batch_statistical_condition_number, one for each client"
    )
    sync: str = tunable(
        "lyapunov", choices=(*_KEPT, *_AVERAGED, "reset"), traced=False, doc="what a round leaves behind"
    )
    server_lr: Tensor = withdrawn("it is client_lr")

    def of(self, cohort: Cohort) -> Hyper:
        """The hyperparameters, with the values by client, (T, M, 1), in place of the common values."""
        if self.mixing_by_client is None or self.rate_share_by_client is None or self.condition_by_client is None:
            return self

        def own(values: Tensor) -> Tensor:
            return cohort.own(values).to(self.client_lr)

        mixing = self.mixing_by_client
        return replace(
            self,
            mixing=own(mixing),
            momentum=own((1 - mixing) / (1 + mixing)),
            batch_statistical_condition_number=own(self.condition_by_client),
            rate_share_by_client=own(self.rate_share_by_client),
        )


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """One trial's values with both forms filled in; values that follow from `constants` wait for `resolve`.

    Args:
        values: values, each checked by itself.

    Raises:
        SpecError: the values fit none of the three ways to set them, mix two of them, or contradict each other.
    """
    return mass_settings.complete(values)


def resolve(
    values: Mapping[str, tuple[Any, ...]], problem: Callable[[], Problem], batch_size: int | None
) -> dict[str, tuple[Any, ...]]:
    """The values of all members, including those that follow from `constants`.

    Args:
        values: hyperparameter -> one value for each member.
        problem: returns the problem with the clients' data.
        batch_size: examples per local step; None is the full local data.

    Raises:
        SpecError: the constants cannot be estimated, or the strong convexity is not positive.
    """
    return mass_settings.resolve(values, problem, batch_size)


def stored(hyper: Hyper) -> tuple[str, ...]:
    """Name of the tensor that clients keep; none if `sync` keeps nothing on clients."""
    return (_KEPT[hyper.sync],) if hyper.sync in _KEPT else ()


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """Server memory before the first round."""
    return {_AVERAGED[hyper.sync]: params.clone()} if hyper.sync in _AVERAGED else {}


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    rounds = _two_sequences if hyper.sync.startswith("momentum") else _three_sequences
    return rounds(hyper.of(cohort), state, cohort)


def _three_sequences(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """A round of lyapunov, avg_v and reset, which differ in the initial auxiliary v."""
    x, rate, mixing = state.params, hyper.client_lr, hyper.mixing
    auxiliary, shared = None, hyper.sync == "avg_v"
    if hyper.sync != "reset":
        kept = state.memory["auxiliary"] if shared else cohort.stored["auxiliary"]
        auxiliary = kept if shared else kept.where(cohort.met, x)
    # u - x at the start, and V = (u - v) / client_lr
    displacement = None if auxiliary is None else mixing / (1 + mixing) * (auxiliary - x)
    begin = None if auxiliary is None else (x - auxiliary) / ((1 + mixing) * rate)
    ratio = 1 / (mixing * hyper.batch_statistical_condition_number)
    sequences = ThreeSequences(mixing, ratio, begin, hyper.rate_share_by_client)
    work = hyper.work(displacement=displacement, optimizer=sequences)
    down = [state.memory["auxiliary"]] if shared else []
    done = cohort.local(x, work, down=down, up=2 if shared else 1)
    model = done.pseudo_gradient.lerp(done.kept[AUXILIARY], -mixing)
    after = state.step(cohort.mean(_moved(model, displacement, rate)))
    if hyper.sync == "reset":
        return after
    start = x if displacement is None else x + displacement
    end = start - rate * done.kept[AUXILIARY]
    return after.remember(auxiliary=cohort.mean(end)) if shared else after.store(auxiliary=end)


def _two_sequences(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """A round of momentum_half, momentum_literal and momentum_wu, which differ in the initial look-ahead u."""
    x, rate, momentum, shared = state.params, hyper.client_lr, hyper.momentum, hyper.sync == "momentum_wu"
    share = (1 + momentum) / 2 if hyper.sync == "momentum_half" else 1 + momentum  # of the new x in u
    if shared:
        displacement = state.memory["lookahead"] - x
    else:
        rest = cohort.stored["rest"]
        displacement = ((share - 1) * x + rest).where(cohort.met, x.new_zeros(()))
    ratio = (1 - 1 / hyper.batch_statistical_condition_number) / (1 + hyper.mixing)
    sequences = TwoSequences(momentum, ratio, displacement / rate, hyper.rate_share_by_client)
    work = hyper.work(displacement=displacement, optimizer=sequences)
    down = [state.memory["lookahead"]] if shared else []
    done = cohort.local(x, work, down=down, up=2 if shared else 1)
    after = state.step(cohort.mean(_moved(done.kept[MODEL], displacement, rate)))
    lookahead = x + displacement - rate * done.pseudo_gradient
    if shared:
        return after.remember(lookahead=cohort.mean(lookahead))
    model = x + displacement - rate * done.kept[MODEL]
    return after.store(rest=lookahead - share * model)


def _moved(sums: Tensor, displacement: Tensor | None, client_lr: Tensor) -> Tensor:
    """(x - w) / client_lr of every client, from sums relative to the client's start."""
    return sums if displacement is None else sums - displacement / client_lr
