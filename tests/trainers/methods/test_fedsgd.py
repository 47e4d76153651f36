"""FedSGD as a limit: of one local step, and of client_lr 0."""

import numpy as np
import pytest
import torch

from trainers.engine.packs.pack import Pack
from trainers.trial.document import parse

from . import three_clients
from .four_clients import same

FEDSGD = {"name": "fedsgd", "server_lr": 0.05}


@pytest.mark.parametrize("method", ["fedavg", "reptile", "fomaml", "minibatch_prox"])
def test_one_local_step_is_fedsgd(method):
    more = {"prox": 2.0} if method == "minibatch_prox" else {}
    same({**FEDSGD, "name": method, "client_lr": 0.1, "local_steps": 1, **more}, FEDSGD)


@pytest.mark.parametrize("method", ["fedavg", "reptile", "fedprox"])
def test_client_lr_zero_is_a_larger_batch(method):
    more = {"prox": 3.0} if method == "fedprox" else {}
    same({**FEDSGD, "name": method, "client_lr": 0.0, "local_steps": 5, **more}, {**FEDSGD, "local_steps": 5})


def test_with_adamw_on_the_server_it_is_data_parallel_adamw():
    """Against torch.optim.AdamW on the mean loss, with warm-up and cosine, over 40 rounds."""
    server = {"name": "adamw", "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-4, "weight_decay": 0.2}
    schedule = {"name": "cosine", "warmup": 0.25, "floor": 0.05}
    given = three_clients.document(
        {"name": "fedsgd", "server_lr": 0.1}, server=server, schedule=schedule, rounds=40, dtype="float64"
    )
    model = torch.tensor(three_clients.START, dtype=torch.float64)
    optimizer = torch.optim.AdamW([model], lr=0.1, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.2)
    hessians, centers = torch.tensor(three_clients.HESSIANS), torch.tensor(three_clients.CENTERS)
    wanted = []
    for step in range(40):
        fall = 0.05 + 0.95 * (1 + np.cos(np.pi * (step - 10) / 30)) / 2
        optimizer.param_groups[0]["lr"] = 0.1 * ((step + 1) / 10 if step < 10 else fall)
        model.grad = (hessians @ (model - centers)[..., None])[..., 0].mean(0)
        optimizer.step()
        wanted.append(model.tolist())
    lines = Pack.from_spec(parse(given)).advance()
    assert three_clients.models(lines)[1:] == pytest.approx(np.array(wanted), rel=0, abs=1e-12)
