"""The pictures of the documents are what the console draws now: six pages at a fixed time, from fixed data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from tests.support.browser import chromium
from tests.support.screenshots import IMAGES, ROOT

SAME, OTHER = 0.002, 0.03  # of the pixels may differ; more where another Chromium draws, whose letters are not the same
SEEN = 24  # of 255, in one colour: less is how an edge is smoothed
ANEW = "look at the page; if it is meant so: python -m tests.support.screenshots, and look at the difference"


def differing(one: Path, other: Path) -> float:
    """The share of the pixels that differ; 1 where the sizes do."""
    with Image.open(one) as first, Image.open(other) as second:
        if first.size != second.size:
            return 1.0
        apart = ImageChops.difference(first.convert("RGB"), second.convert("RGB"))
        strongest = ImageChops.lighter(ImageChops.lighter(*apart.split()[:2]), apart.split()[2])
        counts = strongest.histogram()
        return sum(counts[SEEN:]) / sum(counts)


@pytest.mark.process
@pytest.mark.timeout(300)
def test_the_pictures_of_the_documents_are_what_the_console_draws(tmp_path: Path) -> None:
    with chromium():
        """Skips, or fails, where there is none."""
    made = subprocess.run(
        [sys.executable, "-m", "tests.support.screenshots", "--into", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-2000:]
    names = sorted(path.name for path in IMAGES.glob("*.png"))
    assert names == sorted(path.name for path in tmp_path.glob("*.png"))
    assert len(names) >= 6
    drawn_by = [(place / "chromium").read_text() for place in (IMAGES, tmp_path)]
    most = SAME if drawn_by[0] == drawn_by[1] else OTHER
    apart = {name: differing(IMAGES / name, tmp_path / name) for name in names}
    assert {name: share for name, share in apart.items() if share > most} == {}, ANEW


def test_a_difference_is_seen_and_a_smoothed_edge_is_none(tmp_path: Path) -> None:
    plain = Image.new("RGB", (100, 100), "white")
    places = [tmp_path / f"{name}.png" for name in ("plain", "edge", "moved", "larger")]
    edge, moved = plain.copy(), plain.copy()
    edge.paste((240, 240, 240), (0, 0, 100, 50))
    moved.paste((0, 0, 0), (0, 0, 10, 10))
    for image, place in zip((plain, edge, moved, Image.new("RGB", (101, 100), "white")), places, strict=True):
        image.save(place)
    assert [differing(places[0], place) for place in places] == [0, 0, 0.01, 1]
