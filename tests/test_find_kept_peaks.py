"""What a finished run keeps of its peaks, and what can be done with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import find_helpers
from headscope.errors import InputError
from headscope.find import capture
from headscope.find.alignment import count_hits, decoded
from headscope.find.capture import Captured, stored_peaks
from headscope.find.scoring import NOWHERE
from headscope.find.translation import translation_score
from headscope.find.translation_config import TranslationScore
from headscope.lm import LanguageModel
from headscope.runs import Run, open_run

CONFIG = TranslationScore(batch_tokens=120, bootstrap_draws=20, chance_draws=2)
NAME = "en-de"


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return find_helpers.wrapped("qwen3")


def scored(lm: LanguageModel, out: Path, **changes: Any) -> Any:
    """The scores of six pairs and their run, not finished yet."""
    config = dataclasses.replace(CONFIG, **changes)
    run = open_run(out, "find", config, {})
    return translation_score(lm, find_helpers.pairs(NAME, 6), config, run), run


def batches(run: Run) -> list[Path]:
    return sorted((run.path / "parts").rglob("*.safetensors"))


@pytest.mark.parametrize("decode", ["reference", "greedy"])
def test_a_finished_run_keeps_the_peaks_of_few_heads_on_few_sentences(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decode: Any
) -> None:
    for name, stand_in in find_helpers.ALIGNER.items():
        monkeypatch.setattr(name, stand_in)
    monkeypatch.setattr(capture, "KEPT_HEADS", 2)
    monkeypatch.setattr(capture, "KEPT_SENTENCES", 4)
    options = {"decode": decode, "max_new_tokens": 8}
    scores, run = scored(lm, tmp_path / "few", **options)
    assert batches(run)  # a run that is not finished goes on from these
    everything = stored_peaks(run.path, NAME)
    run.finish({})
    assert not batches(run)

    _, whole = scored(lm, tmp_path / "all", **options, keep_peaks=True)
    whole.finish({})
    kept = load_file(tmp_path / "few" / "peaks" / f"{NAME}.safetensors")
    heads = [tuple(head) for head in kept["heads"].tolist()]
    assert heads[:2] == [(head.layer, head.head) for head in scores.top(2)]
    assert len(set(heads)) == 4 and set(heads) <= {(h.layer, h.head) for h in lm.geometry.heads()}
    assert kept["peaks"].dtype == np.int16 and kept["index"].tolist() == [0, 1, 2, 3]
    ends = np.cumsum(kept["rows"])
    assert len(kept["peaks"]) == ends[-1]
    for own, one, given in zip(
        np.split(kept["peaks"], ends[:-1]), stored_peaks(whole.path, NAME), everything, strict=False
    ):
        np.testing.assert_array_equal(one.peaks, given.peaks)
        for column, (layer, head) in enumerate(heads):
            np.testing.assert_array_equal(own[:, column], one.peaks[:, layer, head])
    # Outputs are kept of every sentence.
    outputs = np.split(kept["output_ids"], np.cumsum(kept["lengths"])[:-1])
    assert [tuple(ids) for ids in outputs] == [one.output_ids for one in everything]


def test_all_peaks_give_the_hits_again_and_few_say_that_they_cannot(
    lm: LanguageModel, tmp_path: Path
) -> None:
    scores, run = scored(lm, tmp_path / "all", keep_peaks=True)
    run.finish({})
    found = stored_peaks(run.path, NAME)
    assert found[0].peaks.dtype == np.int32
    pairs = find_helpers.pairs(NAME, 6)
    sentences = decoded(lm, pairs, CONFIG, NOWHERE)[0]
    for number, (sentence, one) in enumerate(zip(sentences, found, strict=True)):
        counts = count_hits(sentence, one.peaks, [], "macro", False)
        np.testing.assert_array_equal(counts.hits, scores.statistics["hits"][number])
    _, few = scored(lm, tmp_path / "few")
    few.finish({})
    with pytest.raises(InputError, match=r"few heads alone.*--keep-peaks"):
        stored_peaks(few.path, NAME)
    with pytest.raises(InputError, match="holds no peaks of fr-de"):
        stored_peaks(run.path, "fr-de")
    capture.check_peaks(run.path, True)
    capture.check_peaks(few.path, False)
    with pytest.raises(InputError, match="few heads alone"):
        capture.check_peaks(few.path, True)


def test_a_kill_at_the_end_loses_nothing(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, run = scored(lm, tmp_path)
    before = batches(run)
    run.close()  # the peaks of few heads are written, the completion marker is not

    def none(*_: object) -> None:
        raise AssertionError("a sentence was read again")

    with monkeypatch.context() as patch:
        patch.setattr(capture, "_read_batch", none)
        # Whether all are kept is not part of what is computed, so it can still be said.
        again, run = scored(lm, tmp_path, keep_peaks=True)
    for name, values in whole.statistics.items():
        np.testing.assert_array_equal(values, again.statistics[name])
    run.finish({})
    assert batches(run) == before
    capture.check_peaks(run.path, True)


def test_what_was_not_kept_is_computed_again_and_said(
    lm: LanguageModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, run = scored(lm, tmp_path)
    run.finish({})
    assert not caplog.records
    (tmp_path / "DONE.json").unlink()
    again, _ = scored(lm, tmp_path)
    assert "--keep-peaks" in caplog.text
    np.testing.assert_array_equal(first.values, again.values)


@pytest.mark.parametrize(("largest", "bits"), [(2**15 - 1, 16), (2**15, 32)])
def test_peaks_take_16_bits_where_the_text_allows(largest: int, bits: int) -> None:
    peaks = np.array([[[-1, 0], [largest, 7]]], dtype=np.int32)
    packed = capture._pack([3], [Captured(peaks, (5, 6))])
    assert packed["peaks"].dtype.itemsize * 8 == bits
    ((index, found),) = capture._unpack(packed).items()
    assert index == 3 and found.output_ids == (5, 6) and found.peaks.dtype == np.int32
    np.testing.assert_array_equal(found.peaks, peaks)
    # As older runs hold them.
    older = capture._unpack(packed | {"peaks": peaks})[3]
    np.testing.assert_array_equal(older.peaks, peaks)
