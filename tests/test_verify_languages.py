"""Language heads: which they are, what is removed, and what stored losses say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.evidence.controls import Draws, planned
from headscope.evidence.rows import SELECTED, Condition, Evidence
from headscope.heads import Geometry, Head, HeadScores, HeadSet, save_scores
from headscope.results.language_texts import LayerCount
from headscope.studies.verify.layers import VerifyLayers
from headscope.verify.language_texts.conditions import (
    FULL,
    LanguageHeads,
    Text,
    default_count,
    language_heads,
    layer_heads,
    layer_sets,
    plan_layers,
    read_on,
    sets_by_language,
    spread_draws,
)
from headscope.verify.language_texts.evidence import (
    matrix,
    own_texts,
    own_view,
    p_dealt,
    profile,
    text_evidence,
    together,
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
    assert en.chosen.keys == ("2.5", "0.1", "2.0")
    assert en.full is not None and en.full.keys == ("3.1", "3.0", "2.5")
    # An empty set is told, not filled; what is important is still known.
    assert (de.language, len(de.chosen), de.available) == ("de", 0, 0)
    assert de.full is not None and de.full.keys == ("0.0", "0.1", "0.2")
    (fewer,) = language_heads(str(run), 2, ["en"], None, UNEVEN)
    assert fewer.chosen.keys == ("2.5", "0.1") and fewer.available == 3
    (more,) = language_heads(str(run), 5, ["en"], None, UNEVEN)
    assert len(more.chosen) == 3 and more.full is not None and len(more.full) == 3
    (own,) = language_heads(str(run), 1, ["en", "de"], "en", UNEVEN)
    assert own.language == "en" and own.chosen.keys == ("2.5",)


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


def planned_for_two(*controls: str) -> list[Condition]:
    sized = [
        LanguageHeads("en", 2, heads("0.0,2.1"), heads("0.0,0.1"), 2),
        LanguageHeads("de", 2, heads("0.2,2.3"), heads("0.0,2.3"), 2),
        LanguageHeads("tr", 2, heads(""), heads("2.0,2.2"), 0),
    ]
    how = Draws(4, controls or ("random", "same layers"))
    return list(planned(sets_by_language(sized), how))


def test_every_set_has_random_sets_of_its_size_beside_it() -> None:
    conditions, every = planned_for_two(), ("en", "de", "tr")
    assert conditions[0].key == "as is" and len({each.id for each in conditions}) == len(conditions)
    selected = [each for each in conditions if each.kind == SELECTED]
    assert [each.of for each in selected] == ["en", f"en{FULL}", "de", f"de{FULL}", f"tr{FULL}"]
    for own in selected:
        assert read_on(own, every, ("random", "same layers")) == every
        for kind in ("random", "same layers"):
            drawn = [each for each in conditions if each.kind == kind and each.controls(own)]
            assert drawn and [each.draw for each in drawn] == list(range(len(drawn)))
            assert len({each.key for each in drawn}) == len(drawn)
            for each in drawn:
                assert len(each.heads) == len(own.heads) and set(each.heads) != set(own.heads)
                if kind == "same layers":
                    assert sorted(head[0] for head in each.heads) == sorted(
                        head[0] for head in own.heads
                    )
                free = kind == "random" and not own.of.endswith(FULL)
                assert read_on(each, every, ("random", "same layers")) == (
                    every if free else (own.of.removesuffix(FULL),)
                )


def test_draws_outside_are_nobodys_and_shared() -> None:
    drawn = {
        of: [each.heads for each in planned_for_two("outside")
             if (each.kind, each.of) == ("outside", of)]
        for of in ("en", "de")
    }  # fmt: skip
    assert drawn["en"] == drawn["de"] and len(drawn["en"]) == 4
    assert not {head for own in drawn["en"] for head in own} & {"0.0", "2.1", "0.2", "2.3"}


def test_layers_are_removed_whole_beside_as_many_heads() -> None:
    planned = plan_layers(layer_sets(UNEVEN), Draws(3, ("random",), 7))
    removed = {each.of: ",".join(each.heads) for each in planned if each.kind == SELECTED}
    assert removed == {
        "layer 0": "0.0,0.1,0.2,0.3", "layer 2": "2.0,2.1,2.2,2.3,2.4,2.5", "layer 3": "3.0,3.1"
    }  # fmt: skip
    assert len(layer_heads(UNEVEN, 1)) == 0
    drawn = [(each.k, len(each.heads)) for each in planned if each.kind == "random"]
    assert drawn == [(2, 2)] * 3 + [(4, 4)] * 3 + [(6, 6)] * 3


def test_layers_stand_beside_heads_of_other_layers_and_never_of_their_own() -> None:
    geometry = Geometry((4, 4, 6))
    both = plan_layers(layer_sets(geometry), Draws(5, ("random", "outside")))
    random = [each for each in both if each.kind != "outside"]
    assert random == plan_layers(layer_sets(geometry), Draws(5, ("random",)))
    for own in (each for each in both if each.kind == SELECTED):
        drawn = [each for each in both if each.kind == "outside" and each.controls(own)]
        assert len({each.heads for each in drawn}) == 5
        assert all(len(each.heads) == own.k and not {*each.heads} & {*own.heads} for each in drawn)
    for name in ("same-layers", "shuffled same layers"):
        with pytest.raises(InputError, match="no other heads than those of a layer"):
            VerifyLayers(controls=("random", name))


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
        plan_layers(layer_sets(Geometry((4,))), Draws(2, ("random",)))


@given(st.sets(st.sampled_from(list(UNEVEN.heads()))))
def test_shares_of_layers_add_up(chosen: set[Head]) -> None:
    layers = profile(HeadSet(UNEVEN, tuple(sorted(chosen))))
    rows = layers.layers
    assert layers.important == len(chosen) == sum(row.important for row in rows)
    assert sum(row.share for row in rows) == pytest.approx(1.0 if chosen else 0.0)
    assert sum(row.even for row in rows) == pytest.approx(1.0)
    assert rows[1] == LayerCount(1, 0, 0, 0.0, 0.0)


# What losses say


def read(made: dict[str, Text], seed: int = 0) -> tuple[list[Condition], Evidence]:
    """Texts under conditions of which nothing else is asked."""
    rows = len(next(iter(made.values())).nll)
    planned = [Condition(), *(Condition("random", "", 1, 0.0, draw=n) for n in range(rows - 1))]
    return planned, text_evidence(planned, made, seed)


def test_perplexities_are_those_of_plain_loops() -> None:
    made = texts()
    planned, found = read(made)
    for name, (rows, tokens) in made.items():
        for each, nll in zip(planned, rows.tolist(), strict=True):
            values = dict(zip(("perplexity", "published_perplexity"),
                              naive_perplexities(nll, tokens.tolist()), strict=True))  # fmt: skip
            values["nll"] = np.log(values["perplexity"])
            for statistic, value in values.items():
                level = found.level(statistic, each, name)
                assert level is not None and level.value == pytest.approx(value, rel=1e-12)
                assert level.low < level.value < level.high
                assert level.examples == len(tokens)


def test_the_bootstrap_is_that_of_drawn_documents() -> None:
    made = texts(3)
    _, found = read(made, seed=5)
    random, (nll, tokens) = np.random.default_rng([5, 9]), made["en"]
    drawn = []
    for _ in range(1000):
        taken = np.repeat(np.arange(9), random.multinomial(9, np.full(9, 1 / 9)))
        weighted = nll[0, taken].sum() / tokens[taken].sum()
        drawn.append((weighted, np.exp(nll[0, taken] / tokens[taken]).mean()))
    for statistic, own in zip(("nll", "published_perplexity"), np.transpose(drawn), strict=True):
        level = found.level(statistic, None, "en")
        assert level is not None
        np.testing.assert_allclose((level.low, level.high), np.quantile(own, (0.025, 0.975)))


def test_translations_of_each_other_are_drawn_alike() -> None:
    one = texts(sizes=(8,))["en"]
    _, found = read({"en": one, "de": Text(one.nll * 2, one.tokens), "tr": one})
    en, de, tr = (found.level("nll", None, part) for part in ("en", "de", "tr"))
    assert en and de and tr
    np.testing.assert_allclose((de.low, de.high), (2 * en.low, 2 * en.high))
    assert (tr.low, tr.high) == (en.low, en.high)


def cross() -> tuple[list[Condition], dict[str, Text]]:
    """Heads of `en` cost en 0.4 and de 0.1; those of `de` de 0.2 and en 0.3; random ones 0.05,
    but one draw costs en 0.5 and de nothing. Every document is alike."""
    rises = {"en": [0.0, 0.4, 0.05, 0.5, 0.3, 0.05, 0.5], "de": [0.0, 0.1, 0.05, 0, 0.2, 0.05, 0]}
    planned = [Condition()]
    for name, own in (("en", "0.0"), ("de", "0.2")):
        planned.append(Condition(SELECTED, name, 1, 0.0, heads=(own,)))
        planned += [
            Condition("random", name, 1, 0.0, draw=draw, heads=(other,))
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
    found = text_evidence(planned, made)
    cells = matrix(found, found.selected)
    values = [[cell.value for cell in row.values()] for row in cells.values()]
    np.testing.assert_allclose(values, [[0.4, 0.1], [0.3, 0.2]])
    beyond = matrix(found, found.selected, "random")
    assert [(of, *row) for of, row in beyond.items()] == [("en", "en", "de"), ("de", "en", "de")]
    values = [[cell.value for cell in row.values()] for row in beyond.values()]
    np.testing.assert_allclose(values, [[0.125, 0.075], [0.025, 0.175]])
    en, de = own_texts(found, planned, made)
    assert (en.language, en.other, de.language, de.other) == ("en", "de", "de", "en")
    # Every document rises by the same, so that they tell nothing of others.
    assert en.difference.value == pytest.approx(0.3) and not en.difference.bounded
    assert de.difference.value == pytest.approx(-0.1)
    # Of the draws of random heads one sets en 0.5 apart from de, the other nothing.
    assert en.p_draws["random"] == pytest.approx(2 / 3) == de.p_draws["random"]


def test_each_languages_own_heads_are_one_condition() -> None:
    planned, made = cross()
    view = own_view(text_evidence(planned, made))
    (own,) = view.selected
    assert (own.of, len(view.of_control(own, "random"))) == ("own", 2)
    changes = {part: view.level("nll", own, part) for part in view.parts}
    for part, change in {"en": 0.4, "de": 0.2}.items():
        row = changes[part]
        assert row is not None and row.change is not None
        assert row.change.value == pytest.approx(change)
    assert view.draws("nll", own, "random", "en").each == pytest.approx((1.05, 1.5))
    assert len(view.tests) == 2


def test_the_largest_other_is_found_anew_in_every_draw() -> None:
    """Two others that rise alike on average: the larger of both is above either."""
    random = np.random.default_rng(1)
    tokens = np.full(20, 5)
    made = {}
    for name in ("en", "de", "tr"):
        noise = random.normal(0, 0.3, 20)
        rise = tokens * (1.1 + noise - noise.mean())
        made[name] = Text(np.stack([tokens * 1.0, rise]), tokens)
    planned = [Condition(), Condition(SELECTED, "en", 1, 0.0, heads=("0.0",))]
    (told,) = own_texts(text_evidence(planned, made), planned, made)
    assert told.difference.value == pytest.approx(0, abs=1e-12)
    stream, naive = np.random.default_rng([0, 20]), []
    for _ in range(1000):
        times = stream.multinomial(20, np.full(20, 1 / 20))
        rises = [times @ (text.nll[1] - text.nll[0]) / (times @ tokens) for text in made.values()]
        naive.append(rises[0] - max(rises[1:]))
    assert told.difference.low == pytest.approx(np.quantile(naive, 0.025))
    assert told.difference.high == pytest.approx(np.quantile(naive, 0.975))
    assert np.mean(naive) < 0 and told.p_draws == {}


def test_heads_stand_beside_random_ones() -> None:
    planned, made = cross()
    # A set that is drawn again proves nothing more.
    planned += [replace(planned[5], draw=2), replace(planned[6], draw=3)]
    made = {
        name: Text(np.concatenate([text.nll, text.nll[5:]]), text.tokens)
        for name, text in made.items()
    }
    found = text_evidence(planned, made)
    level, test = (found.level("nll", planned[4], "de"),
                   found.against("nll", planned[4], "de")["random"])  # fmt: skip
    assert level and level.change and level.change.value == pytest.approx(0.2)
    draws = found.draws("nll", planned[4], "random", "de")
    assert (draws.mean, draws.low, draws.high) == pytest.approx((1.025, 1.0, 1.05))
    assert test.difference.value == pytest.approx(0.175)
    assert test.draws == 2 and test.p_draws == pytest.approx(1 / 3) and test.side == "higher"
    # Four documents: as large a difference by chance where none or all are swapped.
    assert test.p_examples is not None and 0.02 < test.p_examples < 0.2
    _, own = own_texts(found, planned, made)
    assert own.p_draws["random"] == pytest.approx(2 / 3)


#: Heads of three languages, of which French has none of its own.
OF_LANGUAGES = {"en": "0.0,0.1", "fr": "", "de": "2.0,2.1"}


def all_read(draws: int, seed: int = 0) -> tuple[list[Condition], dict[str, Text]]:
    """Every language's heads beside random ones, and losses where `read_on` has them read."""
    controls, random = ("random", "same layers"), np.random.default_rng(seed)
    sets = [
        LanguageHeads(code, 2, heads(named), heads("3.0,3.1"), 2)
        for code, named in OF_LANGUAGES.items()
    ]
    conditions = [*planned(sets_by_language(sets), Draws(draws, controls))]
    made = texts(seed, len(conditions), (9, 6))
    made["fr"] = Text(random.gamma(4.0, 0.5, (len(conditions), 6)), np.full(6, 3))
    made = {code: made[code] for code in OF_LANGUAGES}
    for at, each in enumerate(conditions):
        for code in set(made) - {*read_on(each, [*made], controls)}:
            made[code].nll[at] = np.nan
    return conditions, made


