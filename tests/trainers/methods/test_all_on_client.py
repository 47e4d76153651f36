"""All losses on the clients: client optimizers, and the server's examples that are sent to them."""

import numpy as np

from .mixed import DIGITS, INIT, models, problem, train


def test_client_optimizers_step_along_the_joined_losses():
    given, hessians, centers, own, center = problem()
    found = models("all_on_client", 6, given, client={"name": "momentum", "momentum": 0.7})
    x, wanted = np.array(INIT), [INIT]
    for _ in range(6):
        ends = []
        for hessian, held in zip(hessians, centers, strict=True):
            y, velocity = x, np.zeros(3)
            for _ in range(4):
                velocity = 0.7 * velocity + hessian @ (y - held) / 2 + own @ (y - center) / 2
                y = y - 0.05 * velocity
            ends.append((x - y) / 0.05)
        x = x - 0.04 * np.mean(ends, 0)
        wanted.append(x)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)


def test_all_examples_of_the_server_are_sent_once_a_round():
    sent = [
        train("all_on_client", 2, DIGITS, local_steps=steps, trial={"clients_per_round": 3})[-1]["bytes_down"]
        for steps in (4, 9)
    ]
    assert sent[0] == sent[1]


def test_a_client_is_sent_the_servers_examples_of_its_own_steps_alone():
    """With local_epochs clients of more examples take more steps: 64 numbers and a label each, an example."""
    trial = {"batch_size": 5, "clients_per_round": 3}
    epochs = {"local_steps": None, "local_epochs": 1}
    given = {**DIGITS, "partition": {"dirichlet": 0.2}}
    alone = train("fedavg", 2, given, **epochs, trial=trial)[-1]
    joined = train("all_on_client", 2, given, **epochs, central_batch_size=7, trial=trial)[-1]
    steps = alone["client_gradients"]
    one = train("all_on_client", 1, given, local_steps=1, central_batch_size=7, trial=trial)[-1]["bytes_down"]
    model = train("fedavg", 1, given, local_steps=1, trial=trial)[-1]["bytes_down"]
    assert joined["client_gradients"] == 2 * steps
    assert joined["bytes_down"] - alone["bytes_down"] == steps * (one - model) // 3
