"""The text that comes with the package, its splits, and the hub's sets behind the same door."""

from __future__ import annotations

import bz2
import hashlib
import io
import sys
import tarfile
import types
import zipfile
from pathlib import Path

import pytest

from it2nb.core.errors import It2nbError, WorkflowUnavailable
from it2nb.workflows.data import CLASSES, HUB, SOURCES, SPLITS, corpus, snippets
from scripts import sentiment_data


def test_the_text_is_what_was_built_and_its_licence_is_beside_it() -> None:
    packed = sentiment_data.TEXT.read_bytes()
    assert len(packed) < 3_000_000
    assert hashlib.sha256(packed).hexdigest() == (
        "121c80149d387701ebe0024cc364910e81b557dbc590d0c47d327de1c1d82493"
    )
    assert "MIT" in sentiment_data.LICENSE.read_text()
    assert "2014" in sentiment_data.LICENSE.read_text()


def test_every_source_has_all_classes_in_every_split() -> None:
    counts = {name: [len(snippets(name, split)) for split in SPLITS] for name in SOURCES}
    assert {name: sum(each) for name, each in counts.items()} == {
        "tweets": 4200, "products": 3708, "films": 10605, "editorials": 5190,
    }  # fmt: skip
    for name, (train, validation, test) in counts.items():
        assert 0.72 < train / (train + validation + test) < 0.86, name
        for split in SPLITS:
            assert {each.label for each in snippets(name, split)} == set(range(len(CLASSES)))


def test_no_text_of_a_film_or_tweet_is_in_two_splits() -> None:
    for name in ("films", "tweets"):
        texts = [{each.text for each in snippets(name, split)} for split in SPLITS]
        assert not (texts[0] & texts[1] or texts[0] & texts[2] or texts[1] & texts[2])


def test_the_corpus_is_the_same_every_time_and_ends_where_it_is_told_to() -> None:
    text = corpus("validation")
    assert text.decode().count("\n") == sum(len(snippets(s, "validation")) for s in SOURCES) - 1
    assert corpus("validation", limit_bytes=1000) == text[:1000]
    assert len(corpus("train")) > 1_700_000


def test_wrong_names_are_told_with_the_right_ones() -> None:
    with pytest.raises(It2nbError, match="'film' is none of ours; did you mean 'films'"):
        snippets("film", "train")
    with pytest.raises(It2nbError, match="did you mean 'test'"):
        snippets("films", "tests")  # type: ignore[arg-type]
    with pytest.raises(It2nbError, match="none of ours"):
        corpus("train", source="web")


@pytest.mark.parametrize("name", HUB)
def test_nothing_is_downloaded_by_itself(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("IT2NB_DOWNLOAD", raising=False)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    with pytest.raises(WorkflowUnavailable, match=rf"{HUB[name].repo}.*set IT2NB_DOWNLOAD=1"):
        snippets(name, "train")


def test_a_set_in_the_cache_is_read_without_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = types.ModuleType("datasets.config")
    config.HF_HUB_OFFLINE = False  # type: ignore[attr-defined]
    seen: list[bool] = []

    def load_dataset(*_: object, **__: object) -> list[dict[str, object]]:
        seen.append(config.HF_HUB_OFFLINE)
        return [{"text": "good", "label": 1}]

    fake = types.ModuleType("datasets")
    fake.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setitem(sys.modules, "datasets.config", config)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    (tmp_path / "stanfordnlp___imdb").mkdir()
    for allowed in ("0", "1"):
        monkeypatch.setenv("IT2NB_DOWNLOAD", allowed)
        assert [each.label for each in snippets("imdb", "train")] == [2]
    assert seen == [True, False]
    assert config.HF_HUB_OFFLINE is False


def test_the_hubs_sets_become_the_same_snippets(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None, str]] = []

    def load_dataset(
        repo: str, subset: str | None, *, split: str, streaming: bool = False
    ) -> list[dict[str, object]]:
        asked.append((repo, subset, split))
        if repo.startswith("HuggingFaceFW"):
            return [{"text": f"page {n}"} for n in range(200)]
        return [{"text": f"t{n}", "label": n} for n in range(5)]

    fake = types.ModuleType("datasets")
    fake.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setenv("IT2NB_DOWNLOAD", "1")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yelp = snippets("hub-yelp", "validation")
    assert [(each.source, each.text, each.label) for each in yelp] == [
        ("hub-yelp", "t0", 0), ("hub-yelp", "t1", 0), ("hub-yelp", "t2", 1),
        ("hub-yelp", "t3", 2), ("hub-yelp", "t4", 2),
    ]  # fmt: skip
    assert [each.label for each in snippets("imdb", "test", limit=2)] == [0, 2]
    assert asked == [
        ("Yelp/yelp_review_full", None, "train[90%:]"), ("stanfordnlp/imdb", None, "test"),
    ]  # fmt: skip
    pages = {split: corpus(split, source="fineweb-edu", limit_bytes=5000) for split in SPLITS}
    assert sum(text.count(b"page") for text in pages.values()) == 200
    assert corpus("train", source="fineweb-edu", limit_bytes=50) == pages["train"][:50]


def test_the_file_is_rebuilt_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as tar:
        for number, file in enumerate(sentiment_data.SOURCES.values()):
            raw = f"{number}_1\t-0.9\tfish &amp;  chips\r\n{number}_2\t1.5\tgood\r\n\r\n".encode()
            member = tarfile.TarInfo(f"hutto_ICWSM_2014/{file}")
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as outer:
        outer.writestr(sentiment_data.INNER, inner.getvalue())
        outer.writestr(sentiment_data.LICENSE_INSIDE, "MIT\r\n2014")
    assert sentiment_data.main([str(archive), "--check"]) == 1
    monkeypatch.setattr(sentiment_data, "TEXT", tmp_path / "text.bz2")
    monkeypatch.setattr(sentiment_data, "LICENSE", tmp_path / "license.txt")
    assert sentiment_data.main([str(archive)]) == 0
    assert sentiment_data.main([str(archive), "--check"]) == 0
    assert capsys.readouterr().out.endswith("equal\n")
    text, license_text = sentiment_data.build(archive)
    assert license_text == b"MIT\n2014"

    assert bz2.decompress(text).decode().split("\n")[:2] == [
        "tweets\t0\t-0.900\tfish & chips", "tweets\t0\t1.500\tgood",
    ]  # fmt: skip
