"""What a mixture promises: shares, budgets, selection, copies, order, and that it is proved."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.use.mixing import Manifest, MixPlan, mix, verify_manifest
from headscope.use.mixing import choose as cutting
from headscope.use.mixing import index as indexing
from headscope.use.mixing.choose import DocumentChoice, choose
from headscope.use.mixing.index import build_index
from headscope.use.mixing.reading import rated_files
from mixing_helpers import corpora, corpus, of_language, repeats, times, weight, write, written

KINDS = ("baseline", "remove", "enhance")
LANGUAGES = ("en", "de", "is")


def chosen(folder: Path, records: Sequence[Mapping[str, Any]], plan: MixPlan) -> DocumentChoice:
    """What a plan chooses of records, in their order."""
    file = write(folder / "rated.jsonl", records)
    index = build_index(folder / f"index-{plan.kind}", rated_files([file]), plan)
    return choose(index, plan, folder / f"texts-{plan.kind}")


def attempted(folder: Path, records: Sequence[Any], plan: MixPlan) -> DocumentChoice | str:
    """The same, or what is said where the records do not allow it."""
    try:
        return chosen(folder, records, plan)
    except InputError as error:
        return str(error)


def taken(records: Sequence[Any], copies: Sequence[int]) -> list[Any]:
    return [one for one, n in zip(records, copies, strict=True) for _ in range(n)]


def of_few_tokens(*rows: tuple[str, str, int]) -> list[dict[str, Any]]:
    """Records of equal scores from text, language and tokens."""
    return [
        {"id": number, "text": text, "language": code, "score": 0.0, "tokens": tokens}
        for number, (text, code, tokens) in enumerate(rows)
    ]


NO_TOKENS = ("text 0", "en", 0)


@settings(max_examples=30)
@example(
    of_few_tokens(NO_TOKENS, NO_TOKENS, ("text 0", "de", 1), ("text 1", "de", 1)),
    "tokens",
    None,
    "exact",
    0,
)
@example(of_few_tokens(*[NO_TOKENS] * 4), "tokens", None, "exact", 0)
@example(of_few_tokens(*[NO_TOKENS] * 3, ("text 0", "en", 1)), "tokens", "40%", "exact", 0)
@given(
    corpora(),
    st.sampled_from(("documents", "tokens")),
    st.sampled_from((None, "70%", "40%")),
    st.sampled_from(("exact", "streaming")),
    st.integers(0, 3),
)
def test_the_laws_of_the_three_kinds(
    records: list[dict[str, Any]], by: Any, size: Any, quantile: Any, seed: int
) -> None:
    plans = {
        kind: MixPlan(kind, 0.2, by, size, times=2, quantile=quantile, seed=seed) for kind in KINDS
    }
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexing, "BLOCK", 16)
        patch.setattr(indexing, "PART", 16)
        patch.setattr(cutting, "FEW", 0)
        if by == "tokens" and size and not any(whole_sizes(records, plans["baseline"])):
            for plan in plans.values():
                assert "would hold no documents" in attempted(Path(name), records, plan)
            return
        found = {"baseline": chosen(Path(name), records, plans["baseline"])}
        assert found["baseline"].copies.tolist() == found["baseline"].baseline.tolist()
        for kind in ("remove", "enhance"):
            made = attempted(Path(name), records, plans[kind])
            if isinstance(made, DocumentChoice):
                found[kind] = made
            else:
                assert "nothing would be left" in made or "2 times the" in made
    baseline = taken(records, found["baseline"].copies.tolist())
    chose = found["baseline"]
    selected = taken(records, (chose.baseline & chose.selected).tolist())
    texts = {one["text"] for one in selected}
    rest = [one for one in baseline if one["text"] not in texts]
    assert times(baseline) <= times(records)
    assert sorted(one["id"] for one in baseline if one["text"] in texts) == sorted(
        one["id"] for one in selected
    )
    for code in LANGUAGES:
        here, top = of_language(baseline, code), of_language(selected, code)
        if not here:
            continue
        # Top share: nothing that is left has a higher score than what is selected, copies aside.
        low = found["baseline"].languages[code].threshold
        left = [one["score"] for one in of_language(rest, code)]
        assert low is None or max(left, default=-np.inf) <= low
        wanted = plans["baseline"].selected_of(weight(here, by))
        scores = {one["score"] for one in here}
        if quantile == "exact" and by == "documents" and len(scores) == len(here):
            assert len(top) >= wanted

    if "remove" in found:
        check_removed(records, found["remove"], baseline, texts, by)
    if "enhance" in found:
        counts = times(taken(records, found["enhance"].copies.tolist()))
        assert all(counts[one["id"]] == 2 for one in selected)
        assert all(n == 1 for key, n in counts.items() if key not in times(selected))
        assert set(counts) <= set(times(baseline))
        check_budgets(records, found["enhance"], baseline, by)


def whole_sizes(records: Sequence[Any], plan: MixPlan) -> list[int]:
    """How many tokens of each language the baseline is to have."""
    return [plan.size_of(code, weight(of_language(records, code), plan.by)) for code in LANGUAGES]


def check_budgets(
    records: Sequence[Mapping[str, Any]], choice: DocumentChoice, baseline: Sequence[Any], by: str
) -> None:
    """Every language has the baseline's budget times the factor, up to half a document."""
    largest = max(one["tokens"] for one in records) if by == "tokens" else 1
    mixture = taken(records, choice.copies.tolist())
    for code in LANGUAGES:
        budget = choice.factor * weight(of_language(baseline, code), by)
        assert abs(weight(of_language(mixture, code), by) - budget) <= largest / 2 + 0.5


