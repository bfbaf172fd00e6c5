"""Every figure of the documentation that docs/figures.md traces is where the page says it is.

The files are there, and hold the signatures and commits that are named; the most important figures
of the README, the tour and the measurements are read from the stored results and found, rounded,
in their text.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
#: What tells figures of the bundled model, one line each.
SHOWN = dict.fromkeys(
    line
    for name in ("README.md", "docs/start.md", "docs/tour.md", "docs/measured.md")
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
)
COLUMNS = ["place", "what it says", "command", "stored in", "signature or commit"]
SIGNATURE = re.compile(r"(?<!commit )`([0-9a-f]{12})`")
COMMIT = re.compile(r"commit `([0-9a-f]{7})`")


def traced() -> list[tuple[Path, list[str], list[str]]]:
    """Each row of the page's tables of sources: the stored file, the hashes of runs, and the
    commits. Tables with other columns are of figures themselves.
    """
    rows: list[tuple[Path, list[str], list[str]]] = []
    inside = False
    for line in (ROOT / "docs" / "figures.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        inside = line.startswith("|") and (inside or cells[1:] == COLUMNS[1:])
        if not inside or not line.startswith("| ") or cells[1:] == COLUMNS[1:]:
            continue
        assert len(cells) == len(COLUMNS), line
        (name,) = re.findall(r"`([^`]+)`", cells[3])
        file = ROOT / name if "/" in name else RESULTS / name
        rows.append((file, SIGNATURE.findall(cells[4]), COMMIT.findall(cells[4])))
    return rows


@cache
def text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@cache
def stored(name: str) -> Any:
    return json.loads(text(RESULTS / f"{name}.json"))


TRACED = traced()
REPORTS = sorted({file for file, *_ in TRACED if file.suffix == ".html"})


def test_every_stored_file_is_there_and_holds_what_the_page_names() -> None:
    rows = [row for row in TRACED if row[0] not in REPORTS]
    assert len(rows) > 50
    wrong = []
    for file, signatures, commits in rows:
        if not file.is_file():
            wrong.append(f"{file.name} is not there")
            continue
        held = text(file)
        # A signature ends in its hash, or goes on with what of the run is meant.
        wrong += [
            f"{file.name}: {one}"
            for one in signatures
            if not re.search(rf'"headscope-[\d.]+\|[a-z -]+\|{one}["|]', held)
        ]
        wrong += [f"{file.name}: {one}" for one in commits if f'"commit": "{one}' not in held]
    assert not wrong


@pytest.mark.parametrize("report", REPORTS, ids=lambda file: file.name)
def test_the_papers_reports_hold_the_runs_that_the_page_names(report: Path) -> None:
    named = [one for file, signatures, _ in TRACED if file == report for one in signatures]
    assert named
    assert [one for one in named if one not in text(report)] == []


def test_every_stored_result_is_traced() -> None:
    """No file of results is left without a figure that says where it is used."""
    assert {file.name for file in RESULTS.glob("*.json")} == {
        file.name for file, *_ in TRACED if file.parent == RESULTS
    }


def line(start: str) -> str:
    """The one line of README, start, tour and measurements that begins so."""
    (found,) = (one for one in SHOWN if one.startswith(start))
    return found.replace("\u2212", "-")


def levels(
    rows: dict[str, Any], statistic: str = "chrf", part: str = ""
) -> dict[str, list[list[float]]]:
    """Of a stored table a statistic by kind of condition: of every number of heads and gate, in
    order, its values, of a control those of all draws."""
    held = {each["id"]: each for each in rows["conditions"]}
    values: dict[str, dict[tuple[int, float], list[float]]] = {}
    for row in rows["levels"]:
        if (row["part"], row["statistic"]) == (part, statistic):
            own = held[row["condition"]]
            cases = values.setdefault(own["kind"], {})
            cases.setdefault((own["k"], own["gate"]), []).append(row["value"])
    return {kind: list(cases.values()) for kind, cases in values.items()}


def means(rows: dict[str, Any], statistic: str = "chrf", part: str = "") -> dict[str, list[float]]:
    """The same as means over draws."""
    return {k: [fmean(case) for case in of] for k, of in levels(rows, statistic, part).items()}


def percent(value: float) -> str:
    return f"{100 * value:.0f}"


def given() -> dict[str, Any]:
    """What the lines of `FIGURES` are made of: stored results, and means over parts of them."""
    removal = stored("removal-pocket")["runs"]
    default = removal["default"]
    survey = stored("demo-pocket")["survey"]
    shared = {(one["a"], one["b"]): one for one in survey["pairs"]}
    matrices = [one["matrices"][0] for one in stored("languages-pocket")["runs"].values()]
    masks = stored("masks-pocket")["tasks"]
    tested = {name: next(iter(task["tasks"].values())) for name, task in masks.items()}
    ratios = [one["ratio"] for one in stored("costs-pocket")["recipes"].values()]
    speeds = stored("rate-workers-two")
    demo = stored("demo-pocket")["atlas"]
    removed = means(demo)
    return {
        "pocket": stored("pocket"),
        "workers": stored("workers"),
        "demo": demo,
        "fall": removed["original"][0] - removed["selected"][0],
        "harm": [
            {end: -test["difference"][end] for end in ("value", "low", "high")}
            for test in demo["tests"]
        ],
        "removal": default,
        "default": means(default),
        "bleu": means(default, "bleu"),
        "ends": {kind: (min(of[0]), max(of[0])) for kind, of in levels(default).items()},
        "change": next(row["change"] for row in default["levels"] if row["change"]),
        "eleven": removal["eleven conditions, 200 sentences"],
        "gates": means(removal["doses over gates"]),
        "doses": means(removal["doses over k"]),
        "final": stored("formation-pocket")["checkpoints"][-1],
        "plural": {one["kind"]: one["accuracy"] for one in tested["plural-en"]["conditions"]},
        "methods": shared["lahis", "first-order"],
        "copying": shared["translation-score", "retrieval"],
        "agreement": survey["agreement"][0],
        "tasks": {
            name: means(stored("tasks-pocket"), task["metric"], name)
            for name, task in stored("tasks-pocket")["tasks"].items()
        },
        "removed": removed,
        "speedup": stored("one_by_one")["with_texts"]["speedup"],
        "own": [fmean(one["own"] for one in m["own"].values()) for m in matrices],
        "others": [
            fmean(o["largest_other"]["change"] for o in m["own"].values()) for m in matrices
        ],
        "random": [fmean(r[i]["value"] for i, r in enumerate(m["random"])) for m in matrices],
        "nll": {
            kind: fmean(
                fmean(one["nll"] for one in task["conditions"] if one["kind"] == kind)
                for name, task in tested.items()
                if re.fullmatch("[a-z]{2}-[a-z]{2}", name)
            )
            for kind in ("as-is", "masked", "shuffled", "instructed")
        },
        "gated": stored("soft-gate-pocket-question-first")["result"]["accuracy"],
        "mixtures": stored("trater-mixtures-pocket")["conditions"],
        "rating": stored("rate-pocket")["firsts"],
        "two": speeds["two"],
        "whole": speeds["whole"],
        "ratios": {"least": min(ratios), "most": max(ratios)},
        "right": stored("identify")["candidates"]["headscope.measure.identify"]["right"],
        "alignment": [stored(f"alignment-{pair}") for pair in ("en-es", "en-ru", "en-nl")],
        "forward": stored("peaks-cpu-2-cores")["reference"][0],
    }


def each(template: str, *names: object) -> str:
    """A template for every name, which stands at its `@`."""
    return " … ".join(template.replace("@", str(name)) for name in names)


#: How each line begins, and the figures it has to hold, in order, `…` between them. A share is
#: looked for as its percentage, without the sign.
FIGURES = [
    ("* The second sentence says how many heads",
     each("{demo[@][token_alignment]:.1f}", "counts_above_chance", "counts")),
    ("mean of 20     \u221269.0", " … ".join(
        each(f"{{removal[tests][{at}][difference][@]:.1f}}", "value", "low", "high")
        + f" … {{removal[tests][{at}][p_draws]:.3f}}" for at in range(2))),
    ("Without the 14 best heads, chrF++ falls by",
     "{fall:.1f} … " + each("{harm[0][@]:.1f}", "value", "high", "low")),
    ("of the same layers", "{harm[1][value]:.1f}"),
    ("Without the 14 best heads chrF++ falls from",
     each("{removed[@][0]:.1f}", "original", "selected", "random", "same layers")),
    ("* The first sentence is the effect",
     each("{removed[@][0]:.1f}", "original", "selected", "random", "same layers")),
    ("| original | 94",
     each("{@[original][0]:.1f}", "default", "bleu")),
    ("| 14 selected, removed | 1", "{default[selected][0]:.1f} … "
     + each("{change[@]:.1f}", "value", "low", "high")),
    ("| 14 random, removed | 8",
     "{default[random][0]:.1f} … " + each("{ends[random][@]:.1f}", 0, 1)),
    ("| 14 of the same layers, removed | 6",
     "{default[same layers][0]:.1f} … " + each("{ends[same layers][@]:.1f}", 0, 1)),
    ("| chrF++ (200", each("{gates[selected][@]:.1f}", 0, 1)
     + " … {gates[original][0]:.1f} … " + each("{gates[selected][@]:.1f}", 2, 3, 4, 5)),
    ("| the best |", each("{doses[selected][@]:.1f}", *range(4))),
    ("| random, mean", each("{doses[random][@]:.1f}", *range(4))),
    ("final   ", "{final[above_chance][token_alignment]:.1%} … {final[token_alignment]:.1%} … "
     + each("{final[@]:.2f}", "chrf", "chrf_low", "chrf_high")),
    ("Without its instruction", each("{plural[@]:.0%}", "as-is", "instructed", "masked")),
    ("(`survey pocket", "{methods[intersection]} … {copying[intersection]} … "
     "{copying[jaccard]:.2f}, {copying[expected]:.2f} … {agreement[heads]} of 96 … "
     "{agreement[expected]:.0f} would"),
    ("| the bundled model: chrF++", "{pocket[translation, default prompt][mean chrF++]:.1f} … "
     "{pocket[translation, default prompt][exactly right]:.0%} … "
     + each("{pocket[translation, @ prompt][mean chrF++]:.1f}", "labelled", "say")),
    ("| its word tasks", each("{pocket[word tasks, accuracy][@][accuracy]:.2f}", "translate",
                              "plural", "past", "first_letter", "capital", "antonym")),
    ("| removal on the bundled",
     each("{default[@][0]:.1f}", "original", "selected", "random", "same layers")),
    ("| the same, eleven", "{eleven[seconds]:.0f} s"),
    ("| tasks without", each(
        "{tasks[@][original][0]:.0%}, {tasks[@][selected][0]:.0%}, {tasks[@][same layers][0]:.0%}",
        *(f"pocket_{name}" for name in ("translate_sentences", "repeat_sentences", "capitals")))),
    ("| heads removed one by one", each("{speedup[@]:.1f}", "median", "min", "max")),
    ("| LAHIS, bundled model", each("{own[@]:.3f}, {others[@]:.3f}, {random[@]:.3f}", 0, 1, 2)),
    ("| masks, bundled", each("{nll[@]:.2f}", "as-is", "masked", "shuffled", "instructed")),
    ("| soft gates", each("{gated[@][accuracy][mean]:.1%}", "untouched", "trained", "random",
                          "random-layer-matched")),
    ("| models trained on mixtures",
     each("{mixtures[@][chrf_prompt]:.1f} / {mixtures[@][chrf_document]:.1f}", *range(5))),
    ("| rating with TRater", each(", ".join(f"{{rating[{at}][@][median]:.2f}}" for at in range(3)),
                                  "cost_in_plain_passes", "speed_over_two_passes")),
    ("| two workers", each("{@[scored_tokens_per_second]:,.0f}", "two", "whole")
     + " … {two[scored_tokens_per_second_over_one_worker]:.2f}"),
    ("| removal by two workers", "{workers[faster]:.2f}"),
    ("| estimated", "{ratios[least]:.2f} to {ratios[most]:.2f}"),
    ("| language identification", "{right[data folder][1-3][mean]:.1%} … "
     "{right[data folder][4-7][mean]:.1%} … {right[pocket][all][mean]:.1%}"),
    ("| statistical alignment",
     each("{alignment[@][precision]:.3f}, {alignment[@][recall]:.3f}", 0, 1, 2)),
    ("| forward pass",
     each("{forward[@][peaks][median]:.2f}", "ratio_to_plain", "ratio_to_plain_last_logits")),
]  # fmt: skip


@pytest.mark.parametrize(("start", "figures"), FIGURES)
def test_a_figure_of_the_readme_is_that_of_its_stored_result(start: str, figures: str) -> None:
    """In the order in which the line tells them, each behind the one before."""
    told, at = line(start), 0
    for figure in figures.format_map(given()).replace("%", "").split(" … "):
        match = re.compile(rf"(?<![\d.]){re.escape(figure)}(?!\d)").search(told, at)
        assert match, f"{figure} is not in: {told[at:]}"
        at = match.end()


def rows(page: str) -> dict[str, list[str]]:
    """The cells of a page's table rows, without their emphasis, by the first cell."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    cells = (
        [cell.strip().replace("*", "") for cell in one.strip("|").split("|")]
        for one in lines
        if one.startswith("| ")
    )
    return {first: rest for first, *rest in cells}


