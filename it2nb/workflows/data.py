"""Text for the workflows: what the package brings along, and the hub's sets, behind one door.

The sentiment text is C.J. Hutto's (MIT, 2014): four sources, each snippet rated by twenty people
from -4 to 4. `scripts/sentiment_data.py` rebuilds the file from the archive.
"""

from __future__ import annotations

import bz2
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from it2nb.core.errors import It2nbError, WorkflowUnavailable, near, require
from it2nb.workflows.requirements import absent_from_cache, as_allowed

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
#: What a snippet says, by its number.
CLASSES = ("negative", "neutral", "positive")
#: Mean ratings no further from 0 than this are neutral.
NEUTRAL = 0.5
#: The sources that come with the package.
SOURCES = ("tweets", "products", "films", "editorials")

_ASSETS = Path(__file__).resolve().parent.parent / "assets"
_FILE = _ASSETS / "sentiment.tsv.bz2"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of text and what it says.

    Attributes
    ----------
    source : str
    text : str
    label : int
        Index into `CLASSES`.
    """

    source: str
    text: str
    label: int


@dataclass(frozen=True, slots=True)
class HubSource:
    """A data set of the Hugging Face hub, and how it becomes snippets.

    Attributes
    ----------
    repo : str
    splits : mapping of our split to the hub's
        In slices of the datasets library where the hub has no such split of its own.
    text, label : str
        Columns.
    classes : mapping of the set's label to ours
        A label that is not in it is left out.
    subset : str, optional
    """

    repo: str
    splits: Mapping[Split, str]
    text: str
    label: str
    classes: Mapping[int, int]
    subset: str | None = None


#: The hub's sentiment sets by our name.
HUB: dict[str, HubSource] = {
    "imdb": HubSource(
        "stanfordnlp/imdb",
        {"train": "train[:90%]", "validation": "train[90%:]", "test": "test"},
        "text", "label", {0: 0, 1: 2},
    ),
    "hub-tweets": HubSource(
        "cardiffnlp/tweet_eval",
        {"train": "train", "validation": "validation", "test": "test"},
        "text", "label", {0: 0, 1: 1, 2: 2}, "sentiment",
    ),
    "hub-finance": HubSource(
        "zeroshot/twitter-financial-news-sentiment",
        {"train": "train[:90%]", "validation": "train[90%:]", "test": "validation"},
        "text", "label", {0: 0, 1: 2, 2: 1},
    ),
    "hub-products": HubSource(
        "SetFit/amazon_reviews_multi_en",
        {"train": "train", "validation": "validation", "test": "test"},
        "text", "label", {0: 0, 1: 0, 2: 1, 3: 2, 4: 2},
    ),
    "hub-yelp": HubSource(
        "Yelp/yelp_review_full",
        {"train": "train[:90%]", "validation": "train[90%:]", "test": "test"},
        "text", "label", {0: 0, 1: 0, 2: 1, 3: 2, 4: 2},
    ),
}  # fmt: skip

#: Web pages for language models; its documents are the corpus at ``paper`` scale.
FINEWEB = "HuggingFaceFW/fineweb-edu"


def snippets(source: str, split: Split, *, limit: int | None = None) -> list[Snippet]:
    """Return the snippets of one source.

    Parameters
    ----------
    source : str
        One of `SOURCES`, or of `HUB`.
    split : {"train", "validation", "test"}
        Fixed by a hash of the document: the same on every machine, and no document is in two.
    limit : int, optional
        The first so many.

    Raises
    ------
    It2nbError
        If there is no such source or split.
    WorkflowUnavailable
        If it is on the hub alone and nothing may be downloaded.
    MissingDependency
        Without ``pip install 'it2nb[hub]'`` for the hub's.
    """
    if split not in SPLITS:
        raise It2nbError(f"split={split!r} is none of ours{near(str(split), SPLITS)}")
    if source in SOURCES:
        return list(_ours()[source, split][:limit])
    if source in HUB:
        return _from_hub(source, HUB[source], split, limit)
    raise It2nbError(f"source={source!r} is none of ours{near(source, [*SOURCES, *HUB])}")


def corpus(split: Split, *, source: str = "snippets", limit_bytes: int | None = None) -> bytes:
    """Return plain text for a language model, one document after the other.

    Parameters
    ----------
    split : {"train", "validation", "test"}
    source : {"snippets", "fineweb-edu"}
        All snippets that come with the package (2.4 MB), or the hub's web pages.
    limit_bytes : int, optional
        At most about so many bytes; needed for the hub's, which has no end.

    Raises
    ------
    It2nbError, WorkflowUnavailable, MissingDependency
        As `snippets`.
    """
    if source == "snippets":
        lines = [each.text for name in SOURCES for each in snippets(name, split)]
        text = "\n".join(sorted(lines, key=_digest)).encode()
        return text[:limit_bytes]
    if source != "fineweb-edu":
        raise It2nbError(f"source={source!r} is none of ours{near(source, ['fineweb-edu'])}")
    rows = _load(FINEWEB, "sample-10BT", "train", streaming=True)
    return _fill((str(row["text"]) for row in rows), split, limit_bytes or 10_000_000)


def _fill(documents: Iterable[str], split: Split, limit_bytes: int) -> bytes:
    """Join the documents of one split until there are enough bytes."""
    found: list[bytes] = []
    size = 0
    for text in documents:
        if _split_of(text) != split:
            continue
        found.append(text.encode())
        size += len(found[-1]) + 1
        if size >= limit_bytes:
            break
    return b"\n".join(found)[:limit_bytes]


@functools.cache
def _ours() -> Mapping[tuple[str, Split], Sequence[Snippet]]:
    found: dict[tuple[str, Split], list[Snippet]] = {(s, p): [] for s in SOURCES for p in SPLITS}
    for line in bz2.decompress(_FILE.read_bytes()).decode().split("\n"):
        source, document, rating, text = line.split("\t")
        # Films and tweets are one snippet each; some were given twice.
        key = f"{source} {document}" if source in ("products", "editorials") else text
        found[source, _split_of(key)].append(Snippet(source, text, _label(float(rating))))
    # Some sources begin with all of one class: by a hash every beginning is a fair sample.
    return {k: tuple(sorted(v, key=lambda each: _digest(each.text))) for k, v in found.items()}


def _label(rating: float) -> int:
    if abs(rating) <= NEUTRAL:
        return 1
    return 2 if rating > 0 else 0


def _split_of(key: str) -> Split:
    """Eight in ten for training, one to choose by, one to be looked at in the end."""
    place = int(_digest(key)[:8], 16) % 10
    return "train" if place < 8 else "validation" if place == 8 else "test"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _from_hub(name: str, source: HubSource, split: Split, limit: int | None) -> list[Snippet]:
    found: list[Snippet] = []
    for row in _load(source.repo, source.subset, source.splits[split]):
        label = source.classes.get(row[source.label])
        if label is not None:
            found.append(Snippet(name, str(row[source.text]), label))
        if len(found) == limit:
            break
    return found


def _load(repo: str, subset: str | None, split: str, **more: Any) -> Iterable[dict[str, Any]]:
    said = absent_from_cache(repo, model=False)
    if said is not None:
        raise WorkflowUnavailable(said)
    datasets = require("datasets", extra="hub", feature=f"the hub's {repo!r}")
    with as_allowed():
        rows: Iterable[dict[str, Any]] = datasets.load_dataset(repo, subset, split=split, **more)
    return rows
