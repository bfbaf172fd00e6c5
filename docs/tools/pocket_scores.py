"""The scores of its heads that come with the bundled model, and the sentences they are seen on.

python docs/tools/pocket_scores.py
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import headscope
from headscope.heads import read_scores, save_scores
from headscope.pocket.weights import scores_path
from headscope.results.translation_score import SENTENCES


def main() -> None:
    place = scores_path()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        headscope.find.translation_score("pocket", pair="en-de", out=run)
        (scores,) = read_scores(run).values()
        about = {name: scores.provenance[name] for name in ("model", "weights")}
        shutil.rmtree(place, ignore_errors=True)
        # Without counts of single sentences, which make the file a hundred times as long.
        save_scores(place, replace(scores, statistics={}, provenance=about))
        shutil.copytree(run / SENTENCES, place / SENTENCES)


if __name__ == "__main__":
    main()