def short(value: float, digits: int = 2) -> str:
    """Rounded, halves upwards also where their nearest binary number lies below them."""
    return f"{value + 1e-9:.{digits}f}"


def test_the_table_of_masks_is_that_of_the_stored_runs() -> None:
    told = rows("masks.md")
    for name, task in stored("masks-pocket")["tasks"].items():
        (tested,) = task["tasks"].values()
        by_kind: dict[str, list[dict[str, Any]]] = {}
        for one in tested["conditions"]:
            by_kind.setdefault(one["kind"], []).append(one)
        nll = {kind: sum(one["nll"] for one in of) / len(of) for kind, of in by_kind.items()}
        alone = ("as-is", "instructed", "masked")
        assert told[f"{name} ({tested['examples']})"] == [
            str(task["kept"]),
            *(short(nll[kind]) for kind in alone),
            f"{short(nll['shuffled'])}; {short(nll['shuffled-layer-matched'])}",
            *(
                f"{percent(by_kind[kind][0]['accuracy'])} %"
                if by_kind[kind][0]["chrf"] is None
                else short(by_kind[kind][0]["chrf"], 1)
                for kind in alone
            ),
        ]


def test_the_table_of_languages_is_that_of_the_report() -> None:
    """The matrix of heads by texts, and how many random sets do as much, are in the attributes of
    their pictures."""
    told, report = rows("languages.md"), text(ROOT / "docs" / "papers" / "lahis.html")
    matrix = re.search(
        r'data-rows="(en \(4\)[^"]*)" data-columns="([^"]*)" data-values="([^"]*)"', report
    )
    assert matrix is not None
    heads, texts, values = (part.split("\t") for part in matrix.groups())
    for at, language in enumerate(one.partition(" ")[0] for one in heads):
        row = values[at * len(texts) : (at + 1) * len(texts)]
        assert told[language][: len(texts)] == [value.partition(" ")[0] for value in row]
        as_far = []
        for control in ("random", "same layers"):
            found = re.search(
                rf'data-words="{language} \u2212 {control}: [^"]*\s(\d+) of 119 sets', report
            )
            assert found is not None
            as_far.append(found[1])
        assert [cell.removesuffix(" of 119") for cell in told[language][len(texts) :]] == as_far


