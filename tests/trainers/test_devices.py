"""Everything that the engine has runs on a device with memory of its own: nothing is left behind on the CPU."""

import pytest
import torch

from tests.trainers.devices import TASKS, of_methods, of_parts, pack, with_test_clients
from tests.trainers.fake_device import FAKE, fake_device
from tests.trainers.methods.trials import same
from tests.trainers.test_oracles import MODELS, batch_of, build, models_and_vectors
from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.engine.packs.setting import PackSetting
from trainers.engine.rounds.cohort import Cohort
from trainers.models._scored_examples import ScoredExamples
from trainers.trial.document import parse

CASES = {
    **of_methods("softmax"),
    **{f"{method} quadratic": pack(method) for method in ("fedavg", "maml", "scaffold", "two_way_transfer", "mass")},
    "regularized_gd mlp": pack("regularized_gd", TASKS["mlp"]),
    "fedavg cnn": pack("fedavg", TASKS["cnn"]),
    **of_parts(),
}


def agrees(given, tolerance=1e-10):
    """Runs a pack here and on the fake device, by the same plan."""
    spec = parse(given)
    here = Pack.from_spec(spec, device="cpu")
    lines = here.advance()
    with fake_device() as calls:
        there = Pack.from_spec(spec, device=str(FAKE), plan=here.plan)
        assert there._lanes[0].now.state.params.device == FAKE
        # on a CPU clients step by torch's fused optimizers, and trials alone move their models
        same(there.advance(), lines, tolerance)
    assert calls.operations


@pytest.mark.parametrize("name", CASES)
def test_a_pack_runs_on_a_device_of_its_own(name):
    agrees({**CASES[name], "rounds": 2})


def test_gradients_are_computed_in_bfloat16_on_the_device():
    agrees({**pack("maml", TASKS["mlp"]), "dtype": "bfloat16"}, tolerance=0.05)


def factors():
    """How a GPU would take the factors of products, convolutions and recurrent layers in single precision."""
    kinds = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)
    return [kind.fp32_precision for kind in kinds]


@pytest.mark.parametrize(("dtype", "trained"), [("tf32", "tf32"), ("float32", "ieee"), ("bfloat16", "ieee")])
def test_the_clients_of_a_trial_in_tf32_round_factors_and_nothing_else_does(dtype, trained, monkeypatch):
    seen = {"training": [], "evaluation": []}

    def watch(owner, name, where):
        was = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, **named: seen[where].append(factors()) or was(*given, **named))

    watch(Cohort, "local", "training")
    watch(PackSetting, "evaluate", "evaluation")
    before = factors()
    agrees({**pack("fedavg", TASKS["mlp"]), "dtype": dtype}, tolerance=0.05)
    assert before == factors()
    here, there = (seen["training"][:3], seen["evaluation"][:4]), (seen["training"][3:], seen["evaluation"][4:])
    assert here == ([before] * 3, [before] * 4)  # a CPU knows no TF32
    assert there == ([[trained] * 3] * 3, [["ieee"] * 3] * 4)


def test_the_switches_of_torch_are_set_back_after_an_error(monkeypatch):
    def fails(*_):
        raise RuntimeError("no kernel")

    before = factors()
    with fake_device():
        trained = Pack.from_spec(parse({**pack("fedavg", TASKS["mlp"]), "dtype": "tf32"}), device=str(FAKE))
        monkeypatch.setattr(Cohort, "local", fails)
        with pytest.raises(RuntimeError, match="no kernel"):
            trained.advance()
    assert factors() == before


def test_accuracies_of_test_clients_are_computed_on_the_device(tmp_path):
    agrees(with_test_clients(tmp_path))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "cnn"])  # "varied" is one, too