def check_removed(
    records: Sequence[Mapping[str, Any]],
    choice: DocumentChoice,
    baseline: Sequence[Any],
    texts: set[str],
    by: str,
) -> None:
    """Nothing selected is left, what comes in is new, and nothing is there twice that was not."""
    removed = taken(records, choice.copies.tolist())
    assert not texts & {one["text"] for one in removed}
    assert max(times(removed).values(), default=0) <= 1
    new = [one for one in removed if one["id"] not in times(baseline)]
    assert not {one["text"] for one in new} & {one["text"] for one in baseline}
    assert repeats(new) == 0
    assert repeats(removed) <= repeats(baseline) == choice.duplicates_before
    assert repeats(removed) == choice.duplicates
    if choice.factor == 1:
        rest = [one for one in baseline if one["text"] not in texts]
        assert times(rest) <= times(removed) or by == "tokens"
    check_budgets(records, choice, baseline, by)


def test_top_share_is_what_sorting_selects(tmp_path: Path) -> None:
    records = corpus(900, copies=0.0)
    choice = chosen(tmp_path, records, MixPlan("remove", share=0.05, size="60%"))
    based = taken(records, choice.baseline.tolist())
    for code in LANGUAGES:
        here = sorted(of_language(based, code), key=lambda one: -one["score"])
        top = here[: round(0.05 * len(here))]
        language = choice.languages[code]
        assert language.selected.documents == len(top)
        assert language.selected.tokens == weight(top, "tokens")
        assert language.threshold == top[-1]["score"]
        assert language.next_score == here[len(top)]["score"]
        # What comes in from the reserve lies below the cut too.
        spare = [one for one in of_language(records, code) if one not in based]
        assert language.reserve.documents == sum(one["score"] < top[-1]["score"] for one in spare)