def test_the_first_table_of_languages_is_that_of_the_stored_run() -> None:
    told, (matrix, _) = rows("figures.md"), stored("languages-pocket")["runs"]["seed 0"]["matrices"]
    for language, changes in zip(matrix["heads_of"], matrix["change"], strict=True):
        assert told[language] == [short(one["value"], 3) for one in changes]
    assert told["random (mean of 10)"] == [short(one["value"], 3) for one in matrix["random"][0]]


def test_the_tables_of_corpora_are_those_of_the_stored_results() -> None:
    told, languages = (
        rows("figures.md") | rows("corpora.md"),
        stored("trater-pocket")["languages"],
    )
    ranked = [one["rankers"] for one in languages.values()]

    def each(name: str) -> list[list[float]]:
        return [[one[f"{name} {draw}"]["auc"] for draw in range(10)] for one in ranked]

    assert told["TRater, 14 heads: AUC"] == [short(one["found 15%"]["auc"], 3) for one in ranked]
    assert told["AUC with 5 heads"] == [short(one["found 5"]["auc"]) for one in ranked]
    assert told["14 random heads, 10 draws: mean AUC"] == [
        short(sum(draws) / 10) for draws in each("random")
    ]
    assert told["the best of the ten draws"] == [short(max(draws)) for draws in each("random")]
    assert told["of the same layers: mean, best"] == [
        f"{short(sum(draws) / 10)}, {short(max(draws))}" for draws in each("same layers")
    ]
    for kind in stored("trater-mixtures-pocket")["conditions"]:
        models = [
            one for one in stored("trater-mixtures-pocket")["models"] if one["kind"] == kind["kind"]
        ]
        for cell, measure in zip(
            told[kind["kind"]][1:3], ("chrf_prompt", "chrf_document"), strict=True
        ):
            by_seed = ", ".join(short(one[measure], 1) for one in models)
            assert cell == f"{short(kind[measure], 1)} ({by_seed})"


