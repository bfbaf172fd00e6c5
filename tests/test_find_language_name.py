"""Heads of the language's name: a naive twin head by head, what is read, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lm_helpers as helpers
import process_helpers
from headscope.data.pairs import PairFile, SentencePair
from headscope.data.prompts import Template
from headscope.errors import InputError
from headscope.find.language_name_scores import (
    LanguageName,
    _examples,
    language_name,
    named_prompts,
)
from headscope.lm import LanguageModel
from headscope.lm.patching import patched_one_by_one
from headscope.measure.intervals import bootstrap_interval
from headscope.studies.find.language_name import FindLanguageName, find_language_name
from headscope.studies.pairs import PairsChoice

SHORT = Template("To {target_language}: {source} ({target_language})\n")
CONFIG = LanguageName(SHORT, False, bootstrap_draws=100, batch_tokens=400)
WORDS = ("sun", "a German cat", "way", "tea", "old fire", "her")


def directions(*codes: str, source: str = "en") -> dict[str, PairFile]:
    """Other sentences for each language."""
    return {
        f"{source}-{code}": PairFile(
            tuple(SentencePair(str(at), f"{word} {code}", "x") for at, word in enumerate(WORDS)),
            source, code, "memory", "",
        )
        for code in codes
    }  # fmt: skip


@contextmanager
def put_in(site: Any, head: int, value: torch.Tensor) -> Iterator[None]:
    """One head's output at the last token, overwritten by a hook of our own."""

    def edit(_: Any, args: Any) -> Any:
        x = args[0].clone()
        x[0, -1, head * site.head_width : (head + 1) * site.head_width] = value
        return (x,)

    handle = site.projection.register_forward_pre_hook(edit)
    yield
    handle.remove()


def outputs(lm: LanguageModel, prompt: str) -> dict[tuple[int, int], torch.Tensor]:
    """What every head writes at the last token."""
    seen: dict[int, torch.Tensor] = {}
    handles = [
        site.projection.register_forward_pre_hook(
            lambda _, args, at=site.layer: seen.update({at: args[0][0, -1].clone()})
        )
        for site in lm.sites
    ]
    logits_of(lm, prompt)
    for handle in handles:
        handle.remove()
    return {
        (site.layer, head): seen[site.layer][head * site.head_width : (head + 1) * site.head_width]
        for site in lm.sites
        for head in range(site.heads)
    }


def logits_of(lm: LanguageModel, prompt: str) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = lm.model(torch.tensor([lm.encode(prompt)])).logits[0, -1]
    return logits


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3_next"])
def test_every_number_equals_single_heads_edited_by_hand(name: str) -> None:
    """Grouped keys; soft caps and windows; a model whose rows share no beginning."""
    lm = helpers.wrapped(name, 1)
    files = directions("de", "es", "fr")
    scores = language_name(lm, files, CONFIG)
    prompts, examples = _examples(lm, files, CONFIG)
    moved, control, whole, attention = [], [], [], []
    for example in examples:
        clean, other, unrelated = (
            lm.decode(prompts[at].ids) for at in (example.clean, example.other, example.unrelated)
        )
        sentence, language = clean[4 + len(clean[3:].split(":")[0]) :].rsplit(" (", 1)
        assert sentence in other and language not in other.replace(sentence, "")
        assert clean[: -len(language)].split(":")[0] == unrelated.split(":")[0] != other
        assert unrelated != clean
        logits, changed = logits_of(lm, clean), logits_of(lm, other)
        a, b = int(logits.argmax()), int(changed.argmax())
        if a == b:
            continue
        whole.append(float((changed[b] - changed[a]) - (logits[b] - logits[a])))
        moved.append(_effects(lm, clean, outputs(lm, other), a, b, logits))
        control.append(_effects(lm, clean, outputs(lm, unrelated), a, b, logits))
        # A token is a character.
        word = language.removesuffix(")\n")
        places = [*range(3, 3 + len(word)), *range(len(clean) - len(language), len(clean) - 2)]
        assert "".join(clean[place] for place in places) == word * 2
        weights = lm.attention(clean).weights[:, :, -1]
        attention.append(weights[..., places].sum(-1))
    assert len(whole) == scores.config["examples"] > 3
    got = scores.statistics
    np.testing.assert_allclose(got["whole"], whole, atol=1e-4)
    np.testing.assert_allclose(got["moved"], moved, atol=1e-4)
    np.testing.assert_allclose(got["control"], control, atol=1e-4)
    np.testing.assert_allclose(np.nan_to_num(got["attention"]), np.nan_to_num(attention), atol=1e-5)
    assert np.nanmax(np.abs(moved)) > 1e-2
    summed = np.sum(moved, axis=0) / np.sum(whole)
    np.testing.assert_allclose(scores.values, summed, atol=1e-4)
    summed = np.sum(control, axis=0) / np.sum(whole)
    np.testing.assert_allclose(scores.extra["chance"], summed, atol=1e-4)


