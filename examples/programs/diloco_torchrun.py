"""DiLoCo with torch.distributed: two workers under torchrun train locally, and average their changes once a round.

By hand: torchrun --standalone --nproc-per-node=2 diloco_torchrun.py; tuned: driftline run diloco_torchrun.yaml.
The first worker alone reports and writes checkpoints, and tells the others when one is due and when to stop.
"""

from datetime import timedelta

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits

from driftline import trial


def main() -> None:
    """Trains a classifier of the digits: AdamW inside, SGD with Nesterov momentum outside (arXiv:2311.08105)."""
    t = trial.current(inner_lr=0.01, outer_lr=0.7, outer_momentum=0.9, local_steps=10)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, workers = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    pixels, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    inputs, held_out = (pixels.float() / 16).split([1437, 360])
    targets, expected = labels.split([1437, 360])
    rows = torch.arange(rank, len(inputs), workers)  # the shard of this worker

    torch.manual_seed(t.seed)  # the same model everywhere
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    broadcast = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    outer = torch.optim.SGD(broadcast, t["outer_lr"], momentum=t["outer_momentum"], nesterov=t["outer_momentum"] > 0)
    inner = torch.optim.AdamW(model.parameters(), t["inner_lr"])
    generator = torch.Generator().manual_seed(1000 * t.seed + rank)
    size = 4 * sum(parameter.numel() for parameter in broadcast)

    if t.resume:
        state = torch.load(t.resume / "workers.pt", weights_only=True)[rank]
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["inner"])
        outer.load_state_dict(state["outer"])
        generator.set_state(state["generator"])
        with torch.no_grad():
            for kept, parameter in zip(broadcast, model.parameters(), strict=True):
                kept.copy_(parameter)

    for r in range(t.first + 1, t.last + 1):
        for _ in range(t["local_steps"]):
            batch = rows[torch.randint(len(rows), (32,), generator=generator)]
            inner.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            inner.step()
        for kept, parameter in zip(broadcast, model.parameters(), strict=True):
            kept.grad = kept.detach() - parameter.detach()
            dist.all_reduce(kept.grad)
            kept.grad /= workers
        outer.step()
        with torch.no_grad():
            for kept, parameter in zip(broadcast, model.parameters(), strict=True):
                parameter.copy_(kept)
            loss = torch.nn.functional.cross_entropy(model(held_out), expected)
        if rank == 0:
            t.report(r, test_loss=loss, bytes=2 * size * workers * r)
        told = torch.tensor([t.checkpoint_due, t.stopping])
        dist.broadcast(told, src=0)
        if told[0]:
            parts = {"model": model, "inner": inner, "outer": outer}
            state = {name: part.state_dict() for name, part in parts.items()} | {"generator": generator.get_state()}
            states = [None] * workers
            dist.all_gather_object(states, state)
            if rank == 0:
                with t.checkpoint() as folder:
                    torch.save(states, folder / "workers.pt")
        if told[1]:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
