"""FedAvg by FedJAX, asked by `benchmarks/peer_rounds.py`. Images are channels last, as JAX prefers on a CPU."""

# ruff: noqa: E402 (first what the package needs)

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from answering import answer
from round_task import BATCH, CLIENT_LR, RoundTask, save

jax.tree_map = jax.tree.map  # which FedJAX 0.0.17 still calls

import fedjax
from fedjax.algorithms import fed_avg


def scores(model: str, parameters: list[Any], inputs: Any) -> Any:
    """Scores of images (n, 28, 28, 1)."""
    dense = parameters
    if model == "cnn":
        for kernel, bias in (parameters[:2], parameters[2:4]):
            inputs = jax.lax.conv_general_dilated(
                inputs, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            inputs = jax.nn.relu(inputs + bias)
            inputs = jax.lax.reduce_window(inputs, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        dense = parameters[4:]
    hidden = inputs.reshape(len(inputs), -1)
    for weight, bias in zip(dense[:-2:2], dense[1:-2:2], strict=True):
        hidden = jax.nn.relu(hidden @ weight + bias)
    return hidden @ dense[-2] + dense[-1]


def to_jax(arrays: list[Any]) -> list[Any]:
    """Parameters as JAX uses them, from those of torch's module."""
    images, shape = None, None
    found = []
    for held in arrays:
        if held.ndim == 4:
            images, held = held.shape[0], held.transpose(2, 3, 1, 0)
        elif held.ndim == 2:
            if images is not None:  # the first dense layer after the images
                side = int((held.shape[1] / images) ** 0.5)
                shape = (held.shape[0], images, side, side)
                held = held.reshape(shape).transpose(0, 2, 3, 1).reshape(held.shape)
                images = None
            held = held.T
        found.append(jnp.asarray(held))
    return found


def to_torch(parameters: list[Any]) -> list[Any]:
    """The reverse."""
    images = None
    found = []
    for parameter in parameters:
        held = np.asarray(parameter)
        if held.ndim == 4:
            images, held = held.shape[3], held.transpose(3, 2, 0, 1)
        elif held.ndim == 2:
            held = held.T
            if images is not None:
                side = int((held.shape[1] / images) ** 0.5)
                held = held.reshape(-1, side, side, images).transpose(0, 3, 1, 2).reshape(held.shape)
                images = None
        found.append(held)
    return found


class Peer:
    """A training that goes on."""

    def __init__(self, folder: str, model: str) -> None:
        self.task = RoundTask(folder, model)
        self.inputs = np.ascontiguousarray(self.task.inputs.transpose(0, 2, 3, 1))

        def loss(parameters: Any, batch: Any, key: Any) -> Any:
            logs = jax.nn.log_softmax(scores(model, parameters, batch["x"]))
            return -jnp.take_along_axis(logs, batch["y"][:, None], 1).mean()

        batching = fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1, skip_shuffle=True)
        self.algorithm = fed_avg.federated_averaging(
            jax.grad(loss), fedjax.optimizers.sgd(CLIENT_LR), fedjax.optimizers.sgd(1.0), batching
        )
        self.state = self.algorithm.init(to_jax(self.task.first))
        self.key = jax.random.PRNGKey(0)
        self.done = 0

    def client(self, place: int) -> tuple[int, Any, Any]:
        """A client of the round."""
        rows = self.task.rows[self.done, place]
        return place, fedjax.ClientDataset({"x": self.inputs[rows], "y": self.task.targets[rows]}), self.key

    def rounds(self, count: int) -> None:
        for _ in range(count):
            clients = [self.client(place) for place in range(self.task.rows.shape[1])]
            self.state, _ = self.algorithm.apply(self.state, clients)
            self.done += 1
        jax.block_until_ready(self.state.params)

    def parameters(self, path: str) -> None:
        save(path, to_torch(self.state.params))


def main() -> None:
    answer(Peer)


if __name__ == "__main__":
    main()
