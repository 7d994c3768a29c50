"""Trains a small convolutional network on scikit-learn's handwritten digits with DistributedDataParallel.

    torchrun --nproc-per-node 2 train_digits.py        # on one host, two ranks
    python train_digits.py                             # one process, the same batches

An ordinary PyTorch script: only the name of the backend is ours.
"""

import argparse
import hashlib
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from tqdm import tqdm


@dataclass
class Report:
    """What one rank has to tell about its run."""

    rank: int
    world_size: int
    host: str
    losses: list[float]  # of the whole batch, one per step
    accuracy: float  # on the test images, 0 to 1
    parameters: str  # SHA-256 of their bytes


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,797 images of 8 x 8 pixels, in [0, 1]; a fifth of them for testing."""
    data = load_digits()
    images = torch.from_numpy(data.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(data.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def average(value: Tensor, world_size: int) -> float:
    value = value.detach().clone()
    if world_size > 1:
        dist.all_reduce(value, op=dist.ReduceOp.AVG)
    return value.item()


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, rank: int, world_size: int) -> float:
    """Each rank looks at its share of the images; the counts are added up."""
    images, labels = (tensor[rank::world_size] for tensor in data.tensors)
    right = (model(images).argmax(1) == labels).sum()
    if world_size > 1:
        dist.all_reduce(right)
    return right.item() / len(data)


def train(args: argparse.Namespace, rank: int, world_size: int) -> Report:
    torch.manual_seed(0)
    train_data, test_data = digits()
    model = network()
    if world_size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9)
    sampler = DistributedSampler(train_data, num_replicas=world_size, rank=rank, seed=0)
    loader = DataLoader(train_data, batch_size=args.batch // world_size, sampler=sampler, drop_last=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))

    losses: list[float] = []
    progress = tqdm(range(args.epochs), desc="training", unit="epoch", disable=None if rank == 0 else True)
    for epoch in progress:
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(average(loss, world_size))
        progress.set_postfix(loss=f"{losses[-1]:.4f}")

    reached = accuracy(model, test_data, rank, world_size)
    if rank == 0:
        print(f"{world_size} ranks, {len(losses)} steps: test accuracy {reached:.2%}", flush=True)
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    return Report(rank, world_size, socket.gethostname(), losses, reached, digest.hexdigest())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="neuron", help="of torch.distributed (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64, help="images per step, over all ranks (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--report", type=Path, help="folder for one JSON file per rank")
    args = parser.parse_args()

    torch.set_num_threads(1)
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if args.batch % world_size:
        parser.error(f"--batch {args.batch} does not divide by {world_size} ranks")
    if world_size > 1:
        dist.init_process_group(args.backend)
    report = train(args, rank, world_size)
    if args.report:
        args.report.mkdir(parents=True, exist_ok=True)
        (args.report / f"rank{rank}.json").write_text(json.dumps(asdict(report)))
    if world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