def test_every_oracle_runs_on_a_device_of_its_own(name):
    here = build(name)
    params, _, vectors = models_and_vectors(here, trials=2)
    with fake_device():
        there = build(name, device=FAKE)
        point, along = params.to(FAKE), vectors.to(FAKE)
        for oracle in there.oracles:
            ours, theirs = here.oracles[oracle], there.oracles[oracle]
            pairs = [(theirs.hvp(point, batch_of(there, 7), along), ours.hvp(params, batch_of(here, 7), vectors))]
            for batch_size in (None, 7):
                found = theirs.value_and_grad(point, batch_of(there, batch_size))
                pairs += zip(found, ours.value_and_grad(params, batch_of(here, batch_size)), strict=True)
            for one, other in pairs:
                assert one.device == FAKE
                torch.testing.assert_close(one.cpu(), other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", ["two_way_transfer", "feddyn", "mass"])
@pytest.mark.parametrize(("first", "second"), [(str(FAKE), "cpu"), ("cpu", str(FAKE))])
def test_a_checkpoint_goes_on_on_another_device(method, first, second):
    spec = parse(pack(method, TASKS["softmax"]))
    with fake_device():
        whole = Pack.from_spec(
            spec, device="cpu", plan=Plan("stacked", 3, torch.get_num_threads(), "cpu", "float64", 1)
        )
        pack_of = Pack.from_spec(spec, device=first, plan=whole.plan)
        lines = pack_of.advance(2)
        again = Pack.restore(spec, pack_of.to_bytes(), device=second)
        same(lines + again.advance(), whole.advance(), tolerance=1e-12)


def test_reads_of_a_round_do_not_grow_with_the_pack():
    """On a GPU each makes the CPU wait."""
    reads = []
    for members in ([{}], [{}] * 12):
        given = {**pack("fedavg", TASKS["softmax"], eval_every=100), "rounds": 10, "members": members}
        with fake_device() as calls:
            plan = Plan("stacked", len(members), torch.get_num_threads(), "cpu", "float64", 100)
            trained = Pack.from_spec(parse(given), device=str(FAKE), plan=plan)
            trained.advance(1)
            calls.reads = 0
            trained.advance(5)
            reads.append(calls.reads)
    assert reads[0] == reads[1] <= 5 * 3


@pytest.mark.filterwarnings("error")  # such as vmap's about operations that it runs one by one
@pytest.mark.parametrize(
    ("task", "oracle"),
    [("softmax", "stacked"), ("mlp", "stacked"), ("mlp", "vmap"), ("cnn", "vmap"), ("transformer", "vmap")],
)
def test_operations_of_a_round_with_evaluation_do_not_grow_with_the_pack(task, oracle, tmp_path):
    """On a GPU each is at least one launch, which costs as much for a pack as for a trial."""
    (tmp_path / "one.txt").write_text("to be or not to be, that is the question: " * 30)
    text = {"name": "text", "path": str(tmp_path), "context": 8, "clients": 10, "partition": "iid"}
    model = {"name": "transformer", "width": 8, "depth": 1, "heads": 2}
    counts = []
    for members in (1, 32):
        given = pack("fedavg", {**text, "model": model} if task == "transformer" else TASKS[task], eval_every=1)
        given["members"] = [{}] * members
        plan = Plan(oracle, members, torch.get_num_threads(), "cpu", "float64", 1)
        with fake_device() as calls:
            trained = Pack.from_spec(parse(given), device=str(FAKE), plan=plan)
            trained.advance(1)
            calls.operations.clear()
            calls.reads = 0
            trained.advance(1)
        counts.append((calls.operations.total(), calls.reads))
    (alone, reads), (together, other) = counts
    assert together <= 1.25 * alone
    assert reads == other <= 2, "one of the round, one of its evaluation"


@pytest.mark.parametrize(("batch_size", "memory"), [(None, 200_000), (5, 60_000)])
@pytest.mark.parametrize("vmaps", [True, False])
def test_neither_little_memory_nor_a_module_that_vmap_refuses_changes_numbers(batch_size, memory, vmaps, monkeypatch):
    def refuses(*_):
        raise RuntimeError("vmap: no batching rule")

    given = pack("scaffold", TASKS["mlp"], eval_every=1, batch_size=batch_size, report=["full_loss"]) | {"rounds": 1}
    plan = Plan("stacked", 3, torch.get_num_threads(), "cpu", "float64", 1)
    lines = Pack.from_spec(parse(given), device="cpu", plan=plan).advance()
    for module in ("engine.oracles.all_trials", "models._scored_examples", "models._network"):
        monkeypatch.setattr(f"trainers.{module}.room", lambda _: memory)
    if not vmaps:
        monkeypatch.setattr(ScoredExamples, "_at_once", refuses)
    with fake_device():
        same(Pack.from_spec(parse(given), device=str(FAKE), plan=plan).advance(), lines, 1e-10)
