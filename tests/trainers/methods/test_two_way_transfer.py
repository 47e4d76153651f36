"""Two-way transfer: one local step, its memories, a warm start and what clients send."""

import numpy as np

from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

from .mixed import DIGITS, train


def test_the_federated_correction_is_the_mean_of_all_gradients_of_unequal_clients():
    """What the server tells from pseudo-gradients is the mean over all local steps, however many each client takes."""
    given = {**DIGITS, "clients": 10, "partition": "by_label"}
    method = {"client_lr": 0.05, "server_lr": 0.05, "local_epochs": 1, "central_steps": 3}
    document = {"task": given, "rounds": 1, "batch_size": 9, "weighting": "uniform", "dtype": "float64"}
    pack = Pack.from_spec(parse({**document, "method": {"name": "two_way_transfer", **method}}))
    before = pack._lanes[0].now.state.params
    pack.advance()
    alone = {"name": "parallel_training", **method, "central_lr": 0.0}  # the same first round of the clients
    after = Pack.from_spec(parse({**document, "method": alone}))
    after.advance()
    sizes = pack.spec.task.examples
    steps = -(-sizes // 9)
    assert len(set(steps)) > 1
    mean = (before - after._lanes[0].now.state.params) / 0.05 / steps.mean()
    np.testing.assert_allclose(pack._lanes[0].now.state.memory["federated_correction"], mean, rtol=0, atol=1e-14)


def test_warm_start_begins_with_an_exchange_of_gradients():
    """Where it leads is in test_closed_forms.py."""
    lines = train("two_way_transfer", 2, server_lr=0.05, local_steps=1, warm_start=True)
    assert [line["exchanges"] for line in lines] == [0, 2, 3]
    assert [line["bytes_down"] for line in lines] == [0, 2 * 96, 4 * 96]
    assert [line["bytes_up"] for line in lines] == [0, 2 * 96, 3 * 96]
    assert [line["client_gradients"] for line in lines] == [0, 8, 12]


def test_clients_send_their_gradients_where_their_steps_do_not_tell_them():
    for given, sent in (({}, 1), ({"clip_norm": 1.0}, 1), ({"client": {"name": "adam"}}, 2)):
        line = train("two_way_transfer", 3, **given)[-1]
        assert (line["bytes_down"], line["bytes_up"]) == (3 * 2 * 96, 3 * sent * 96)
        assert train("one_way_transfer", 3, **given)[-1]["bytes_up"] == 3 * 96
