"""One-way transfer diverges where the server's loss bends more than the clients'."""

from .mixed import models, scalar


def test_one_way_transfer_diverges_where_the_server_bends_more():
    # losses 2 and 6 have the curvatures a = 1 and c = 3 with weights 1/2: stable at 1 step, not from 2 on
    given = scalar([2.0], [1.0], 6.0, 0.0)
    for rate, steps, stable in ((0.3, 1, True), (0.3, 2, False), (0.28, 2, True), (0.3, 5, False)):
        assert (4 * (1 - (1 - rate) ** steps) < 2) == stable
        found = models(
            "one_way_transfer", 80, given, client_lr=rate, server_lr=rate, local_steps=steps, trial={"init": [2.0]}
        )
        assert (abs(found[-1, 0] - 0.25) < abs(found[0, 0] - 0.25)) == stable
