"""The bundled model is what it is said to be: its size, its checkpoints, and that it translates."""

from __future__ import annotations

from statistics import fmean

from safetensors import safe_open

from headscope.heads import HeadSet
from headscope.lm import LanguageModel
from headscope.measure.metrics import chrf
from headscope.pocket import weights
from headscope.pocket.sample import sample_pairs
from headscope.pocket.world.languages import DIRECTIONS
from headscope.verify.translation import translate


def test_final_weights_and_six_checkpoints_in_half_precision() -> None:
    found = weights.checkpoints()
    assert list(found)[-1] == "final"
    assert len(found) >= 7
    files = [folder / "model.safetensors" for folder in found.values()]
    assert sum(file.stat().st_size for file in files) <= 45_000_000
    for file in files:
        with safe_open(file, "pt") as stored:
            kinds = {stored.get_slice(name).get_dtype() for name in stored.keys()}  # noqa: SIM118 - not a mapping
        assert kinds == {"BF16"}
    assert len({file.read_bytes() for file in files}) == len(files)


def test_it_translates_sentences_it_has_not_seen(pocket: LanguageModel) -> None:
    """Five test sentences of each direction; bench/pocket.py measures on many more."""
    files = [sample_pairs(direction, "test", 5, seed=11) for direction in DIRECTIONS]
    made = translate(pocket, files, HeadSet(pocket.geometry, ()))
    scores = [
        chrf(outputs, [pair.target for pair in file.pairs]).value
        for file, outputs in zip(files, made, strict=True)
    ]
    assert fmean(scores) >= 85