def loss(text: Text, at: int) -> float:
    return float(text.nll[at].sum() / text.tokens.sum())


def naive_p(
    values: Mapping[str, Mapping[str, float]],
    own: Mapping[str, str],
    pools: Sequence[Sequence[str]],
) -> float:
    """The share of all ways to deal sets to languages, of a pool each, under which the sum is as
    large as with their own; languages of one pool never have the same set."""
    ways = [
        dict(zip(own, chosen, strict=True))
        for chosen in itertools.product(*pools)
        if len({(tuple(pool), one) for pool, one in zip(pools, chosen, strict=True)}) == len(own)
    ]
    sums = [math.fsum(values[code][one] for code, one in way.items()) for way in ways]
    selected = math.fsum(values[code][one] for code, one in own.items())
    return sum(each >= selected - 1e-12 for each in sums) / len(ways)


@pytest.mark.parametrize("draws", [1, 2, 5])
def test_languages_are_taken_together(draws: int) -> None:
    conditions, made = all_read(draws)
    found = together(conditions, made)
    own = next(each for each in found.selected if each.of == "own")
    # French, without heads of its own, is text of others alone.
    places: dict[str, dict[str, int]] = {"en": {}, "de": {}}
    for at, each in enumerate(conditions):
        if each.of in places:
            places[each.of][f"{each.kind} {each.draw}"] = at
    selected = {code: at[f"{SELECTED} None"] for code, at in places.items()}

    def change(text: str, at: int) -> float:
        return loss(made[text], at) - loss(made[text], 0)

    def contrast(code: str, at: int) -> float:
        others = [change(other, at) for other in made if other != code]
        return change(code, at) - sum(others) / len(others)

    measures: dict[str, Callable[[str, int], float]] = {"nll": change, "contrast": contrast}
    for statistic, of in measures.items():
        row = found.level(statistic, own)
        assert row is not None and row.change is not None and row.examples == 9 + 6
        value = sum(of(code, at) for code, at in selected.items()) / 2
        assert row.change.value == pytest.approx(value)
        assert row.change.low < value < row.change.high
        # Draws of the same layers are read on own text alone.
        tests = found.against(statistic, own)
        assert [*tests] == ["random", *["same layers"] * (statistic == "nll")]
        for control, test in tests.items():
            drawn = [f"{control} {draw}" for draw in range(draws)]
            mean = sum(of(code, at[one]) for code, at in places.items() for one in drawn)
            assert test.difference.value == pytest.approx(value - mean / 2 / draws)
            values = {
                code: {one: of(code, at[one]) for one in drawn}
                | {other: of(code, place) for other, place in selected.items()}
                for code, at in places.items()
            }
            # Random sets are the same of both languages, and either might have the other's heads;
            # of the same layers each has its own.
            pools = (
                [[*places, *drawn]] * 2 if control == "random" else [["en", *drawn], ["de", *drawn]]
            )
            exact = naive_p(values, {code: code for code in places}, pools)
            assert test.p_draws == pytest.approx(exact, abs=4 * (0.25 / 9999) ** 0.5)
            assert test.draws == draws and test.side == "higher"
    for one in own_texts(text_evidence(conditions, made), conditions, made):
        if FULL not in one.condition:
            assert one.mean_difference.value == pytest.approx(
                contrast(one.language, selected[one.language])
            )


