"""Rebuild the sentiment text from the archive that its author published, byte by byte.

    python -m scripts.sentiment_data vaderSentiment-0.5.zip            # writes it2nb/assets
    python -m scripts.sentiment_data vaderSentiment-0.5.zip --check    # 1 when it differs

The archive is the source distribution of vaderSentiment 0.5 (MIT, C.J. Hutto, 2014):

    pip download --no-deps --no-binary :all: vaderSentiment==0.5
"""

from __future__ import annotations

import argparse
import bz2
import html
import io
import re
import sys
import tarfile
import zipfile
from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "it2nb" / "assets"
TEXT = ASSETS / "sentiment.tsv.bz2"
LICENSE = ASSETS / "sentiment.LICENSE.txt"

INNER = "vaderSentiment-0.5/additional_resources/hutto_ICWSM_2014.tar.gz"
LICENSE_INSIDE = "vaderSentiment-0.5/LICENSE.txt"
#: Our name of a source: its file in the archive.
SOURCES = {
    "tweets": "tweets_GroundTruth.txt",
    "products": "amazonReviewSnippets_GroundTruth.txt",
    "films": "movieReviewSnippets_GroundTruth.txt",
    "editorials": "nytEditorialSnippets_GroundTruth.txt",
}


def rows(name: str, raw: bytes) -> list[str]:
    """Turn one file of the archive into lines: source, document, mean rating, text."""
    lines = []
    for line in raw.decode("utf-8").split("\r\n"):
        if not line.strip():
            continue
        number, rating, text = line.split("\t", 2)
        text = re.sub(r"\s+", " ", html.unescape(text)).strip()
        if text:
            # Sentences of one document are called document_sentence.
            lines.append(f"{name}\t{number.partition('_')[0]}\t{float(rating):.3f}\t{text}")
    return lines


def build(archive: Path) -> tuple[bytes, bytes]:
    """Return the packed text and its licence."""
    with zipfile.ZipFile(archive) as outer:
        license_text = outer.read(LICENSE_INSIDE)
        with tarfile.open(fileobj=io.BytesIO(outer.read(INNER))) as inner:
            lines: list[str] = []
            for name, file in SOURCES.items():
                member = inner.extractfile(f"hutto_ICWSM_2014/{file}")
                assert member is not None, f"{file} is not in the archive"
                lines += rows(name, member.read())
    # bzip2: its one implementation has given the same bytes for the same text since 2010.
    return bz2.compress("\n".join(lines).encode(), 9), license_text.replace(b"\r\n", b"\n")


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    asked = parser.parse_args(arguments)
    text, license_text = build(asked.archive)
    if asked.check:
        same = TEXT.read_bytes() == text and LICENSE.read_bytes() == license_text
        print("equal" if same else "not equal")
        return 0 if same else 1
    TEXT.write_bytes(text)
    LICENSE.write_bytes(license_text)
    print(f"{TEXT.name}: {len(text):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
