"""A Flower app: FedAvg against FedProx over simulated clients, each with about two digits of the digits data set.

Flower's simulation needs an environment of its own, beside this file:

    python -m venv .venv && .venv/bin/pip install -r requirements.txt && .venv/bin/pip install --no-deps driftline

By hand: .venv/bin/python train.py; tuned: driftline run flower.yaml.
"""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, FedProx
from flwr.simulation import run_simulation
from sklearn.datasets import load_digits

from driftline import trial

CLIENTS, BATCH = 8, 32
client, server = ClientApp(), ServerApp()


def data() -> tuple[torch.Tensor, ...]:
    """Inputs and classes: of the clients, and held out."""
    pixels, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    return (*(pixels / 16).split([1437, 360]), *labels.split([1437, 360]))


@client.train()
def local_steps(message: Message, context: Context) -> Message:
    """Trains the server's model with the examples of one client."""
    config, start = message.content["config"], message.content["arrays"].to_torch_state_dict()["weights"]
    inputs, _, targets, _ = data()
    number = context.node_config["partition-id"]
    rows = targets.argsort(stable=True).chunk(CLIENTS)[number]
    seed = (1000 * config["seed"] + config["first"] + config["server-round"]) * CLIENTS + number
    generator = torch.Generator().manual_seed(seed)
    weights = start.clone().requires_grad_()
    for _ in range(config["local-steps"]):
        batch = rows[torch.randint(len(rows), (BATCH,), generator=generator)]
        loss = torch.nn.functional.cross_entropy(inputs[batch] @ weights, targets[batch])
        loss = loss + config.get("proximal-mu", 0.0) / 2 * (weights - start).square().sum()
        (gradient,) = torch.autograd.grad(loss, weights)
        weights = (weights - config["client-lr"] * gradient).detach().requires_grad_()
    arrays, metrics = ArrayRecord({"weights": weights.detach()}), MetricRecord({"num-examples": len(rows)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@server.main()
def rounds(grid: Grid, context: Context) -> None:
    """Trains the rounds of this run, and reports each."""
    _, inputs, _, targets = data()
    start = torch.load(t.resume / "weights.pt") if t.resume else torch.zeros(64, 10, dtype=torch.float64)

    def evaluate(number: int, arrays: ArrayRecord) -> None:
        weights, r = arrays.to_torch_state_dict()["weights"], t.first + number
        if number == 0 and t.resume:
            return  # the run before has reported this round
        loss = torch.nn.functional.cross_entropy(inputs @ weights, targets)
        t.report(r, test_loss=loss, examples=r * t["local_steps"] * BATCH * CLIENTS)
        if t.checkpoint_due:
            with t.checkpoint() as folder:
                torch.save(weights, folder / "weights.pt")

    clients = {"fraction_evaluate": 0.0, "min_train_nodes": CLIENTS, "min_available_nodes": CLIENTS}
    strategy = FedProx(proximal_mu=t["proximal_mu"], **clients) if t["proximal_mu"] else FedAvg(**clients)
    config = {"client-lr": t["client_lr"], "local-steps": t["local_steps"], "seed": t.seed, "first": t.first}
    strategy.start(
        grid, ArrayRecord({"weights": start}), t.last - t.first, train_config=ConfigRecord(config), evaluate_fn=evaluate
    )


if __name__ == "__main__":
    t = trial.current(client_lr=0.3, local_steps=4, proximal_mu=0.0)
    run_simulation(server, client, CLIENTS, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