def test_p_of_random_sets_is_as_often_small_as_it_says() -> None:
    """Also where few heads matter, to every language, and sets of all languages are the same."""
    random, found = np.random.default_rng(0), []
    for _ in range(400):
        heads = random.gamma(2.0, 0.05, (96, 3))
        heads[random.choice(96, 3, replace=False)] += 5
        sums = heads[random.permuted(np.tile(np.arange(96), (22, 1)), axis=1)[:, :4]].sum(axis=1)
        values = {str(code): sums[:, code] for code in range(3)}
        series = {code: [int(code), *range(3, 22)] for code in values}
        sets = {code: [[str(at)] for at in of_code] for code, of_code in series.items()}
        found.append(p_dealt(values, series, sets, times=199)[0])
    for level in (0.02, 0.05, 0.2, 0.5):
        share = np.mean(np.array(found) <= level)
        assert share <= level + 3 * math.sqrt(level * (1 - level) / 400)
    assert 0.4 < np.median(found) < 0.6


def test_the_least_p_is_that_of_all_ways() -> None:
    values = {"a": np.array([0.0, 9, 8, 0, 0]), "b": np.array([0.0, 8, 9, 0, 0])}
    same = {"a": [1, 3, 4], "b": [2, 3, 4]}
    sets = {"a": [["0"], ["2"], ["3"]], "b": [["1"], ["2"], ["3"]]}
    p, least = p_dealt(values, same, sets)
    assert least == 1 / 12 and p == pytest.approx(least, abs=0.015)
    apart = {"a": [["0"], ["2"], ["3"]], "b": [["1"], ["4"], ["5"]]}
    p, least = p_dealt(values, same, apart)
    assert least == 1 / 9 and p == pytest.approx(least, abs=0.015)


@given(st.integers(0, 10_000))
def test_a_language_alone_is_what_is_told_of_it(seed: int) -> None:
    conditions, made = all_read(2, seed)
    kept = [at for at, each in enumerate(conditions) if each.of in ("", "de")]
    alone = {"de": Text(made["de"].nll[kept], made["de"].tokens)}
    conditions = [conditions[at] for at in kept]
    found, apart = together(conditions, alone), text_evidence(conditions, alone)
    (own,), (of_german,) = found.selected, apart.selected
    assert [*found.statistics] == ["nll"]  # there is no other text
    row, same = found.level("nll", own), apart.level("nll", of_german)
    assert row is not None and same is not None and row.change == same.change


def test_heads_of_no_language_are_not_taken_together() -> None:
    conditions = [Condition(), Condition(SELECTED, "", 2, 0.0, heads=("0.0", "0.1"))]
    assert together(conditions, texts(conditions=2)).levels == ()


def test_without_heads_there_is_nothing_to_plan(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no set of heads"):
        sets_by_language([])
    empty = tmp_path / "none.csv"
    empty.write_text("layer,head\n")
    with pytest.raises(InputError):
        language_heads(str(empty), None, ["en"], None, UNEVEN)
