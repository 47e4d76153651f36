"""Presets: an entry of a study by the name that the literature has for it."""

from pathlib import Path

import pytest

from driftline.errors import InvalidSpec
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from search_spaces import presets, spaces
from trainers.engine.packs.pack import Pack
from trainers.registry import optimizers
from trainers.trial.document import parse

EXAMPLE = Path(__file__).parents[2] / "examples" / "server-optimizers.yaml"


def study(*entries):
    document = {
        "name": "test",
        "task": {"name": "digits", "clients": 8, "partition": "iid"},
        "methods": list(entries),
        "objective": {"quality": "test_loss"},
        "budget": {"trials_per_method": 2, "rounds": 2, "seeds": 0},
        "batch_size": 5,
    }
    return Study.from_json(document)


@pytest.mark.parametrize("name", presets.SERVERS)
def test_a_preset_is_fedavg_with_a_server_optimizer(name):
    server = presets.SERVERS[name]
    written = {"label": name, "name": "fedavg", "space": "default", "server": {"name": server, "space": "default"}}
    short, long = study({"preset": name}), study(written)
    assert short.fingerprint() == long.fingerprint()
    assert short.to_json() == long.to_json()
    assert Study.from_json(short.to_json()).fingerprint() == short.fingerprint()
    assert short.check() == long.check()
    assert dict(short.methods[0].server.space) == spaces.default("server", server)
    assert {server} <= set(optimizers())


@pytest.mark.parametrize("name", presets.SERVERS)
def test_a_preset_trains(name):
    made = study({"preset": name})
    setting = {key: parameter.grid()[0] for key, parameter in made.methods[0].parameters().items()}
    lines = Pack.from_spec(
        parse(trial_document(made, name, [{**setting, "client_lr": 0.1, "server_lr": 0.1}], 0))
    ).advance()
    assert lines[-1]["round"] == 2
    assert lines[-1]["train_loss"] is not None


def test_what_the_entry_says_comes_first():
    space = {"client_lr": 0.1, "server_lr": 0.1, "local_steps": 3}
    entry = study({"preset": "fedyogi", "label": "mine", "space": space, "server": {"name": "yogi"}}).methods[0]
    assert (entry.label, entry.name, entry.server.name) == ("mine", "fedavg", "yogi")
    assert entry.server.space == {}
    assert set(entry.space) == set(space)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"preset": "fedadm"}, 'no preset "fedadm": did you mean fedadam?'),
        ({"preset": 3}, "no preset 3"),
        (
            {"preset": "fedadam", "name": "fedavg"},
            'must not be given together with name, got preset "fedadam" and name',
        ),
    ],
)
def test_wrong_presets_say_what_to_do(entry, message):
    with pytest.raises(InvalidSpec, match="preset") as caught:
        study(entry)
    assert message in str(caught.value)
    assert "methods[0].preset" in str(caught.value)


def test_the_example_compares_them_all():
    assert Study.from_yaml(EXAMPLE).labels == ("fedavg", *presets.SERVERS)
    assert Study.from_yaml(EXAMPLE).check() == []