@pytest.mark.parametrize("by", ["documents", "tokens"])
def test_files_hold_what_the_manifest_says(tmp_path: Path, by: Any) -> None:
    records = corpus(700)
    source = write(tmp_path / "rated" / "a.jsonl", records)
    budgets = {}
    for kind in ("baseline", "remove", "enhance"):
        out = tmp_path / kind
        plan = MixPlan(kind, share=0.04, by=by, size="60%", file_bytes=9000)
        manifest = mix([source], out, plan)
        assert len(manifest.files) > 2
        recount = verify_manifest(out, [source])
        found = written(out)
        assert manifest == Manifest.read(out)
        assert manifest.documents == len(found)
        assert manifest.tokens == weight(found, "tokens")
        for code, one in manifest.languages.items():
            here = of_language(found, code)
            assert one.mixture.documents == len(here) == recount.counts[code].documents
            assert one.share_after == weight(here, by) / weight(found, by)
            assert abs(one.share_difference) < 60 / weight(found, by) * (by == "tokens") + 1e-12
            assert recount.selected[code] == one.copies * one.selected.documents
        # Records are as they were read.
        assert all(one == records[one["id"]] for one in found)
        budgets[kind] = {code: weight(of_language(found, code), by) for code in LANGUAGES}
    for code in LANGUAGES:
        values = [one[code] for one in budgets.values()]
        assert max(values) - min(values) <= (60 if by == "tokens" else 0)


def test_the_order_is_shuffled_and_does_not_depend_on_files(tmp_path: Path) -> None:
    records = corpus(600)
    one = write(tmp_path / "one.jsonl", records)
    halves = [
        write(tmp_path / "b.jsonl.gz", records[::-1][:250]),
        write(tmp_path / "a.jsonl", records[::-1][250:]),
    ]
    plan = MixPlan("enhance", size="80%", file_bytes=8000)
    first = mix([one], tmp_path / "first", plan)
    second = mix(halves, tmp_path / "second", plan)
    assert first.digest == second.digest
    assert plain_languages(first) == plain_languages(second)
    other = mix([one], tmp_path / "other", MixPlan("enhance", size="80%", seed=1, file_bytes=8000))
    assert other.digest != first.digest
    found = [record["id"] for record in written(tmp_path / "first")]
    assert abs(np.corrcoef(found, np.arange(len(found)))[0, 1]) < 0.15
    # Copies of a record do not stand together.
    assert sum(a == b for a, b in pairwise(found)) <= 2


def plain_languages(manifest: Manifest) -> Any:
    return {code: vars(one) for code, one in manifest.languages.items()}


def test_without_a_reserve_all_languages_shrink_by_one_factor(tmp_path: Path) -> None:
    # German has a copy of its highest text, so more of it is removed than of the others.
    records = corpus(1000, copies=0.0)
    best = max(of_language(records, "de"), key=lambda one: one["score"])
    records += [{**best, "id": 5000 + extra} for extra in range(20)]
    manifest = mix([write(tmp_path / "a.jsonl", records)], tmp_path / "out", MixPlan(share=0.05))
    german = manifest.languages["de"]
    assert german.selected.documents > german.wanted
    left = german.baseline.documents - german.selected.documents
    assert manifest.factor == left / german.baseline.documents < 0.95
    for one in manifest.languages.values():
        assert one.mixture.documents == round(manifest.factor * one.baseline.documents)
        assert abs(one.share_difference) < 1 / manifest.documents
    assert manifest.duplicates["mixture"] == 0


