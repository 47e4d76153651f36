"""Schedules: golden traces of the automatic decay, against a plain state machine, and independence of members."""

import math
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.hyperparameters import check
from trainers.registry import schedules
from trainers.schedules import plateau, theory_1_over_t

MODES = ("paper", "reference")


def decided(**given_values: Any) -> dict[str, Any]:
    return plateau.complete(check(plateau.Hyper, given_values, "schedule"))


def packed(members: list[dict[str, Any]]) -> plateau.Hyper:
    integers = {"window", "patience", "cooldown"}
    values: dict[str, Any] = {}
    for name in members[0]:
        column = [member[name] for member in members]
        if isinstance(column[0], str):
            values[name] = column[0]
        else:
            values[name] = torch.tensor(column, dtype=torch.int64 if name in integers else torch.float64)
    return plateau.Hyper(**values)


def trace(members: list[dict[str, Any]], losses: Any, client_lr: Any = 1.0, server_lr: Any = 1.0) -> list[Any]:
    """(decay rounds from 1, client_lr, server_lr) of each member; losses: (rounds,) or (rounds, members)."""
    hyper = packed(members)
    width = len(members)
    state = plateau.init(
        hyper,
        torch.tensor(client_lr, dtype=torch.float64).expand(width),
        torch.tensor(server_lr, dtype=torch.float64).expand(width),
    )
    decays: list[list[int]] = [[] for _ in members]
    for index, loss in enumerate(losses, start=1):
        before = state["decays"]
        state = plateau.update(hyper, state, torch.tensor(loss, dtype=torch.float64).expand(width))
        for member in torch.nonzero(state["decays"] > before).flatten().tolist():
            decays[member].append(index)
    rates = plateau.rates(state)
    return [(decays[m], float(rates[0][m]), float(rates[1][m])) for m in range(width)]


def alone(member: dict[str, Any], losses: list[float], client_lr: float = 1.0, server_lr: float = 1.0) -> Any:
    """The state machine of the paper, and of its public code, for one trial in plain Python."""
    value = SimpleNamespace(**member)
    last: deque[float] = deque(maxlen=value.window)
    best, wait, cooldown_left, decays = math.inf, 0, value.cooldown, []
    for index, loss in enumerate(losses, start=1):
        last.append(loss if value.monitor == "loss" else -loss)
        smoothed = sum(last) / value.window if len(last) == value.window else math.inf
        improved = smoothed < best - value.min_delta
        decay = False
        if value.decay_mode == "paper":
            if cooldown_left > 0:
                cooldown_left, wait = cooldown_left - 1, 0
            elif improved:
                wait = 0
            else:
                wait += 1
                decay = wait >= value.patience
            best = min(best, smoothed)
        else:
            if cooldown_left > 0:
                cooldown_left, wait = cooldown_left - 1, 0
            if improved:
                best, wait = smoothed, 0
            elif cooldown_left <= 0:
                wait += 1
                above = client_lr > value.min_client_lr or server_lr > value.min_server_lr
                decay = wait >= value.patience and above
        if decay:
            client_lr = min(client_lr, max(value.client_decay * client_lr, value.min_client_lr))
            server_lr = min(server_lr, max(value.server_decay * server_lr, value.min_server_lr))
            cooldown_left, wait = value.cooldown, 0
            decays.append(index)
    return decays, client_lr, server_lr


SEQUENCES = {
    "constant": [1.0] * 40,
    "falling": [1 - 0.001 * t for t in range(60)],
    "drifting": [1 - 3e-5 * t for t in range(60)],
}


