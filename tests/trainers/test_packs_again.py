"""Members taken out of packs, packed again with others, padded: under a separate plan no bit of a curve changes."""

import itertools
import warnings
from dataclasses import replace

import pytest
import torch

from trainers.engine.packs import checkpoint
from trainers.engine.packs.build import build_model
from trainers.engine.packs.pack import Pack
from trainers.engine.packs.plan import Plan
from trainers.errors import CheckpointError, SpecError
from trainers.registry import methods, optimizers
from trainers.trial.document import parse
from trainers.trial.members import own_document

from . import documents
from .members import curves, timeless
from .test_checkpoint import DIGITS, NETWORKS, document

ROUNDS, RUNG, WIDTH = 4, 2, 4
QUADRATIC = {"name": "quadratic", "problem": "random", "clients": 6, "dimension": 5}
LINEAR = {"name": "linear_regression", "clients": 6, "dimension": 4, "examples": 9}
MEMBERS = [
    {"local_steps": 4},
    {"local_steps": 1, "client_lr": 0.02},
    {"client_lr": 1e4, "server_lr": 1e9, "local_steps": 6},  # diverges
    {"server_lr": 0.03},
    {"local_steps": 2, "client_lr": 0.2},
]


def fedavg(task=DIGITS, **changes):
    return documents.fedavg(**{"task": task, "rounds": ROUNDS, "report": ["params"], **changes})


def separate(given, oracle=None, width=WIDTH):
    """The separate plan of a document."""
    spec = parse({**given, "members": [{}]})
    plan = Plan("", width, torch.get_num_threads(), "cpu", spec.dtype, 1, separate=True)
    return replace(plan, oracle=oracle or Pack.from_spec(spec).plan.oracle)


def pack_of(given, members, chosen, plan):
    return Pack.from_spec(parse({**given, "members": [members[one] for one in chosen]}), device="cpu", plan=plan)


def packed_again(given, members, plan, packs, then):
    """Member -> its lines, trained in `packs` until the rung and then in `then`."""
    before, parts = {}, {}
    for chosen in packs:
        pack = pack_of(given, members, chosen, plan)
        before.update(curves(pack.advance(RUNG), chosen))
        parts.update(zip(chosen, checkpoint.members(pack.to_bytes()), strict=True))
    found = {}
    for chosen in then:
        spec = parse({**given, "members": [members[one] for one in chosen]})
        pack = Pack.restore(spec, checkpoint.joined([parts[one] for one in chosen]), device="cpu")
        after = curves(pack.advance(), chosen)
        found.update({one: before[one] + after[one] for one in chosen})
    return found


def law(given, members, oracle=None):
    """(a) in the pack that it began in, (b) packed again at another place, (c) alone, padded: equal to the bit."""
    plan = separate(given, oracle)
    packs, then = ([0, 1, 2], [3, 4]), ([4, 2, 0], [1, 3])
    again = packed_again(given, members, plan, packs, then)
    for chosen in packs:
        stayed = curves(pack_of(given, members, chosen, plan).advance(), chosen)
        for one in chosen:
            assert stayed[one] == again[one]
            assert len(stayed[one]) == ROUNDS + 1 or stayed[one][-1]["diverged"]
    for one in (1, 3):
        assert again[one] == curves(pack_of(given, members, [one], plan).advance(), [one])[one]


FEW = {"clients_per_round": 2, "batch_size": 3, "eval_every": ROUNDS}
KINDS = {
    "softmax stacked": (fedavg(), "stacked"),
    "softmax full": (fedavg(batch_size=None, task={**DIGITS, "clients": 100}), "stacked"),
    "softmax example_space": (fedavg(batch_size=None, task={**DIGITS, "clients": 100}), "example_space"),
    "softmax example_space in mini-batches": (fedavg(batch_size=3, task={**DIGITS, "clients": 100}), "example_space"),
    "softmax autograd": (fedavg(**FEW), "autograd"),
    "quadratic": (fedavg(QUADRATIC), "closed_form"),
    "quadratic with noise": (fedavg({**QUADRATIC, "gradient_noise": 0.1}), "closed_form"),
    "linear": (fedavg(LINEAR), "stacked"),
    "linear example_space": (fedavg(LINEAR, batch_size=None), "example_space"),
    **{
        f"{model} {oracle}": (fedavg({**DIGITS, "model": NETWORKS[model]}, **FEW), oracle)
        for model, oracles in {"mlp": ("stacked", "vmap"), "cnn": ("by_hand", "loop")}.items()
        for oracle in oracles
    },
}


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *((kind, "float32") for kind in KINDS),
        *((kind, "float64") for kind in KINDS if "nn" not in kind),
        *((kind, "bfloat16") for kind in ("mlp stacked", "cnn by_hand")),
    ],
)
def test_no_bit_changes_for_any_model_and_oracle(kind, dtype, small_examples):
    given, oracle = KINDS[kind]
    law({**given, "dtype": dtype}, MEMBERS, oracle)