def test_the_speeds_of_rating_are_the_stored_ones() -> None:
    told = rows("corpora.md")

    def speeds(name: str, prefix: str) -> str:
        steps = stored(name)["steps"]
        found = [
            round(step["tokens_per_second"])
            for step in (steps[key] for key in steps if re.match(prefix, key))
        ]
        return f"{min(found)} to {max(found)}"

    workers = stored("rate-workers-two")
    one, two = (workers[name]["scored_tokens_per_second"] for name in ("whole", "two"))
    assert told["bundled, one thread"][1] == f"{one:,.0f}; two workers {two:,.0f}"
    for model, name, prefix in (
        ("Gemma 3 270M, two cores", "real-models", "rate"),
        ("Qwen2.5-Coder 0.5B, two cores", "replication", r"0\.5b-rate"),
        ("Qwen2.5-Coder 1.5B, two cores", "replication", r"1\.5b-rate"),
    ):
        assert told[model][1] == speeds(name, prefix)
    (gpu,) = stored("gpu-h100-rating")["rows"]
    rate = gpu["tokens_per_second"]["headscope"]
    assert told["shape of Llama 3.1 8B, random weights, one H100"][1] == f"{rate:,.0f}"
    assert f"a billion tokens take {1e9 / rate / 3600:.0f} hours" in (
        ROOT / "docs" / "corpora.md"
    ).read_text("utf-8")


