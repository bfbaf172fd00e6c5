"""Language heads: which they are, what is removed, and what stored losses say."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.heads import Geometry, Head, HeadScores, HeadSet, save_scores
from headscope.results.language_texts import Answer, LayerCount
from headscope.runs import encode
from headscope.verify.languages.conditions import (
    LanguageHeads,
    LanguageRemoval,
    Text,
    TextCondition,
    default_count,
    language_heads,
    layer_heads,
    plan,
    plan_layers,
    spread_draws,
)
from headscope.verify.languages.evidence import (
    TextTrial,
    describe_languages,
    matrices,
    profile,
    text_trials,
)
from language_helpers import naive_perplexities

UNEVEN = Geometry((4, 0, 6, 2))


def heads(text: str, geometry: Geometry = UNEVEN) -> HeadSet:
    return HeadSet.parse(text, geometry) if text else HeadSet(geometry, ())


def texts(seed: int = 0, conditions: int = 5, sizes: tuple[int, ...] = (9, 6)) -> dict[str, Text]:
    random = np.random.default_rng(seed)
    found = {}
    for name, documents in zip(("en", "de"), sizes, strict=False):
        tokens = random.integers(3, 40, documents)
        nll = random.gamma(4.0, 0.5, (conditions, documents)) * tokens
        found[name] = Text(nll, tokens)
    return found


# Which heads


@pytest.mark.parametrize(
    ("total", "count"), [(12, 1), (20, 1), (96, 4), (255, 12), (256, 5), (1024, 20), (320, 6)]
)
def test_default_is_two_percent_or_at_most_five_of_a_small_model(total: int, count: int) -> None:
    assert default_count(Geometry((total,))) == count
    assert total >= 256 or count == 1 or count / total <= 0.05


def run_folder(folder: Path, specific: dict[str, str], geometry: Geometry = UNEVEN) -> Path:
    """What a run on several languages leaves: scores rise with the head, or fall for `de`."""
    scores = {}
    for at, language in enumerate(specific):
        order = np.arange(geometry.total, dtype=float)[:: -1 if at else 1]
        values = np.full(geometry.shape, np.nan)
        values[geometry.mask()] = order
        scores[language] = HeadScores(geometry, values, "lahis")
        heads(specific[language], geometry).save_pretrained(folder / "specific" / language)
    save_scores(folder, scores)
    return folder


def test_a_run_gives_each_languages_heads_and_as_many_by_importance(tmp_path: Path) -> None:
    run = run_folder(tmp_path, {"en": "2.5,0.1,2.0", "de": ""})
    en, de = language_heads(str(run), "25%", ["en", "de"], None, UNEVEN)
    assert (en.language, en.wanted, en.available) == ("en", 3, 3)
    assert str(en.chosen) == "2.5,0.1,2.0"
    assert en.full is not None and str(en.full) == "3.1,3.0,2.5"
    # An empty set is told, not filled; what is important is still known.
    assert (de.language, len(de.chosen), de.available) == ("de", 0, 0)
    assert de.full is not None and str(de.full) == "0.0,0.1,0.2"
    (fewer,) = language_heads(str(run), 2, ["en"], None, UNEVEN)
    assert str(fewer.chosen) == "2.5,0.1" and fewer.available == 3
    (more,) = language_heads(str(run), 5, ["en"], None, UNEVEN)
    assert len(more.chosen) == 3 and more.full is not None and len(more.full) == 3
    (own,) = language_heads(str(run), 1, ["en", "de"], "en", UNEVEN)
    assert own.language == "en" and str(own.chosen) == "2.5"


def test_heads_of_other_languages_or_models_are_refused(tmp_path: Path) -> None:
    run = str(run_folder(tmp_path, {"en": "2.5", "de": ""}))
    with pytest.raises(InputError, match=r"holds heads of de, en; the documents are in fr"):
        language_heads(run, None, ["fr"], None, UNEVEN)
    with pytest.raises(InputError, match="was made for a model of"):
        language_heads(run, None, ["en"], None, Geometry((4, 4)))
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="not finished"):
        language_heads(run, None, ["en"], None, UNEVEN)


# What is removed


def planned_for_two(draws: int = 4, layer_matched: bool = True) -> list[TextCondition]:
    sized = [
        LanguageHeads("en", 2, heads("0.0,2.1"), heads("0.0,0.1"), 2),
        LanguageHeads("de", 2, heads("0.2,2.3"), heads("0.0,2.3"), 2),
        LanguageHeads("tr", 2, heads(""), heads("2.0,2.2"), 0),
    ]
    config = LanguageRemoval(draws=draws, layer_matched=layer_matched)
    return plan(sized, ["en", "de", "tr"], config)


def test_every_set_has_random_sets_of_its_size_beside_it() -> None:
    planned = planned_for_two()
    assert [one.kind for one in planned].count("baseline") == 1 and planned[0].key == "as is"
    removed = [one for one in planned if one.kind == "removed"]
    assert [(one.of, one.role) for one in removed] == [
        ("en", "chosen"), ("en", "full"), ("de", "chosen"), ("de", "full"), ("tr", "full")
    ]  # fmt: skip
    every = ("en", "de", "tr")
    for one in removed:
        assert one.texts == every
        for kind in ("random", "random-layer-matched"):
            drawn = [
                two for two in planned if (two.of, two.role, two.kind) == (one.of, one.role, kind)
            ]
            # Of layer 0, which has four heads, two beside two others leave one set of two.
            only = kind == "random-layer-matched" and (one.of, one.role) == ("en", "full")
            assert [two.draw for two in drawn] == list(range(1 if only else 4))
            assert len({two.key for two in drawn}) == len(drawn)
            for two in drawn:
                assert len(two.heads) == len(one.heads) and not len(two.heads & one.heads)
                if kind == "random-layer-matched":
                    layers = sorted(head.layer for head in one.heads)
                    assert sorted(head.layer for head in two.heads) == layers
                free = (kind, one.role) == ("random", "chosen")
                assert two.texts == (every if free else (one.of,))


def test_free_draws_beside_specific_heads_are_nobodys_and_shared() -> None:
    drawn: dict[str, list[HeadSet]] = {"en": [], "de": []}
    for one in planned_for_two():
        if (one.kind, one.role) == ("random", "chosen"):
            drawn[one.of].append(one.heads)
            assert not len(one.heads & heads("0.0,2.1,0.2,2.3"))
    assert drawn["en"] == drawn["de"]


def test_layers_are_removed_whole_beside_as_many_heads() -> None:
    planned = plan_layers(UNEVEN, ["en", "de"], 3, 7)
    removed = {one.of: str(one.heads) for one in planned if one.kind == "removed"}
    assert removed == {
        "0": "0.0,0.1,0.2,0.3", "2": "2.0,2.1,2.2,2.3,2.4,2.5", "3": "3.0,3.1"
    }  # fmt: skip
    assert len(layer_heads(UNEVEN, 1)) == 0
    drawn = [(one.k, len(one.heads)) for one in planned if one.kind == "random"]
    assert drawn == [(2, 2)] * 3 + [(4, 4)] * 3 + [(6, 6)] * 3


@given(st.integers(1, 4), st.integers(1, 30), st.integers(0, 5))
def test_spread_draws_are_nested_and_differ_while_they_can(
    size: int, draws: int, seed: int
) -> None:
    geometry = Geometry((3, 2))
    found = spread_draws(geometry, size, draws, seed)
    assert found == spread_draws(geometry, size, draws + 5, seed)[:draws]
    layers = {frozenset(layer_heads(geometry, layer)) for layer in range(2)}
    every = {frozenset(one) for one in itertools.combinations(geometry.heads(), size)}
    assert len(set(found)) == len(found) == min(draws, len(every - layers))
    assert set(map(frozenset, found)) <= every - layers


def test_a_single_layer_leaves_no_choice() -> None:
    with pytest.raises(InputError, match="no choice for random heads"):
        plan_layers(Geometry((4,)), ["en"], 2)


@given(st.sets(st.sampled_from(list(UNEVEN.heads()))))
def test_shares_of_layers_add_up(chosen: set[Head]) -> None:
    layers = profile(HeadSet(UNEVEN, tuple(sorted(chosen))))
    rows = layers.layers
    assert layers.important == len(chosen) == sum(row.important for row in rows)
    assert sum(row.share for row in rows) == pytest.approx(1.0 if chosen else 0.0)
    assert sum(row.even for row in rows) == pytest.approx(1.0)
    assert rows[1] == LayerCount(1, 0, 0, 0.0, 0.0)


# What losses say


def read(made: dict[str, Text], seed: int = 0) -> dict[str, TextTrial]:
    """Texts under conditions of which nothing else is asked."""
    rows = len(next(iter(made.values())).nll)
    nothing = TextCondition("", "chosen", "baseline", 0, None, heads(""), 0, tuple(made))
    return text_trials([nothing] * rows, made, seed)


def test_perplexities_are_those_of_plain_loops() -> None:
    made = texts()
    for name, trial in read(made).items():
        for at, nll in enumerate(made[name].nll.tolist()):
            told = trial.levels(at)
            weighted, published = naive_perplexities(nll, made[name].tokens.tolist())
            assert told["perplexity"].value == pytest.approx(weighted, rel=1e-12)
            assert told["published_perplexity"].value == pytest.approx(published, rel=1e-12)
            for one in told.values():
                assert one.low < one.value < one.high


def test_the_bootstrap_is_that_of_drawn_documents() -> None:
    made = texts(3)
    trial = read(made, seed=5)["en"]
    random = np.random.default_rng([5, 9])
    for at in range(40):
        times = random.multinomial(9, np.full(9, 1 / 9))
        taken = np.repeat(np.arange(9), times)
        tokens = made["en"].tokens[taken]
        nll = made["en"].nll[:, taken]
        np.testing.assert_allclose(trial.nll.estimates[at], nll.sum(axis=1) / tokens.sum())
        each = np.exp(nll / tokens).mean(axis=1)
        np.testing.assert_allclose(trial.published.estimates[at], each)


def test_translations_of_each_other_are_drawn_alike() -> None:
    one = texts(sizes=(8,))["en"]
    trials = read({"en": one, "de": Text(one.nll * 2, one.tokens), "tr": one})
    drawn = {name: trial.nll.estimates for name, trial in trials.items()}
    np.testing.assert_allclose(drawn["de"], 2 * drawn["en"])
    np.testing.assert_array_equal(drawn["tr"], drawn["en"])


def cross() -> tuple[list[TextCondition], dict[str, Text]]:
    """Heads of `en` cost en 0.4 and de 0.1; those of `de` de 0.2 and en 0.3; random ones 0.05,
    but one draw costs en 0.5 and de nothing. Every document is alike."""
    both = ("en", "de")
    rises = {"en": [0.0, 0.4, 0.05, 0.5, 0.3, 0.05, 0.5], "de": [0.0, 0.1, 0.05, 0, 0.2, 0.05, 0]}
    planned = [TextCondition("", "chosen", "baseline", 0, None, heads(""), 0, both)]
    for name, own in (("en", "0.0"), ("de", "0.2")):
        planned.append(TextCondition(name, "chosen", "removed", 1, None, heads(own), 0, both))
        planned += [
            TextCondition(name, "chosen", "random", 1, draw, heads(other), 0, both)
            for draw, other in enumerate(("2.0", "2.1"))
        ]
    tokens = np.array([4, 6, 10, 3])
    made = {
        name: Text(np.array([(1.0 + rise) * tokens for rise in values]), tokens)
        for name, values in rises.items()
    }
    return planned, made


def test_the_matrix_says_whose_text_rises_most() -> None:
    planned, made = cross()
    (told,) = matrices(planned, text_trials(planned, made))
    assert (told.role, told.k, told.sizes) == ("chosen", 1, (1, 1))
    assert told.heads_of == told.text_of == ("en", "de")
    values = [[cell.value for cell in row] for row in told.change]
    np.testing.assert_allclose(values, [[0.4, 0.1], [0.3, 0.2]])
    en, de = told.own["en"], told.own["de"]
    assert en.largest_other.language == "de" and de.largest_other.language == "en"
    margin = en.own_minus_largest_other
    # Every document rises by the same, so that they tell nothing of others.
    assert margin.value == pytest.approx(0.3) and not margin.bounded
    assert de.own_minus_largest_other.value == pytest.approx(-0.1)
    # Of the draws of random heads one sets en 0.5 apart from de, the other nothing.
    assert en.random == pytest.approx((0.0, 0.5))
    assert en.p_draws == pytest.approx(2 / 3) and de.p_draws == pytest.approx(2 / 3)
    random = [[np.nan if cell is None else cell.value for cell in row] for row in told.random]
    np.testing.assert_allclose(random, [[0.275, 0.025], [0.275, 0.025]])
    assert told.answer == Answer(
        languages=2,
        own_rises_most=1,
        own_rises_most_surely=1,
        above_random=2,
        above_random_surely=2,
    )


def test_the_largest_other_is_found_anew_in_every_draw() -> None:
    """Two others that rise alike on average: the larger of both is above either."""
    random = np.random.default_rng(1)
    tokens = np.full(20, 5)
    made = {}
    for name, rise in (("en", 0.1), ("de", 0.1), ("tr", 0.1)):
        noise = random.normal(0, 0.3, 20)
        made[name] = Text(
            np.stack([tokens * 1.0, tokens * (1 + rise + noise - noise.mean())]), tokens
        )
    every = tuple(made)
    planned = [
        TextCondition("", "chosen", "baseline", 0, None, heads(""), 0, every),
        TextCondition("en", "chosen", "removed", 1, None, heads("0.0"), 0, every),
    ]
    trials = text_trials(planned, made)
    (told,) = matrices(planned, trials)
    margin = told.own["en"].own_minus_largest_other
    assert margin.value == pytest.approx(0, abs=1e-12)
    drawn = {name: trial.nll.estimates for name, trial in trials.items()}
    estimates = {name: each[:, 1] - each[:, 0] for name, each in drawn.items()}
    naive = [
        own - max(first, second)
        for own, first, second in zip(*(estimates[name] for name in every), strict=True)
    ]
    assert margin.low == pytest.approx(np.quantile(naive, 0.025))
    assert margin.high == pytest.approx(np.quantile(naive, 0.975))
    assert np.mean(naive) < 0
    assert told.random == ((None, None, None),)
    assert told.answer is not None and told.answer.above_random is None


def test_heads_stand_beside_random_ones() -> None:
    planned, made = cross()
    # A set that is drawn again proves nothing more.
    again = [replace(planned[5], draw=2), replace(planned[6], draw=3)]
    made = {
        name: Text(np.concatenate([text.nll, text.nll[5:]]), text.tokens)
        for name, text in made.items()
    }
    trials = text_trials([*planned, *again], made)
    (row,) = map(encode, describe_languages([*planned, *again], trials)["de"].removed)
    assert row["of"] == "de" and row["change"]["value"] == pytest.approx(0.2)
    assert row["random"] == pytest.approx({"mean": 0.025, "low": 0.0, "high": 0.05})
    assert row["against_random"]["value"] == pytest.approx(0.175)
    assert row["distinct_draws"] == 2 and row["p_draws"] == pytest.approx(1 / 3)
    # Four documents: as large a difference by chance where none or all are swapped.
    assert 0.02 < row["p_documents"] < 0.2
    own = encode(matrices([*planned, *again], trials)[0].own["de"])
    assert own["p_draws"] == pytest.approx(2 / 3) and len(own["random"]) == 4


def test_without_heads_there_is_nothing_to_plan(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no set of heads"):
        plan([], ["en"], LanguageRemoval())
    empty = tmp_path / "none.csv"
    empty.write_text("layer,head\n")
    with pytest.raises(InputError):
        language_heads(str(empty), None, ["en"], None, UNEVEN)