@pytest.mark.parametrize("method", methods())
def test_no_bit_changes_for_any_method(method):
    given = {**document(method, rounds=ROUNDS, seed=3), "eval_every": 2}
    rate = "client_lr" if methods()[method].TIED else "server_lr"
    members = [{rate: 0.03 * (1 + one), "server.momentum": 0.9 * (one % 2)} for one in range(len(MEMBERS))]
    if "local_steps" in given["method"]:
        members = [{**member, "local_steps": 1 + one % 4} for one, member in enumerate(members)]
    members[2][rate] = 1e9
    law(given, members)


ROLES = [
    (role, name)
    for role in ("client", "server")
    for name in optimizers()
    if (role, name) != ("client", "schedule_free")  # it averages the models that are evaluated
]
BESIDE_OTHERS = {
    **{
        f"{method}, {model}": (document(method), model)
        for method, model in zip(methods(), itertools.cycle(NETWORKS), strict=False)
    },
    **{f"{role} {name}": (fedavg(**{role: {"name": name}}), "mlp") for role, name in ROLES},
}


@pytest.mark.parametrize("kind", BESIDE_OTHERS)
def test_networks_keep_their_bits_in_packs_that_share_products(kind):
    """On a CPU their oracles compute one trial after the other, and nothing else in a round depends on the others."""
    given, model = BESIDE_OTHERS[kind]
    given = {**given, "task": {**given["task"], "model": NETWORKS[model]}, "rounds": 2, "eval_every": 1}
    rate = "client_lr" if methods()[given["method"]["name"]].TIED else "server_lr"
    members = [{rate: 0.03}, {rate: 0.2, "server.momentum": 0.9}, {rate: 0.01}]
    if given.get("server", {}).get("name", "sgd") != "sgd":
        members = [{rate: member[rate]} for member in members]
    if "local_steps" in given["method"]:
        members = [{**member, "local_steps": steps} for member, steps in zip(members, (1, 3, 2), strict=True)]
    oracles = build_model(parse({**given, "members": members}), torch.device("cpu"))[1].oracles
    used = [name for name, oracle in oracles.items() if not oracle.reference and not oracle.accelerators_only]
    assert all(oracles[name].separate for name in used)
    oracle = used[list(BESIDE_OTHERS).index(kind) // len(NETWORKS) % len(used)]  # each with some methods and optimizers
    plan = Plan(oracle, len(members), torch.get_num_threads(), "cpu", "float32", 1)
    packed = curves(pack_of(given, members, range(3), plan).advance(), range(3))
    for one in range(3):
        assert packed[one] == curves(pack_of(given, members, [one], replace(plan, width=1)).advance(), [one])[one]


@pytest.mark.parametrize("method", ["fedavg", "feddyn"])
@pytest.mark.parametrize("batch_size", [6, None])
def test_idle_places_do_no_harm_and_leave_no_trace(method, batch_size):
    members = [{"server_lr": 0.05 * (1 + one)} for one in range(6)]
    trial = {**document(method, batch_size=batch_size), "eval_every": 1, "report": ["params"]}
    whole = Pack.from_spec(parse({**trial, "members": members}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pack = Pack.from_spec(parse({**trial, "members": members[:4]}), plan=whole.plan)
        lines = pack.advance(3)
        assert pack.plan.width == 6
        again = Pack.restore(pack.spec, pack.to_bytes())
        assert again.plan == pack.plan
        assert len(checkpoint.members(again.to_bytes())) == 4
        lines += again.advance()
    # at the same place of a pack as wide, with as many local steps, a member's curve is equal to the bit
    assert timeless(lines) == [line for line in timeless(whole.advance()) if line["member"] < 4]


def test_a_padded_pack_is_done_when_all_its_members_have_diverged():
    members = [{"client_lr": 1e4, "server_lr": 1e9}] * 2
    spec = parse(fedavg(members=members, rounds=50))
    plan = replace(Pack.from_spec(spec).plan, width=5)
    pack = Pack.from_spec(spec, plan=plan)
    lines = pack.advance()
    assert pack.done
    assert lines[-1]["round"] < 50
    assert {line["member"] for line in lines} == {0, 1}


def test_a_plan_with_fewer_places_than_members_is_refused():
    spec = parse(fedavg(members=[{}, {}, {}]))
    plan = replace(Pack.from_spec(spec).plan, width=2)
    with pytest.raises(SpecError, match=r"^the plan's width must be at least 3, the members of the pack, got width=2$"):
        Pack.from_spec(spec, plan=plan)


def test_what_does_not_fit_is_not_joined():
    trial = fedavg(QUADRATIC)
    plan = separate(trial, width=2)

    def part(rounds=1, plan=plan, **changes):
        pack = Pack.from_spec(parse({**trial, **changes}), plan=plan)
        if rounds is not None:
            pack.advance(rounds)
        return pack.to_bytes()

    def refused(*parts):
        with pytest.raises(CheckpointError) as caught:
            checkpoint.joined(parts)
        return str(caught.value)

    own = part()
    assert len(checkpoint.from_bytes(checkpoint.joined([own, part(method={**trial["method"], "client_lr": 0.3})]))) == 2
    assert "must be of the same structure, got structure=" in refused(own, part(seed=4))
    assert refused(own, part(rounds=2)) == (
        "members joined to a checkpoint must be at the same round, got round=1 for member 0 and round=2 for member 1"
    )
    assert "all before the lines of round 0 or all after them" in refused(part(rounds=None), part(rounds=0))
    assert refused(own, part(plan=replace(plan, eval_every=2))).endswith(
        "must be under the same plan, got eval_every=1 for member 0 and eval_every=2 for member 1"
    )
    assert refused(own, own, own) == (
        "members joined to a checkpoint must be at most 2, the width of their plan, got 3: join fewer"
    )
    assert refused() == "a checkpoint must be joined from at least one, got none"
    assert "damaged" in refused(own, own[:-1])


def test_members_must_be_those_of_the_spec_in_their_order():
    trial = fedavg(QUADRATIC)
    members = [{"client_lr": 0.1}, {"client_lr": 0.2}]
    spec, turned = (parse({**trial, "members": listed}) for listed in (members, members[::-1]))
    data = Pack.from_spec(spec, plan=separate(trial)).to_bytes()
    with pytest.raises(
        CheckpointError, match=r"^the checkpoint must be of the same trials, got another one as member 0"
    ):
        Pack.restore(turned, data)
    Pack.restore(turned, checkpoint.joined(checkpoint.members(data)[::-1]))
    with pytest.raises(CheckpointError, match=r"^the checkpoint must be of the same trials, got 1 members for 2"):
        Pack.restore(spec, checkpoint.members(data)[0])


def test_a_member_has_the_fingerprint_of_its_trial_alone():
    listed = parse(fedavg(members=[{"client_lr": 0.2, "server.momentum": 0.9}, {"clip_norm": 1.0}]))
    own = fedavg(server={"name": "sgd", "momentum": 0.9})
    own["method"] = {**own["method"], "client_lr": 0.2}
    other = fedavg()
    other["method"] = {**other["method"], "clip_norm": 1.0}
    for number, alone in enumerate((own, other)):
        spec = parse(alone)
        assert own_document(listed.canonical, number) == spec.canonical
        assert checkpoint.fingerprints(listed)[number] == checkpoint.fingerprints(spec)[0]
    assert len(set(checkpoint.fingerprints(listed))) == 2


def test_a_member_takes_no_more_than_its_share_of_a_checkpoint():
    spec = parse(fedavg(members=[{}] * 8))
    data = Pack.from_spec(spec).to_bytes()
    assert len(data) > 8 * 650 * 4
    assert max(len(part) for part in checkpoint.members(data)) < len(data) / 4
    assert len(checkpoint.joined(checkpoint.members(data))) < 1.2 * len(data)


def test_time_goes_on_for_each_member():
    trial = fedavg(QUADRATIC, rounds=9)
    plan = separate(trial)
    packs = [pack_of(trial, MEMBERS, [one], plan) for one in (0, 1)]
    spent = [pack.advance(3)[-1]["wall_seconds"] for pack in packs]
    spec = parse({**trial, "members": MEMBERS[:2]})
    pack = Pack.restore(spec, checkpoint.joined([pack.to_bytes() for pack in packs]))
    first, second = (line["wall_seconds"] for line in pack.advance(1))
    assert first - spent[0] == pytest.approx(second - spent[1])
    assert first > spent[0] > 0