REAL_MODELS = (ROOT / "docs" / "real-models.md").read_text("utf-8")


def cells(start: str) -> list[str]:
    """The cells of the one row of the page of real models whose first cell begins so."""
    (found,) = (row for row in REAL_MODELS.splitlines() if row.startswith(f"| {start}"))
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


@pytest.mark.parametrize("pair", ["en-es", "es-en", "en-ru", "en-nl", "en-de", "en-fr"])
def test_the_translation_heads_of_a_real_model_are_those_that_were_stored(pair: str) -> None:
    step = stored("real-models")["steps"][f"ts-{pair}"]
    tokens, counts, heads, chrf = cells(pair.replace("-", "→"))
    assert tokens == f"{step['tokens']:,}" and step["examples"] == 200
    assert counts == "{} ({})".format(
        step["counts_above_chance"]["token_alignment"], step["counts"]["token_alignment"]
    )
    ranked = sorted(step["scores"], key=lambda row: row["rank"])[:8]
    assert heads == " · ".join(
        f"{row['layer']}.{row['head']} {row['above_chance']:.2f}" for row in ranked
    )
    check = step["baseline_check"][pair]["counts"]
    warned = "" if step["baseline_works"] else ", warned"
    assert chrf == f"{check['chrf']:.1f} ({check['chrf_of_copies']:.1f}){warned}"


def test_the_removal_of_a_real_model_is_the_stored_one() -> None:
    step = stored("real-models")["steps"]["loss-100"]

    def estimate(part: dict[str, float], p: float) -> str:
        text = f"{part['value']:+.2f} ({part['low']:.2f} to {part['high']:.2f}), {p:.2g}"
        return text.replace("-", "−")

    for column, ablate in enumerate(("zero", "mean")):
        rows = [row for row in step["conditions"] if row["ablate"] == ablate]
        (top,) = (row for row in rows if row["kind"] == "top")
        assert cells("selected |")[column] == f"{top['nll']:.3f}"
        for name, kind in (("random, mean", "random"), ("random, same", "random-layer-matched")):
            nll = [row["nll"] for row in rows if row["kind"] == kind]
            told = f"{sum(nll) / len(nll):.3f} ({min(nll):.3f} to {max(nll):.3f})"
            assert cells(name)[column] == told
        for name, kind in (
            ("first tokens", "linked"),
            ("later tokens", "linked_later"),
            ("unlinked tokens", "unlinked"),
            ("linked − unlinked", "linked_minus_unlinked"),
        ):
            part = top["classes"][kind]
            assert cells(name)[column] == estimate(part, part["p_draws"])
        for name, ending in (
            ("selected − random |", ""),
            ("selected − random, ", "_layer_matched"),
        ):
            part = estimate(top[f"against_random{ending}"], top[f"p_draws{ending}"])
            assert cells(name)[column].replace("p over draws ", "").startswith(part)