def test_sizes_by_language_and_shares_as_numbers(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", corpus(600))
    sizes = {"en": 100, "de": "50%", "is": 30}
    manifest = mix([source], tmp_path / "out", MixPlan("enhance", share=7, size=sizes))
    assert manifest.languages["en"].mixture.documents == 100
    assert manifest.languages["is"].mixture.documents == 30
    german = manifest.languages["de"]
    assert german.mixture.documents == round(german.corpus.documents / 2)
    assert all(one.wanted == 7 <= one.selected.documents for one in manifest.languages.values())


def test_a_random_selection_is_a_control_of_the_same_size(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", corpus(900, copies=0.0))
    found = {}
    for select in ("top", "random"):
        plan = MixPlan("enhance", share=0.1, size="70%", select=select)
        manifest = mix([source], tmp_path / select, plan)
        verify_manifest(tmp_path / select, [source])
        counts = times(written(tmp_path / select))
        found[select] = {key for key, number in counts.items() if number == 3}
        sizes = [one.selected.documents for one in manifest.languages.values()]
        assert sum(sizes) == len(found[select])
    assert len(found["top"]) == len(found["random"])
    # A tenth of the others would be shared by chance.
    assert len(found["top"] & found["random"]) < 0.3 * len(found["top"])
    assert all(one.threshold is None for one in manifest.languages.values())


def test_one_language_without_a_column_or_tokens(tmp_path: Path) -> None:
    records = [{"text": f"{n}", "score": n / 100} for n in range(300)]
    source = write(tmp_path / "a.jsonl", records)
    manifest = mix([source], tmp_path / "out", MixPlan(size=200, language_column=None))
    assert manifest.tokens is None and list(manifest.languages) == [""]
    assert manifest.documents == 200
    assert verify_manifest(tmp_path / "out", [source]).counts[""].documents == 200


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("documents", "line", "is not the file"),
        ("manifest", "share_after", "the share of 'de'"),
        ("manifest", "documents", "the documents or tokens of 'de'"),
        ("manifest", "copies", "the selected documents of 'de'"),
        ("manifest", "duplicates", "the number of duplicates"),
        ("manifest", "reserve", "the reserve of 'de'"),
        ("manifest", "digest", "the digest"),
    ],
)
def test_a_manifest_that_does_not_fit_is_found_out(
    tmp_path: Path, file: str, change: str, said: str
) -> None:
    source = write(tmp_path / "a.jsonl", corpus(200))
    out = tmp_path / "out"
    mix([source], out, MixPlan("enhance", share=0.05, size="80%"))
    if file == "documents":
        (path,) = (out / "documents").iterdir()
        path.write_text(path.read_text("utf-8").replace("en", "de", 1), "utf-8")
    else:
        told = json.loads((out / "manifest.json").read_text("utf-8"))
        german = told["languages"]["de"]
        if change == "share_after":
            german["share_after"] += 1e-9
        elif change == "documents":
            german["mixture"]["documents"] += 1
        elif change == "copies":
            german["copies"] = 2
        elif change == "reserve":
            german["reserve"]["documents"] += 1
        elif change == "digest":
            told["digest"] = "0" * 64
        else:
            told["duplicates"]["mixture"] += 1
        (out / "manifest.json").write_text(json.dumps(told), "utf-8")
    with pytest.raises(InputError, match=said):
        verify_manifest(out, [source])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda out: (out / "manifest.json").unlink(), "cannot be read"),
        (lambda out: (out / "manifest.json").write_text("{"), "is damaged"),
        (lambda out: changed(out, format=0), "another format"),
        (lambda out: changed(out, languages=3), "is damaged"),
        (lambda out: changed(out, plan={"kind": "baseline"}), "is damaged"),
        (lambda out: (out / "documents" / "more.jsonl").touch(), "is no part of the mixture"),
    ],
)
def test_a_folder_that_is_no_whole_mixture_is_told(
    tmp_path: Path, damage: Callable[[Path], object], said: str
) -> None:
    mix([write(tmp_path / "a.jsonl", corpus(40))], tmp_path / "out", MixPlan("baseline"))
    damage(tmp_path / "out")
    with pytest.raises(InputError, match=said):
        verify_manifest(tmp_path / "out")


def changed(out: Path, **values: object) -> None:
    """Write other values into the manifest."""
    file = out / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **values}), "utf-8")


def test_a_mixture_killed_before_its_result_is_not_written_again(tmp_path: Path) -> None:
    source, plan, out = write(tmp_path / "a.jsonl", corpus(40)), MixPlan("baseline"), tmp_path / "o"
    first = mix([source], out, plan)
    (out / "DONE.json").unlink()
    (out / "result.json").unlink()
    times = {file: file.stat().st_mtime_ns for file in (out / "documents").iterdir()}
    assert mix([source], out, plan).digest == first.digest
    assert {file: file.stat().st_mtime_ns for file in (out / "documents").iterdir()} == times
