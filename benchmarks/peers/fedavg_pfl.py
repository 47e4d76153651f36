"""FedAvg by pfl, asked by `benchmarks/peer_rounds.py`."""

import itertools

import torch
import torch.nn.functional as F
from answering import answer
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from round_task import BATCH, CLIENT_LR, COHORT, RoundTask, save
from torch import Tensor, nn


class Classifier(nn.Module):
    """A module with what pfl wants of it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def loss(self, inputs: Tensor, targets: Tensor, eval: bool = False) -> Tensor:  # noqa: A002 (pfl's name)
        return F.cross_entropy(self.module(inputs), targets)

    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(self.loss(inputs, targets).item(), len(inputs))}


class Peer:
    """A training that goes on."""

    def __init__(self, folder: str, model: str) -> None:
        self.task = task = RoundTask(folder, model)
        self.module = task.module()
        inputs, targets = task.tensors()

        def user(number: int) -> PyTorchTensorDataset:
            rows = torch.from_numpy(task.rows[divmod(number, COHORT)])
            return PyTorchTensorDataset((inputs[rows], targets[rows]))

        users = FederatedDataset(user, itertools.count().__next__)
        self.backend = SimulatedBackend(users, users)
        classifier = Classifier(self.module)
        self.model = PyTorchModel(classifier, torch.optim.SGD, torch.optim.SGD(classifier.parameters(), 1.0))
        self.algorithm = FederatedAveraging()
        self.done = 0

    def rounds(self, count: int) -> None:
        self.done += count
        settings = NNAlgorithmParams(
            central_num_iterations=self.done, evaluation_frequency=10**9, train_cohort_size=COHORT, val_cohort_size=0
        )
        local = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=CLIENT_LR, local_batch_size=BATCH)
        self.algorithm.run(settings, self.backend, self.model, local, send_metrics_to_platform=False)

    def parameters(self, path: str) -> None:
        save(path, [held.detach() for held in self.module.parameters()])


def main() -> None:
    answer(Peer)


if __name__ == "__main__":
    main()
