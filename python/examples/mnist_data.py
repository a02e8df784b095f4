"""MNIST for the examples, from files that "make data" fetches. Without files it is a set of random patterns."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.data import Dataset


class Images(Dataset):
    """Images of 28 by 28 pixels, with the digits that they show."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[i].unsqueeze(0).float() / 255, self.labels[i]


def mnist(folder: str, samples: int = 60000) -> tuple[Images, Images]:
    """The training set, or its first samples, and the test set."""
    if (Path(folder) / "train-images-idx3-ubyte").exists():
        return _read(folder, "train", samples), _read(folder, "t10k", samples)
    print(f"no MNIST in {folder} (make data fetches it): training on random patterns", flush=True)
    return _patterns(min(samples, 6000), 1), _patterns(min(samples, 1000), 2)


def _read(folder: str, name: str, samples: int) -> Images:
    images, labels = (
        torch.frombuffer(bytearray((Path(folder) / f"{name}-{kind}-ubyte").read_bytes()), dtype=torch.uint8, offset=head)
        for kind, head in (("images-idx3", 16), ("labels-idx1", 8))
    )
    return Images(images.reshape(-1, 28, 28)[:samples], labels.long()[:samples])


def _patterns(n: int, seed: int) -> Images:
    """A pattern for each digit, with noise."""
    patterns = torch.rand(10, 28, 28, generator=torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (n,), generator=g)
    noise = torch.rand(n, 28, 28, generator=g)
    return Images(((0.4 * patterns[labels] + 0.6 * noise) * 255).to(torch.uint8), labels)
