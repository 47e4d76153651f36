"""What Flower's actors run for `fedavg_flower.py`: a module of its own, so that each actor keeps its data and model."""

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from round_task import BATCH, CLIENT_LR, RoundTask

app = ClientApp()


@lru_cache(maxsize=1)
def held(folder: str, model: str) -> Any:
    """The task, with its module and tensors."""
    task = RoundTask(folder, model)
    return task, task.module(), *task.tensors()


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["place"]
    task, module, inputs, targets = held(str(config["folder"]), str(config["model"]))
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(module.parameters(), CLIENT_LR)
    for rows in torch.from_numpy(task.rows[config["round"], config["place"]]).split(BATCH):
        optimizer.zero_grad()
        F.cross_entropy(module(inputs[rows]), targets[rows]).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": task.rows.shape[2]})
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)