def test_the_time_of_the_readme_s_proof_is_the_stored_one() -> None:
    measured = stored("answer-gemma3")
    best, other = measured["answers"]["best"], measured["answers"]["next"]
    sentences, minutes = measured["asked"]["limit"], round(best["seconds"] / 60)
    said = f"With {sentences} sentences this takes {minutes} minutes on two cores"
    assert said in text(ROOT / "README.md")
    told, others = round(best["told_seconds"] / 60), round(other["seconds"] / 60)
    row = f"in {minutes} minutes on two cores, told {told} without loading; other heads in {others}"
    assert row in text(ROOT / "docs" / "figures.md")


def test_the_removal_of_a_real_model_by_text_is_the_stored_one() -> None:
    step = stored("real-models")["steps"]["text-k3"]
    for column, ablate in enumerate(("zero", "mean")):
        rows = [row for row in step["conditions"] if row["ablate"] == ablate]
        (top,) = (row for row in rows if row["kind"] == "top")
        assert cells("without the selected")[column] == f"{top['chrf']:.1f}"
        for name, kind in (
            ("without random ones (", "random"),
            ("without random ones, same", "random-layer-matched"),
        ):
            chrf = [row["chrf"] for row in rows if row["kind"] == kind]
            told = f"{sum(chrf) / len(chrf):.1f} ({min(chrf):.1f} to {max(chrf):.1f})"
            assert cells(name)[column] == told
        part = top["against_random"]
        told = f"{part['value']:+.1f} ({part['low']:.1f} to {part['high']:.1f}), "
        told = told.replace("-", "−") + f"{top['p_draws']:.2f}"
        assert cells("selected minus random")[column].replace("p over draws ", "") == told


def test_the_single_heads_of_a_real_model_are_the_stored_ones() -> None:
    step = stored("real-models")["steps"]["heads"]
    rows = {f"{row['layer']}.{row['head']}": row for row in step["scores"]}

    def number(value: float, digits: int = 3) -> str:
        return f"{value:.{digits}f}".replace("-", "−")

    for name in ("11.2", "0.2", "9.3", "4.1", "5.1", "2.3"):
        row = rows[name]
        change = f"{row['score']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
        others = [number(row[key]) for key in ("mean_ablation", "linked", "unlinked")]
        assert cells(f"{name} |")[:5] == [change, str(row["rank"]), *others]
    told = [row for row in REAL_MODELS.splitlines() if row.startswith("| 10.2, ")]
    names, changes, ranks, means = [cell.strip() for cell in told[0].strip("|").split("|")][:4]
    several = [rows[name] for name in names.split(", ")]
    assert changes == ", ".join(number(row["score"]) for row in several)
    places = [row["rank"] for row in several]
    assert ranks == f"{min(places)} to {max(places)}"
    by_mean = [row["mean_ablation"] for row in several]
    assert means == f"{number(max(by_mean))} to {number(min(by_mean))}"
    for title, other in (
        ("with the translation score |", "translation_score"),
        ("with score − chance |", "translation_score_above_chance"),
        ("with induction |", "induction"),
        ("with the previous-token score |", "previous_token"),
    ):
        (found,) = (
            row for row in step["correlations"] if (row["ablate"], row["with"]) == ("zero", other)
        )
        for cell, part in zip(cells(title), (found["all"], found["within_layers"]), strict=False):
            said = re.findall(r"−?\d+\.\d+", cell)
            values = [part[key] for key in ("value", "low", "high")]
            assert said == [
                number(value, len(text.partition(".")[2]))
                for value, text in zip(values, said, strict=True)
            ]
        assert cells(title)[2] == f"{found['p_within_layers']:.2f}"


def test_the_methods_of_a_real_model_share_the_stored_heads() -> None:
    steps = stored("real-models")["steps"]
    names = ("translation score", "single removal", "LAHIS", "induction", "retrieval", "previous")
    files = ("ts-en-es", "heads", "lahis", "induction-gemma3", "retrieval-gemma3")
    shared = {(row["a"], row["b"]): row for row in steps["methods-overlap"]["pairs"]}
    listed = steps["methods-overlap"]["pairs"][len(files) - 1]["b"]  # the previous-token heads
    rows = REAL_MODELS[REAL_MODELS.index("**Overlap of the 11") :].splitlines()[4:]
    for at, (name, row) in enumerate(zip(names[:-1], rows, strict=False)):
        first, *told = [cell.strip() for cell in row.strip("|").split("|")]
        assert first == name
        for column, cell in enumerate(told, start=1):
            pair = (files[at], (*files, listed)[column])
            assert cell.partition(" ")[0] == (
                str(shared[pair]["intersection"]) if column > at else ""
            )


