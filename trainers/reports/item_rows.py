"""Number of rows of the item table that a client uses, in every round of a task with histories of items.

    item_rows = mean over the cohort of the number of different items in the client's mini-batches of the round

with the weights of all metrics. SGD on a client's own loss reads and changes only these rows of the table, so that a
model can be sent as item_rows rows of d numbers and the dense layer, with the same result: the server itself adds the
other rows of a gradient that a transfer method adds. Weight decay, displacement and `all_on_client`, whose clients
compute the server's loss as well, change the whole table. The counters of bytes are those of whole models. None if a
round has no local loop.

Source: table 5 and section 5.3 of "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein
et al. 2022), where item_rows is n.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from trainers.engine.evaluation.views import RoundView

METRICS = ("item_rows",)
NEEDS = ("test_recall_at_k",)


def of_round(view: RoundView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: the finished round.
    """
    params, worked = view.before.params, view.cohort.worked()
    if worked is None:
        return {"item_rows": params.new_full((params.shape[0],), math.nan).double()}
    steps, batches = worked
    used = []  # (step, client, item) of every place in a batch
    for step in range(int(steps.max())):
        for group in batches.batch(step, view.cohort.clients):
            before, item = group.data["inputs"], group.data["targets"] + 1  # in the inputs, 0 stands for no item
            items = torch.cat([before.flatten(1), item.flatten(1)], 1).cpu().numpy()
            clients = np.broadcast_to(np.arange(group.start, group.stop)[:, None], items.shape)[items != 0]
            used.append(np.stack([np.full(len(clients), step), clients, items[items != 0]]))
    step, client, item = np.concatenate(used, 1)
    _, first = np.unique(client * (item.max() + 1) + item, return_index=True)
    rows = [np.bincount(client[first], step[first] < counts[client[first]], len(counts)) for counts in steps]
    return {"item_rows": view.cohort.measured_mean(params.new_tensor(np.array(rows))).double()}