def test_a_sentence_asked_for_in_several_languages_is_drawn_once() -> None:
    lm = helpers.wrapped("llama", 1)
    files = {
        name: replace(file, pairs=tuple(SentencePair(pair.id, pair.source[:-3], "x")
                                        for pair in file.pairs))
        for name, file in directions("de", "es", "fr").items()
    }  # fmt: skip
    scores = language_name(lm, files, CONFIG)
    seen = scores.statistics
    sentences = sorted({*seen["sentence"].tolist()})
    assert scores.config["sentences"] == len(sentences) <= len(WORDS) < scores.config["examples"]
    moved, whole = (
        np.array([seen[name][seen["sentence"] == at].sum(axis=0) for at in sentences])
        for name in ("moved", "whole")
    )
    together = bootstrap_interval(np.nan_to_num(moved), whole, "micro", *CONFIG.bootstrap)
    alone = bootstrap_interval(
        np.nan_to_num(seen["moved"]), seen["whole"], "micro", *CONFIG.bootstrap
    )
    assert scores.low is not None
    np.testing.assert_allclose(scores.low.ravel(), together.low.ravel())
    assert np.abs(scores.low.ravel() - alone.low.ravel()).max() > 1e-3


def _effects(
    lm: LanguageModel, prompt: str, donor: Any, a: int, b: int, clean: torch.Tensor
) -> np.ndarray[Any, Any]:
    effects = np.full(lm.geometry.shape, np.nan)
    for site in lm.sites:
        for head in range(site.heads):
            with put_in(site, head, donor[site.layer, head]):
                now = logits_of(lm, prompt)
            effects[site.layer, head] = float((now[b] - now[a]) - (clean[b] - clean[a]))
    return effects


@pytest.mark.parametrize("name", helpers.VARIED)
def test_one_pass_for_all_heads_is_a_pass_for_each(name: str) -> None:
    lm = helpers.wrapped(name, 3)
    prompt, tokens = "the old house (German)", [9, 40, 60]
    donor = outputs(lm, "another text")
    width = max(site.head_width for site in lm.sites)
    values = torch.zeros(*lm.geometry.shape, width)
    for (layer, head), value in donor.items():
        values[layer, head, : len(value)] = value
    ids = lm.encode(prompt)
    for batch_tokens in (8192, 3 * len(ids)):
        plain, changed = patched_one_by_one(lm, ids, values, tokens, batch_tokens)
        expected = logits_of(lm, prompt).log_softmax(-1)[tokens]
        for site in lm.sites:
            for head in range(site.heads):
                with put_in(site, head, donor[site.layer, head]):
                    now = logits_of(lm, prompt).log_softmax(-1)[tokens]
                at = site.layer, head
                np.testing.assert_allclose(plain[at], expected, atol=1e-4)
                np.testing.assert_allclose(changed[at], now, atol=1e-4)


def test_a_name_in_the_sentence_is_not_the_language_asked_for() -> None:
    lm = helpers.wrapped("llama", 0)
    file = directions("de")["en-de"]
    for prompt, pair in zip(named_prompts(lm, file, SHORT, False), file.pairs, strict=True):
        text = lm.decode([prompt.ids[at] for at in prompt.name])
        assert text == "GermanGerman"
        assert len(prompt.ids) == len(lm.encode(f"To German: {pair.source} (German)\n"))


def test_what_its_output_tells_is_known_by_the_other_half() -> None:
    """Naive: each sentence's output beside the mean of each language over the other half."""
    lm = helpers.wrapped("llama", 5)
    files = directions("de", "es")
    scores = language_name(lm, files, CONFIG)
    known: dict[str, list[dict[tuple[int, int], torch.Tensor]]] = {}
    for code, word in (("de", "German"), ("es", "Spanish")):
        known[code] = [
            outputs(lm, f"To {word}: {pair.source} ({word})\n")
            for pair in files[f"en-{code}"].pairs
        ]
    for site in lm.sites:
        for head in range(site.heads):
            right = 0
            for code, made in known.items():
                for at, each in enumerate(made):
                    apart = {}
                    for other, theirs in known.items():
                        half = [o[site.layer, head] for o in theirs[1 - at % 2 :: 2]]
                        mean = torch.stack(half).mean(0)
                        apart[other] = float((mean - each[site.layer, head]).norm())
                    right += min(apart, key=apart.__getitem__) == code
            share = scores.extra["apart"][site.layer, head]
            assert share == pytest.approx(right / (2 * len(WORDS)))


