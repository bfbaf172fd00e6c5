"""Commands that replace heads: which examples the replacements are made from, what follows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.data.pairs import SentencePair
from headscope.data.split import draw_reference, sentence_digest, text_digests
from headscope.errors import InputError
from headscope.heads import HeadSet
from headscope.lm import GenerateConfig, LanguageModel, replacement_of
from headscope.lm.losses import token_losses
from headscope.lm.prompting import encode_answers
from headscope.pocket.sample import sample_documents, sample_pairs
from headscope.runs import encode
from headscope.studies.documents import DocumentsChoice
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.use.rate import UseRate, use_rate
from headscope.studies.verify import one_by_one
from headscope.studies.verify.one_by_one import OneByOne
from headscope.studies.verify.summaries import VerifySummaries
from headscope.studies.verify.summaries import comparison as summaries
from headscope.use.rating import Rating
from use_corpus_helpers import rated_records, write_jsonl
from verify_helpers import rows_of

pytestmark = pytest.mark.usefixtures("loaded")

HEADS = "2.3,3.1,4.0,5.3"
PROMPT = "Translate this sentence from English to German\nSentence: {}\nAnswer:"
REPEAT = "Repeat this sentence\nSentence: {}\nAnswer:"


KINDS = pytest.mark.parametrize("ablate", ["mean", "resample"])


def pair(name: str) -> SentencePair:
    return SentencePair(name, f"{name} source", f"{name} target")


def test_reference_pairs_are_a_quarter_and_the_same_content_in_every_direction() -> None:
    there = [pair(str(number)) for number in range(40)]
    back = [SentencePair(one.id, one.target, one.source) for one in reversed(there)]
    drawn = draw_reference({"en-de": there, "de-en": back}, 50, 0)
    assert [len(one) for one in drawn.values()] == [10, 10]
    assert {one.id for one in drawn["en-de"]} == {one.id for one in drawn["de-en"]}
    fewer = draw_reference({"en-de": there, "de-en": back}, 4, 0)
    assert fewer["en-de"] == drawn["en-de"][:4]
    assert draw_reference({"en-de": there}, 50, 1) != draw_reference({"en-de": there}, 50, 0)
    with pytest.raises(InputError, match=r"few\.tsv .*\b3\b"):
        draw_reference({"few.tsv": there[:3]}, 50, 0)


def test_shots_reference_and_test_sentences_share_nothing(tmp_path: Path) -> None:
    files = {}
    for name in ("en-de", "de-en"):
        data = sample_pairs(name, "test", 40, 1)
        files[name] = tmp_path / f"{name}.tsv"
        rows = "".join(f"{one.source}\t{one.target}\n" for one in data.pairs)
        files[name].write_text(f"source\ttarget\n{rows}", "utf-8")
    choice = PairsChoice(
        tuple(files), tuple(f"{n}={f}" for n, f in files.items()), limit=12, shots=2
    )
    read = read_directions(choice, "any", "test", reference=50)
    plain = read_directions(choice, "any", "test")

    def known(part: str, one: Any) -> set[str]:
        sides = text_digests(getattr(one, part))
        return {*sides["source"], *sides["target"]}

    parts = {
        part: set().union(*(known(part, one) for one in read.values()))
        for part in ("pairs", "shots", "reference")
    }
    assert all(parts.values())
    assert not parts["pairs"] & parts["shots"]
    assert not parts["pairs"] & parts["reference"] and not parts["shots"] & parts["reference"]
    for name, one in read.items():
        assert len(one.pairs) == 12 and 8 <= len(one.reference) <= 10
        # The same shots, and the same examples whatever the limit.
        assert one.shots == plain[name].shots and not plain[name].reference
    more = read_directions(
        PairsChoice(choice.pair, choice.data, shots=2), "a", "test", reference=50
    )
    assert all(more[name].reference == one.reference for name, one in read.items())


def test_reference_sentences_that_found_the_heads_are_refused(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    data = sample_pairs("en-de", "test", 16, 3)
    (tmp_path / "d.tsv").write_text(
        "source\ttarget\n" + "".join(f"{one.source}\t{one.target}\n" for one in data.pairs), "utf-8"
    )
    choice = PairsChoice(("en-de",), (str(tmp_path / "d.tsv"),))
    apart = read_directions(choice, "pocket", "test", reference=50)["en-de"].reference
    run = tmp_path / "found"
    HeadSet.parse(HEADS, _geometry()).save_pretrained(run)
    found = {"en-de": {"source": [sentence_digest(apart[0].source)], "target": []}}
    (run / "found_on.json").write_text(json.dumps(found))
    (run / "run.json").write_text("{}")
    asked = ("--pair", "en-de", "--draws", "1", "--out", tmp_path / "run", "--ablate", "mean")
    arguments = ("verify", "removal", "--heads", run, "--data", tmp_path / "d.tsv", *asked)
    done = command(*arguments)
    assert done.code == 2 and "1 of the reference texts" in done.err
    assert not (tmp_path / "run").exists()
    unknown = command(*arguments[:-1], "median")
    assert unknown.code == 2 and "median" in unknown.err


def _geometry() -> Any:
    return ModelChoice().load().geometry


@KINDS
def test_one_by_one_puts_outputs_of_the_train_split_in_place(
    pocket: LanguageModel, tmp_path: Path, ablate: Any
) -> None:
    pairs = PairsChoice(("en-de",), limit=2)
    config = OneByOne(heads=HEADS, pairs=pairs, max_new_tokens=6, ablate=(ablate,))
    result = encode(one_by_one.comparison.run(config, tmp_path / "run"))["details"]
    apart = sample_pairs("en-de", "train", 50, 0).pairs
    tested = sample_pairs("en-de", "test", 2, 0).pairs
    known = {one.source for one in tested}
    assert result["ablate"] == ablate and result["reference_text"]["texts"] == len(apart)
    rows = encode_answers(
        pocket, [PROMPT.format(one.source) for one in apart], [one.target for one in apart]
    )
    assert not known & {one.source for one in apart}
    ids, starts = [one.ids for one in rows], [one.start for one in rows]
    replacement = replacement_of(ablate, pocket, ids, starts)
    steps = rows_of(tmp_path / "run" / "steps.jsonl")
    assert len(steps) == 2 * 5
    for row in steps:
        source = next(one.source for one in tested if row["id"].endswith(f" {one.id}"))
        heads = HeadSet(pocket.geometry, HeadSet.parse(HEADS, pocket.geometry).heads[: row["step"]])
        with pocket.gated(heads.removed(), replacement):
            made = pocket.generate([PROMPT.format(source)], GenerateConfig(6))[0]
        assert row["text"] == made.text
    zero = OneByOne(heads=HEADS, pairs=pairs, text=False)
    encode(one_by_one.comparison.run(zero, tmp_path / "zero"))
    others = rows_of(tmp_path / "zero" / "steps.jsonl")
    for one, other in zip(steps, others, strict=True):
        assert np.allclose(one["similarity"], other["similarity"], atol=1e-5) == (one["step"] == 0)


@KINDS
def test_summaries_put_outputs_in_other_sentences_in_place(
    pocket: LanguageModel, tmp_path: Path, ablate: Any
) -> None:
    texts = DocumentsChoice(languages=("de",), limit=3)
    config = VerifySummaries(heads=HEADS, texts=texts, draws=1, max_new_tokens=6, ablate=(ablate,))
    result = summaries.run(config, tmp_path / "run")
    apart = [one.source for one in sample_pairs("de-en", "train", 50, 0).pairs]
    reference = result.details.reference_text
    assert reference is not None and reference.texts == 50
    rows = encode_answers(pocket, [REPEAT.format(text) for text in apart], apart)
    ids, starts = [one.ids for one in rows], [one.start for one in rows]
    replacement = replacement_of(ablate, pocket, ids, starts)
    prompts = [row["prompt"] for row in rows_of(tmp_path / "run" / "prompts.jsonl")]
    outputs = rows_of(tmp_path / "run" / "outputs.jsonl")
    with pocket.gated(HeadSet.parse(HEADS, pocket.geometry).removed(), replacement):
        made = [one.text for one in pocket.generate(prompts, GenerateConfig(6))]
    (own,) = result.evidence.selected
    assert [row["output"] for row in outputs if row["condition"] == own.id] == made
    zero = summaries.run(
        VerifySummaries(heads=HEADS, texts=texts, draws=1, max_new_tokens=6), tmp_path / "zero"
    )
    assert zero.signature != result.signature and zero.details.reference_text is None


@KINDS
def test_rating_puts_outputs_in_documents_in_place(
    pocket: LanguageModel, tmp_path: Path, ablate: Any
) -> None:
    corpus = [
        {"id": one.id, "text": one.text} for one in sample_documents("de", "test", 4, 0).documents
    ]
    data = write_jsonl(tmp_path / "c.jsonl", corpus)
    (tmp_path / "r.txt").write_text(
        "\n".join(one.text for one in sample_documents("en", "train", 5, 0).documents), "utf-8"
    )
    config = UseRate(
        (str(data),), HEADS, rating=Rating(batch_tokens=256), ablate=ablate,
        reference=str(tmp_path / "r.txt"),
    )  # fmt: skip
    result = use_rate(config, tmp_path / "run")
    assert result.reference_text is not None and result.reference_text.texts == 5
    lines = (tmp_path / "r.txt").read_text("utf-8").splitlines()
    replacement = replacement_of(ablate, pocket, [pocket.encode(line) for line in lines])
    removed = HeadSet.parse(HEADS, pocket.geometry).removed()
    for row in rated_records(tmp_path / "run"):
        with pocket.gated(removed, replacement):
            expected = token_losses(pocket, [pocket.encode(row["text"])])[0].mean()
        np.testing.assert_allclose(row["nll_removed"], expected, rtol=1e-5)
        with pocket.gated(removed):
            zero = token_losses(pocket, [pocket.encode(row["text"])])[0].mean()
        assert abs(zero - expected) > 1e-4  # far beyond the tolerance above
    other = sample_documents("ru", "train", 5, 0).documents
    (tmp_path / "r.txt").write_text("\n".join(one.text for one in other), "utf-8")
    with pytest.raises(InputError, match="reference text"):
        use_rate(config, tmp_path / "run")


def test_where_nothing_can_be_set_aside_texts_are_asked_for(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "c.jsonl", [{"text": "a b c"}])
    config = UseRate((str(data),), HEADS, model=ModelChoice("other/model"), ablate="mean")
    with pytest.raises(InputError, match="add --reference FILE"):
        use_rate(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