@pytest.mark.parametrize(
    ("name", "mode", "rounds"),
    [
        ("constant", "paper", [6, 12, 18, 24, 30, 36]),
        ("constant", "reference", [6, 11, 16, 21, 26, 31, 36]),
        ("falling", "paper", []),
        ("falling", "reference", []),
        ("drifting", "paper", [6, 12, 18, 24, 30, 36, 42, 48, 54, 60]),
        ("drifting", "reference", [6, 14, 22, 30, 38, 46, 54]),
    ],
)
def test_golden_traces(name: str, mode: str, rounds: list[int]) -> None:
    member = decided(window=3, decay_mode=mode)
    assert (member["patience"], member["cooldown"]) == (3, 3)
    decays, client_lr, server_lr = trace([member], SEQUENCES[name])[0]
    assert decays == rounds
    assert client_lr == pytest.approx(0.1 ** len(rounds), rel=1e-12)
    assert server_lr == pytest.approx(0.9 ** len(rounds), rel=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_golden_trace_of_the_base_method(mode: str) -> None:
    member = decided(window=1, patience=1, cooldown=0, decay_mode=mode)
    assert trace([member], [1, 0.9, 0.9, 0.8, 0.85, 0.7, 0.7])[0][0] == [3, 5, 7]


@given(
    data=st.data(),
    mode=st.sampled_from(MODES),
    monitor=st.sampled_from(["loss", "accuracy"]),
    steps=st.lists(st.integers(-4, 4) | st.just(math.nan), min_size=1, max_size=60),
    rates=st.tuples(st.sampled_from([1.0, 0.3, 0.0]), st.sampled_from([1.0, 0.5])),
)
def test_each_member_follows_the_state_machine_whatever_the_others(
    data: Any, mode: str, monitor: str, steps: list[float], rates: tuple[float, float]
) -> None:
    member = st.fixed_dictionaries(
        {
            "window": st.integers(1, 9),
            "patience": st.integers(1, 6),
            "cooldown": st.integers(0, 6),
            "min_delta": st.sampled_from([1e-4, 0.1, 0.3]),
            "client_decay": st.sampled_from([0.1, 0.5, 1.0]),
            "server_decay": st.sampled_from([0.9, 0.5, 1.0]),
            "min_client_lr": st.sampled_from([0.0, 0.2]),
            "min_server_lr": st.sampled_from([0.0, 0.4, 0.85]),
        }
    )
    drawn = data.draw(st.lists(member, min_size=1, max_size=4))
    members = [decided(**one, decay_mode=mode, monitor=monitor) for one in drawn]
    # Multiples of 1/8 make every sum exact, so that the two machines compare equal numbers.
    losses = [1 + step / 8 for step in steps]
    together = trace(members, losses, *rates)
    for index, one in enumerate(members):
        decays, client_lr, server_lr = alone(one, losses, *rates)
        assert together[index][0] == decays
        assert together[index][1:] == pytest.approx((client_lr, server_lr), rel=1e-12)
        assert trace([one], losses, *rates)[0] == together[index]


@given(losses=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50), other=st.integers(1, 40))
def test_the_smoothed_value_does_not_depend_on_other_windows_to_the_bit(losses: list[float], other: int) -> None:
    one = decided(window=4, patience=2, cooldown=1)
    hyper_alone, hyper_pair = packed([one]), packed([one, decided(window=other, patience=2, cooldown=1)])
    lr = torch.ones(2, dtype=torch.float64)
    alone_state = plateau.init(hyper_alone, lr[:1], lr[:1])
    pair_state = plateau.init(hyper_pair, lr, lr)
    for loss in losses:
        value = torch.tensor([loss], dtype=torch.float64)
        alone_state = plateau.update(hyper_alone, alone_state, value)
        pair_state = plateau.update(hyper_pair, pair_state, value.expand(2))
        assert torch.equal(alone_state["best"], pair_state["best"][:1])


def test_theory_rates_at_the_first_rounds() -> None:
    values = {"strong_convexity": 1.0, "smoothness": 2.0, "local_steps": 3}
    hyper = theory_1_over_t.Hyper(**{k: torch.tensor([v]) for k, v in values.items()})
    given = torch.tensor([0.0], dtype=torch.float64)
    state = theory_1_over_t.init(hyper, given, given)
    for number in (1, 2, 3):
        client_lr, server_lr = (float(rate) for rate in theory_1_over_t.rates(state))
        assert client_lr == pytest.approx(1 / (2 * (12 + number)), rel=1e-14)
        curvature = sum((1 - client_lr) ** k for k in range(3))
        assert server_lr == pytest.approx(3 / (curvature * (12 + number)), rel=1e-14)
        state = theory_1_over_t.update(hyper, state, given)


REQUIRED: dict[str, dict[str, Any]] = {"theory_1_over_t": {"strong_convexity": 1, "smoothness": 2, "local_steps": 3}}
FOLLOWED: dict[str, Any] = {"rates": "both", "rounds": 3}  # settings that a schedule may take from its trial


@pytest.mark.parametrize("name", list(schedules()))
def test_every_schedule_keeps_the_contract(name: str) -> None:
    module = schedules()[name]
    assert module.LOSS_DATA in ("full", "batches")
    given = REQUIRED.get(name) or {key: FOLLOWED[key] for key in module.FOLLOWS}
    values = check(module.Hyper, given, "schedule")
    values = module.complete(values)
    hyper = module.Hyper(**{k: v if isinstance(v, str) else torch.full((2,), v) for k, v in values.items()})
    state = module.init(hyper, torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.5]))
    for _ in range(3):
        before = {key: value.clone() for key, value in state.items()}
        after = module.update(hyper, state, torch.tensor([1.0, 2.0]))
        assert all(torch.equal(state[key], value) for key, value in before.items())
        state = after
        assert all(isinstance(value, torch.Tensor) for value in state.values())
        assert [tuple(rate.shape) for rate in module.rates(state)] == [(2,), (2,)]
        assert [rate.dtype for rate in module.rates(state)] == [torch.float32] * 2
