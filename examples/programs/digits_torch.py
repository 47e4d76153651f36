"""A plain torch loop as a function: `python examples/programs/digits_torch.py` tunes it on this computer.

Sixteen clients train a linear classifier of the digits data set; the server averages their models.
"""

import driftline
from driftline.trial import Trial


def train(t: Trial) -> None:
    """FedAvg, or FedProx where `prox` pulls the clients towards the server's model."""
    import torch
    from sklearn.datasets import load_digits

    torch.manual_seed(t.seed)
    torch.set_num_threads(1)
    pixels, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    inputs, held_out = (pixels.float() / 16).split([1437, 360])
    targets, expected = labels.split([1437, 360])
    clients = targets.argsort(stable=True).chunk(16)  # about two digits each
    weights = torch.zeros(64, 10)

    def loss(model: torch.Tensor, data: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(data @ model, classes)

    t.report(0, test_loss=loss(weights, held_out, expected))
    for r in t.rounds():
        models = []
        for rows in clients:
            model = weights.clone().requires_grad_()
            for _ in range(t["local_steps"]):
                batch = rows[torch.randperm(len(rows))[:32]]
                (gradient,) = torch.autograd.grad(loss(model, inputs[batch], targets[batch]), model)
                with torch.no_grad():
                    model -= t["client_lr"] * (gradient + t["prox"] * (model - weights))
            models.append(model.detach())
        weights = torch.stack(models).mean(dim=0)
        t.report(r, test_loss=loss(weights, held_out, expected))


if __name__ == "__main__":
    rate, steps = driftline.Float(0.01, 1, log=True), driftline.Choice((1, 4, 16))
    job = driftline.tune(
        train,
        methods={
            "fedavg": {"client_lr": rate, "local_steps": steps, "prox": 0},
            "fedprox": {"client_lr": rate, "local_steps": steps, "prox": driftline.Float(0.01, 1, log=True)},
        },
        quality="test_loss",
        rounds=20,
        trials=8,
        seeds=2,
    )
    print(job.wait(progress=True).frontier().table())
