"""FedAvg by FedLab, one client after another, asked by `benchmarks/peer_rounds.py`."""

# ruff: noqa: E402 (first what the package needs)

import sys
from typing import Any
from unittest.mock import MagicMock

import torch
from answering import answer

for name in ("torchvision", "torchvision.datasets", "torchvision.transforms"):
    sys.modules[name] = MagicMock()  # which only FedLab's data sets use

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline
from round_task import BATCH, CLIENT_LR, CLIENTS, COHORT, RoundTask, save
from torch.utils.data import DataLoader, TensorDataset


class Server(SyncServerHandler):
    """A server whose cohorts are given."""

    def sample_clients(self) -> list[int]:
        return list(range(self.num_clients_per_round))  # places in the cohort


class Pipeline(StandalonePipeline):
    """Rounds without evaluation."""

    def evaluate(self) -> None:
        pass


class Peer:
    """A training that goes on."""

    def __init__(self, folder: str, model: str) -> None:
        self.task = RoundTask(folder, model)
        self.inputs, self.targets = self.task.tensors()
        self.server = Server(self.task.module(), 0, COHORT / CLIENTS)
        trainer = SGDSerialClientTrainer(self.task.module(), CLIENTS)
        trainer.setup_dataset(self)
        trainer.setup_optim(1, BATCH, CLIENT_LR)
        self.pipeline = Pipeline(self.server, trainer)

    def get_dataloader(self, place: int, batch_size: int) -> DataLoader[Any]:
        """The batches of a client of the round: FedLab calls this."""
        rows = torch.from_numpy(self.task.rows[self.server.round, place])
        return DataLoader(TensorDataset(self.inputs[rows], self.targets[rows]), batch_size)

    def rounds(self, count: int) -> None:
        self.server.global_round += count
        self.pipeline.main()

    def parameters(self, path: str) -> None:
        save(path, [held.detach() for held in self.server.model.parameters()])


def main() -> None:
    answer(Peer)


if __name__ == "__main__":
    main()
