"""Settings of a method that are refused before training, with the error."""

import pytest

from trainers.errors import SpecError
from trainers.trial.document import parse

from .four_clients import STORED, WORK, task


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "fedga", **WORK}, r"method.displacement must be given \(at least 0\)"),
        ({"name": "fedga", **WORK, "displacement": -0.1}, "displacement must be at least 0, got displacement=-0.1"),
        (
            {"name": "fedga", **WORK, "displacement": 0.1, "displacement_form": "twice"},
            'displacement_form must be one of once, each_step, got displacement_form="twice"',
        ),
        (
            {"name": "gradalign", "server_lr": 0.1, "displacement": 0.1, "displacement_source": "some"},
            'displacement_source must be one of full, batch, got displacement_source="some"',
        ),
        ({"name": "scaffold", **WORK, "correction": 2}, r"correction must be in \[0, 1\], got correction=2"),
        ({"name": "scaffold", **WORK, "local_epochs": 2}, "local_epochs"),
        ({"name": "scaffold", **WORK, "displacement": 0.1}, "displacement"),
        ({"name": "gradalign", "server_lr": 0.1, "displacement": 0.1, "local_steps": 2}, "local_steps"),
        ({"name": "linear_scaling", "server_lr": 0.1, "client_lr": 0.1}, "client_lr"),
        ({"name": "feddyn", **WORK}, r"method.prox must be given \(at least 0\)"),
        ({"name": "feddyn", **WORK, "prox": 0.1, "client_lr": 0}, "client_lr must be above 0, got client_lr=0"),
        ({**STORED, "variates": "kept"}, 'variates must be one of fresh, stored, got variates="kept"'),
        ({**STORED, "variate_update": "II"}, 'variate_update must be one of path, gradient, got variate_update="II"'),
        ({"name": "mime", **WORK, "momentum": 1.0}, r"momentum must be in \[0, 1\), got momentum=1"),
        ({"name": "fedexp", **WORK, "epsilon": 0}, "epsilon must be above 0, got epsilon=0"),
        ({"name": "regularized_gd", "server_lr": 0.1}, r"method.misalignment_weight must be given \(at least 0\)"),
    ],
)
def test_bad_settings_are_refused_before_training(method, message):
    with pytest.raises(SpecError, match=message):
        parse({"task": task(), "method": method, "rounds": 1})