def test_what_cannot_be_compared_is_refused() -> None:
    lm = helpers.wrapped("llama", 0)
    one = directions("de")
    with pytest.raises(InputError, match="only direction out of en"):
        language_name(lm, one, CONFIG)
    with pytest.raises(InputError, match="only direction out of en"):
        language_name(lm, one | directions("de", source="fr"), CONFIG)
    short = {
        name: replace(file, pairs=file.pairs[:1]) for name, file in directions("de", "es").items()
    }
    with pytest.raises(InputError, match="one sentence"):
        language_name(lm, short, CONFIG)
    unnamed = LanguageName(Template("Say {source}\n"), False)
    with pytest.raises(InputError, match="German"):
        language_name(lm, directions("de", "es"), unnamed)


def test_a_name_of_the_users_own_is_found() -> None:
    lm = helpers.wrapped("llama", 0)
    file = replace(directions("de")["en-de"], names=("English", "High German"))
    (first, *_) = named_prompts(lm, file, SHORT, False)
    assert (
        lm.decode([first.ids[at] for at in first.name]) == "HighGermanHighGerman"
    )  # white space is of no word


def test_a_name_within_another_name_is_not_the_language_asked_for() -> None:
    lm = helpers.wrapped("llama", 0)
    template = Template("From {source_language} to {target_language}: {source}\n")
    file = replace(directions("de")["en-de"], names=("Swiss German", "German"))
    for prompt, pair in zip(named_prompts(lm, file, template, False), file.pairs, strict=True):
        text = lm.decode(prompt.ids)
        places = range(prompt.name[0], prompt.name[-1] + 1)
        assert text[places[0] : places[-1] + 1] == "German" and len(places) == 6
        assert text[: places[0]] == "From Swiss German to " and pair.source in text


def test_languages_are_counted_not_directions() -> None:
    lm = helpers.wrapped("llama", 1)
    files = directions("de", "es") | directions("de", "es", source="fr")
    assert language_name(lm, files, CONFIG).config["languages"] == 2
    pairs = files["en-de"].pairs[:1] * 3
    alike = {name: replace(file, pairs=pairs) for name, file in directions("de", "es").items()}
    with pytest.raises(InputError, match="one sentence"):
        language_name(lm, alike, CONFIG)


def test_other_shots_are_another_run(tmp_path: Path) -> None:
    settings = {"pair": ("en-de", "en-tr"), "limit": 2, "shots": 1}
    signatures = set()
    for shot in ("the dog sees a cat", "a man kissed a queen"):
        for code in ("de", "tr"):
            rows = f"source\ttarget\n{shot}\t{shot} {code}\n"
            (tmp_path / f"{code}.tsv").write_text(rows, "utf-8")
        data = tuple(f"en-{code}={tmp_path / code}.tsv" for code in ("de", "tr"))
        choice = PairsChoice(**settings, shots_data=data)  # type: ignore[arg-type]
        config = FindLanguageName(pairs=choice, measure=LanguageName(bootstrap_draws=50))
        signatures.add(find_language_name(config, tmp_path / f"run{len(signatures)}").signature)
    assert len(signatures) == 2


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    measure = LanguageName(bootstrap_draws=50)
    config = FindLanguageName(pairs=PairsChoice(pair=("en-de", "en-tr"), limit=3), measure=measure)
    _, kept = process_helpers.resumed(find_language_name, config, tmp_path, 2, titles=("",))
    assert sum(name.endswith(".safetensors") for name in kept) == 2


def test_the_bundled_model_has_heads_that_look_at_the_name_and_carry_it(tmp_path: Path) -> None:
    choice = PairsChoice(pair=("en-de", "en-tr", "en-es"), limit=8)
    result = find_language_name(FindLanguageName(pairs=choice), tmp_path / "run")
    best = max(result.scored, key=lambda head: head.above_chance or 0)
    assert result.languages == 3 and result.examples == 24
    assert (best.above_chance or 0) > 0.15 and best.low is not None and best.low > 0.1
    assert (best.number("attention") or 0) > 0.9 and best.number("apart") == 1
    assert (tmp_path / "run" / "found_on.json").is_file()
