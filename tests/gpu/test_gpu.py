"""What holds on a GPU: the numbers of the CPU, packs, restarts, repetition, too little memory, two processes at once.

    make test-gpu

Curves are compared in double precision. Without a GPU all are skipped; what can be checked then is in
tests/trainers/test_devices.py.
"""

import json
import subprocess
import sys

import pytest
import torch

from tests.trainers.devices import TASKS, of_methods, of_parts, pack, with_test_clients
from tests.trainers.members import of, timeless
from tests.trainers.methods.trials import alone, same
from tests.trainers.test_oracles import MODELS, batch_of, build, models_and_vectors
from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")]

METHODS = {name: given for task in TASKS for name, given in of_methods(task).items()}
CASES = {**METHODS, **of_parts()}
ROOM = 64 << 20  # bytes that a process may take beyond what it holds, where memory is to run out


def train(given, device="cuda"):
    return Pack.from_spec(parse(given), device=device).advance()


@pytest.mark.parametrize("name", CASES)
def test_a_gpu_gives_the_curves_of_the_cpu(name):
    same(train(CASES[name]), train(CASES[name], "cpu"), tolerance=1e-9)


@pytest.mark.parametrize("dtype", ["bfloat16", "tf32"])
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_a_gpu_computes_gradients_in_bfloat16_and_tf32(model, dtype):
    given = {**pack("fedavg", TASKS[model]), "dtype": dtype}
    same(train(given), train(given, "cpu"), tolerance=0.05)


def test_a_gpu_gives_the_accuracies_of_test_clients(tmp_path):
    given = with_test_clients(tmp_path)
    same(train(given), train(given, "cpu"), tolerance=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_a_trial_is_the_same_alone_and_in_a_pack(name):
    given = METHODS[name]
    lines = train(given)
    single = {key: value for key, value in given.items() if key != "members"}
    for number, settings in enumerate(given["members"]):
        same(of(lines, number), train(alone(single, settings)), tolerance=1e-10)


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("name", MODELS)
def test_every_oracle_agrees_with_the_reference_on_the_cpu(name, batch_size):
    here, there = build(name), build(name, device=torch.device("cuda"))
    params, _, vectors = models_and_vectors(here)
    reference = here.oracles.get("autograd", next(iter(here.oracles.values())))
    batch = batch_of(here, batch_size)
    wanted = (*reference.value_and_grad(params, batch), reference.hvp(params, batch, vectors))
    point, along, batch = params.cuda(), vectors.cuda(), batch_of(there, batch_size)
    for oracle in there.oracles.values():
        found = (*oracle.value_and_grad(point, batch), oracle.hvp(point, batch, along))
        for one, other in zip(found, wanted, strict=True):
            assert one.is_cuda
            torch.testing.assert_close(one.cpu(), other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_checkpoint_goes_on_on_the_other_device(task, first, second):
    for method in ("two_way_transfer", "feddyn", "mass"):
        spec = parse(pack(method, TASKS[task]))
        trained = Pack.from_spec(spec, device=first)
        lines = trained.advance(2)
        again = Pack.restore(spec, trained.to_bytes(), device=second)
        assert again.device.type == again.plan.device == second
        same(lines + again.advance(), Pack.from_spec(spec, device="cpu").advance(), tolerance=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("task", TASKS)
def test_the_same_pack_gives_the_same_bits_again(task, dtype):
    """Under the same plan; and a restored pack goes on to the bit."""
    spec = parse({**pack("fedavg", TASKS[task]), "dtype": dtype, "rounds": 20})
    first = Pack.from_spec(spec, device="cuda")
    lines = timeless(first.advance(8))
    restored = Pack.restore(spec, first.to_bytes(), device="cuda")
    lines += timeless(first.advance())
    again = Pack.from_spec(spec, device="cuda", plan=first.plan)
    assert timeless(again.advance()) == lines
    assert timeless(restored.advance()) == lines[-12 * spec.members :]


def test_a_pack_that_needs_too_much_memory_says_so_and_the_next_one_trains():
    small, wide = pack("fedavg", TASKS["mlp"]), pack("fedavg", TASKS["mlp"])
    wide["task"] = {**wide["task"], "model": {"name": "mlp", "hidden": [4096, 4096]}}
    lines = timeless(train(small))
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + ROOM) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
            train(wide)
        assert timeless(train(small)) == lines
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_two_processes_share_a_gpu(tmp_path):
    """Neither can end before the other has begun: their lines are more than a pipe holds, and are read afterwards."""
    given = {**pack("fedavg", TASKS["softmax"]), "rounds": 400}
    path = tmp_path / "trial.json"
    path.write_text(json.dumps(given))
    command = [sys.executable, "-m", "trainers.run", str(path), "--device", "cuda"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        begun = [[process.stdout.readline() for _ in range(6)] for process in both]
        assert [process.poll() for process in both] == [None, None]
        rest = [process.communicate()[0].splitlines() for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0]
    wanted = train(given, "cpu")
    for first, further in zip(begun, rest, strict=True):
        same([json.loads(line) for line in (*first, *further)], wanted, tolerance=1e-9)