def test_the_masks_of_a_real_model_are_the_stored_ones() -> None:
    steps = stored("real-models")["steps"]
    for column, task in enumerate(("present-past", "singular-plural")):
        rows = steps[f"mask-test-{task}"]["tasks"][task]["conditions"]
        named = {row["name"]: row for row in rows if row["draw"] is None}
        assert cells("heads kept")[column] == str(named["masked"]["kept"])
        for start, name in (
            ("NLL, original", "as is"),
            ("NLL, instructed", "instructed"),
            ("NLL, mask", "masked"),
        ):
            row, bounds = named[name], named[name]["intervals"]["nll"]
            assert cells(start)[column] == (
                f"{row['nll']:.2f} ({bounds['low']:.2f} to {bounds['high']:.2f})"
            )
        for start, kind in (
            ("NLL, shuffled masks |", "shuffled"),
            ("NLL, shuffled masks, same", "shuffled-layer-matched"),
        ):
            values = [row["nll"] for row in rows if row["kind"] == kind]
            mean = sum(values) / len(values)
            assert cells(start)[column] == f"{mean:.2f} ({min(values):.2f} to {max(values):.2f})"
        shuffled = [row["accuracy"] for row in rows if row["draw"] is not None]
        right = [named[name]["accuracy"] for name in ("as is", "instructed", "masked")]
        assert cells("right answers")[column] == " · ".join(
            f"{value:.0%}".replace("%", " %") for value in (*right, max(shuffled))
        )


@pytest.mark.parametrize("code", ["en", "de", "ru", "tr", "zh"])
def test_documents_of_a_real_model_are_rated_as_stored(code: str) -> None:
    steps = stored("real-models")["steps"]
    own, *random = (
        steps[name]["ranking"][code] for name in ("rate", "rate-random-0", "rate-random-1")
    )
    found = cells(f"{code} |")
    assert found[0] == f"{own['auc']:.2f} ({own['auc_low']:.2f} to {own['auc_high']:.2f})"
    assert found[1] == ", ".join(f"{one['auc']:.2f}" for one in random)
    assert found[2] == f"{own['precision']:.2f}"


def test_the_languages_of_a_real_model_are_the_stored_ones() -> None:
    step = stored("real-models")["steps"]["perplexity"]
    matrix = step["matrices"][0]
    assert matrix["role"] == "chosen" and matrix["heads_of"] == matrix["text_of"]
    for own, row in zip(matrix["heads_of"], matrix["change"], strict=True):
        *told, random, matched = cells(f"heads of {own} ")
        for text, cell, part in zip(matrix["text_of"], told, row, strict=True):
            interval = f" ({part['low']:.2f} to {part['high']:.2f})" if text == own else ""
            assert cell == f"{part['value']:.2f}{interval}"
        (removed,) = (
            one
            for one in step["languages"][own]["conditions"]
            if one["kind"] == "removed" and (one["of"], one["role"]) == (own, "chosen")
        )
        for cell, name in ((random, "random"), (matched, "random_layer_matched")):
            part = removed[name]
            assert cell == f"{part['mean']:.2f} ({part['low']:.2f} to {part['high']:.2f})"


def test_the_time_and_memory_of_every_step_is_told() -> None:
    for name, step in stored("real-models")["steps"].items():
        seconds, memory = cells(f"`{name}` ")
        assert seconds == f"{step['seconds']:,.0f}"
        bound = "" if "peak_bytes" in step else "at most "
        held = step.get("peak_bytes") or step["peak_bytes_at_most"]
        assert memory == f"{bound}{held / 1e9:.1f}"


def test_the_costs_of_smollm2_are_the_stored_ones() -> None:
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    told = page[page.index("On SmolLM2-135M") :].splitlines()[4:8]
    for row, (name, recipe) in zip(told, stored("costs-smollm2")["recipes"].items(), strict=True):
        numbers = f"{recipe['predicted']:.1f} | {recipe['measured']:.1f} | {recipe['ratio']:.2f}"
        assert row == f"| `{name}` | {numbers} |"
