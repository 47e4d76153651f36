"""A restored pack goes on to the bit; a checkpoint that does not fit is refused."""

import io
from dataclasses import replace

import pytest
import torch

from trainers.engine.packs.pack import Pack
from trainers.errors import CheckpointError
from trainers.registry import methods
from trainers.trial.document import parse

from .members import timeless
from .methods import trials

DIGITS = {"name": "digits", "clients": 8, "partition": {"dirichlet": 0.3}}


def document(method="fedavg", **changes):
    """Three trials of a method on digits."""
    rate = "client_lr" if methods()[method].TIED else "server_lr"
    given = trials.document(method, task=DIGITS, batch_size=6, rounds=7, dtype="float32")
    return {**given, "members": [{}, {rate: 0.03, "server.momentum": 0.9}, {rate: 0.2}], **changes}


NETWORKS = {
    "mlp": {"name": "mlp", "hidden": [6], "dropout": 0.2},
    "cnn": {"name": "cnn", "filters": [2], "kernel": 3, "dense": 5, "dropout": 0.2, "crop": 1},
}


def test_restart_before_the_first_line_and_after_every_round():
    spec = parse(document(rounds=4))
    whole = timeless(Pack.from_spec(spec).advance())
    pack, lines = Pack.restore(spec, Pack.from_spec(spec).to_bytes()), []
    while not pack.done:
        lines += pack.advance(1)
        pack = Pack.restore(spec, pack.to_bytes())
    assert timeless(lines) == whole


def test_automatic_evaluation_happens_in_the_same_rounds_after_a_restart_and_in_a_longer_trial():
    spec, long = (parse(document(rounds=rounds, eval_every="auto", clients_per_round=1)) for rounds in (45, 50))
    pack = Pack.from_spec(spec)
    lines = pack.advance(41)
    pack = Pack.restore(spec, pack.to_bytes())
    lines += pack.advance()
    lines += Pack.restore(long, pack.to_bytes()).advance()
    evaluated = [line["round"] for line in lines if line["member"] == 0 and "test_loss" in line]
    assert evaluated == [*range(41), 42, 44, 45, 46, 48, 50]


def test_a_stored_plan_with_a_number_keeps_its_rounds():
    spec = parse(document(rounds=12, eval_every="auto", clients_per_round=1))
    pack = Pack.from_spec(spec, plan=replace(Pack.from_spec(spec).plan, eval_every=4))
    lines = pack.advance(5) + Pack.restore(spec, pack.to_bytes()).advance()
    assert [line["round"] for line in lines if line["member"] == 0 and "test_loss" in line] == [0, 4, 8, 12]


def test_a_trial_can_be_made_longer():
    short, long = parse(document(rounds=3)), parse(document(rounds=7))
    pack = Pack.from_spec(short)
    lines = pack.advance()
    assert pack.done
    further = Pack.restore(long, pack.to_bytes())
    assert not further.done
    assert timeless(lines + further.advance()) == timeless(Pack.from_spec(long).advance())
    with pytest.raises(CheckpointError, match="within the trial's 3 rounds, got one of round 7"):
        Pack.restore(short, further.to_bytes())


def test_the_plan_is_forced_again():
    spec = parse(document())
    pack = Pack.from_spec(spec)
    threads = torch.get_num_threads()
    data = pack.to_bytes()
    try:
        torch.set_num_threads(threads + 1)
        assert Pack.restore(spec, data).plan.threads == threads
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "changes", [{"seed": 9}, {"batch_size": 5}, {"members": [{}, {}]}, {"dtype": "float64"}, {"loss_data": "full"}]
)
def test_other_trials_are_refused(changes):
    data = Pack.from_spec(parse(document())).to_bytes()
    with pytest.raises(CheckpointError, match="must be of the same trials"):
        Pack.restore(parse(document(**changes)), data)


def test_damage_is_seen_wherever_it_is():
    spec = parse(document())
    data = Pack.from_spec(spec).to_bytes()
    for place in (60, len(data) // 2, len(data) - 1):
        broken = bytearray(data)
        broken[place] ^= 1
        with pytest.raises(CheckpointError, match="damaged"):
            Pack.restore(spec, bytes(broken))
    for length in (len(data) - 1, 100):
        with pytest.raises(CheckpointError, match="damaged"):
            Pack.restore(spec, data[:length])
    for wrong in (b"", b"short"):
        with pytest.raises(CheckpointError, match="must have a header of 52 bytes"):
            Pack.restore(spec, wrong)


def test_other_files_and_versions_are_refused():
    spec = parse(document())
    data = Pack.from_spec(spec).to_bytes()
    with pytest.raises(CheckpointError, match="another kind of file"):
        Pack.restore(spec, b"x" * 200)
    older = data[:16] + (2).to_bytes(4, "little") + data[20:]
    with pytest.raises(CheckpointError, match="must be of version 3, got 2: train the trial again"):
        Pack.restore(spec, older)


def test_nothing_but_tensors_and_plain_types_is_inside():
    data = Pack.from_spec(parse(document())).to_bytes()
    held = torch.load(io.BytesIO(data[52:]), weights_only=True)
    assert len(held) == 3
    for member in held:
        assert member["round"] == 0
        assert {"params", "optimizers", "schedule", "counters", "alive", "plan", "fingerprint"} <= set(member)
