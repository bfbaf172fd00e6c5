"""`headscope verify removal`: what a model does without heads, beside as many random ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.cli.commands import Study
from headscope.cli.output import cell
from headscope.recipes.verify.removal import VerifyRemoval, verify_removal

__all__ = ["command", "removal_table"]

#: What a draw has in common with the chosen heads that it stands beside.
SAME = ("k", "gate", "ablate")


def removal_table(result: Mapping[str, Any]) -> str:
    """The conditions, the tests of each chosen set, what is not known, and the run's folder.

    Random draws are given as their mean, with the lowest and highest figure of a draw.
    """
    measures = result.get("measures", ["text"])
    lines = _texts(result) if "text" in measures else []
    if "loss" in measures:
        lines += _losses(result, "_loss" if "text" in measures else "")
    lines += _remarks(result)
    return "\n".join([*lines, f"run: {result['run']}"])


def _texts(result: Mapping[str, Any]) -> list[str]:
    """The translations under every condition, and the tests of chrF++."""
    rows = [one for one in result["conditions"] if "chrf" in one]
    lines = [_line("", "k", "gate", "chrF++", "change", "95 % interval", "BLEU", "off", "copy")]
    base = result["baseline"]
    interval = f"{cell(base['low'], '.1f')} to {cell(base['high'], '.1f')}"
    lines.append(_row("as is", "", "", base, "", f"chrF++ {interval}"))
    for top in (one for one in rows if one["kind"] == "top"):
        change = top["change"]["chrf"]
        bounds = f"{_signed(change['low'])} to {_signed(change['high'])}"
        at = top["k"], f"{top['gate']:g}"
        mean = ", mean" if top["ablate"] == "mean" else ""
        lines.append(_row(f"chosen{mean}", *at, top, _signed(change["value"]), bounds))
        for kind, words in (("random", "random"), ("random-layer-matched", "same layers")):
            draws = [
                one
                for one in rows
                if one["kind"] == kind and all(one[name] == top[name] for name in SAME)
            ]
            if draws:
                lines.append(_mean_row(words, *at, draws, base))
    return lines + [_tests(one, result["draws"]) for one in rows if one["kind"] == "top"]


#: How the parts of the losses are called, in the order of the table.
CLASSES = {
    "linked": "linked words, first token",
    "linked_later": "linked words, later tokens",
    "unlinked": "unlinked tokens",
    "linked_minus_unlinked": "first of linked - unlinked",
}


def _losses(result: Mapping[str, Any], ending: str) -> list[str]:
    """The NLL of the references under every condition, its tests, and the kinds of tokens."""
    base = result["baseline"]
    tokens = sum(result["reference_tokens"].values())
    lines = [
        f"NLL of the reference, nats a token ({result['sentences']} sentences, {tokens} tokens)",
        _loss_line("", "k", "gate", "NLL", "change", "95 % interval"),
        _loss_line("original", "", "", f"{base['nll']:.3f}", "",
                   f"NLL {base['nll_low']:.3f} to {base['nll_high']:.3f}"),
    ]  # fmt: skip
    for top in (one for one in result["conditions"] if one["kind"] == "top"):
        at = str(top["k"]), f"{top['gate']:g}"
        change = top["change"]["nll"]
        words = "selected, mean" if top["ablate"] == "mean" else "selected"
        lines.append(_loss_line(words, *at, f"{top['nll']:.3f}", *_spread(change)))
        tests = []
        for kind, words, matched in (
            ("random", "random", ""),
            ("random-layer-matched", "random, same layers", "_layer_matched"),
        ):
            draws = [
                one["nll"]
                for one in result["conditions"]
                if one["kind"] == kind and all(one[name] == top[name] for name in SAME)
            ]
            if draws:
                mean = sum(draws) / len(draws)
                span = f"{len(draws)} draws, {min(draws):.3f} to {max(draws):.3f}"
                lines.append(
                    _loss_line(words, *at, f"{mean:.3f}", f"{mean - base['nll']:+.3f}", span)
                )
                tests += _loss_tests(top, words, matched, ending)
        lines += tests
    return lines


def _loss_tests(top: Mapping[str, Any], words: str, matched: str, ending: str) -> list[str]:
    """Selected - random of all tokens and of each kind, with intervals and p-values."""
    whole = {
        **top[f"against_random{matched}{ending}"],
        "p_sentences": top[f"p_sentences{matched}{ending}"],
        "p_draws": top[f"p_draws{matched}{ending}"],
    }
    sets, least = (top[f"{name}{matched}{ending}"] for name in ("distinct_draws", "least_p"))
    least = f"{sets} different sets, p over draws at least {least:.4g}"
    rows = {"all tokens": whole, **{n: top[f"classes{matched}"][k] for k, n in CLASSES.items()}}
    lines = [f"selected - {words}, {top['k']} heads at gate {top['gate']:g} ({least}):"]
    for name, one in rows.items():
        if one["value"] is None:
            lines.append(f"  {name:<28}-  (no such tokens)")
            continue
        value, bounds = _spread(one)
        lines.append(
            f"  {name:<28}{value:>8}  {bounds:<20}  p {cell(one['p_sentences'], '.4g')} over "
            f"sentences, {cell(one['p_draws'], '.4g')} over draws"
        )
    return lines


def _spread(one: Mapping[str, Any]) -> tuple[str, str]:
    """A change of NLL and its interval."""
    low, high = (cell(one[name], "+.3f") for name in ("low", "high"))
    return f"{one['value']:+.3f}", f"{low} to {high}"


def _loss_line(words: str, k: str, gate: str, nll: str, change: str, span: str) -> str:
    return f"{words:<20}{k:>4}{gate:>6}{nll:>8}{change:>8}  {span}".rstrip()


def _mean_row(
    words: str, k: int, gate: str, draws: list[Mapping[str, Any]], base: Mapping[str, Any]
) -> str:
    names = ("chrf", "bleu", "off_target", "source_copy")
    mean = {name: _mean([one[name] for one in draws]) for name in names}
    change = None if mean["chrf"] is None else mean["chrf"] - base["chrf"]
    scores = [one["chrf"] for one in draws if one["chrf"] is not None]
    span = f"draws {min(scores):.1f} to {max(scores):.1f}" if scores else ""
    return _row(words, k, gate, mean, _signed(change), span)


def _row(words: str, k: int | str, gate: str, of: Mapping[str, Any], change: str, span: str) -> str:
    rates = (cell(of["off_target"], ".1%"), cell(of["source_copy"], ".1%"))
    return _line(
        words, k, gate, cell(of["chrf"], ".1f"), change, span, cell(of["bleu"], ".1f"), *rates
    )


def _line(*cells: object) -> str:
    words, k, gate, chrf, change, span, bleu, off, copy = map(str, cells)
    row = f"{words:<12}{k:>4}{gate:>6}{chrf:>8}{change:>8}  {span:<20}{bleu:>7}{off:>8}{copy:>8}"
    return row.rstrip()


def _tests(top: Mapping[str, Any], draws: int) -> str:
    """The p-values of one set: over sentences and over draws, free and layer-matched."""
    parts = []
    for words, ending in (("random", ""), ("same layers", "_layer_matched")):
        by_sentence, by_draw = top[f"p_sentences{ending}"], top[f"p_draws{ending}"]
        different = top[f"distinct_draws{ending}"]
        if 0 < different < draws:
            words += f" ({different} different {'set' if different == 1 else 'sets'})"
        if by_sentence is not None:
            parts.append(
                f"against {words} {cell(by_sentence, '.4g')} over sentences, "
                f"{cell(by_draw, '.4g')} over draws"
            )
    told = "; ".join(parts) or "not tested"
    mean = ", mean ablation" if top["ablate"] == "mean" else ""
    return f"p, {top['k']} heads at gate {top['gate']:g}{mean}: {told}"


def _remarks(result: Mapping[str, Any]) -> list[str]:
    lines = []
    leak = result["leakage"]
    if not leak["known"]:
        lines.append("whether the heads were found on these sentences is not known")
    elif leak["overlap"]:
        lines.append(f"{leak['overlap']} of {leak['of']} test pairs are among what the heads were "
                     "found on")  # fmt: skip
    if result["pool_note"]:
        lines.append(str(result["pool_note"]))
    lines += _filled_up(result)
    missing = [f"{name}: {why}" for name, why in result.get("not_measured", {}).items()]
    return [*lines, *(f"not measured, {one}" for one in missing)]


def _filled_up(result: Mapping[str, Any]) -> list[str]:
    """Which random draws hold heads from elsewhere than asked for; those draws are much alike."""
    lines = []
    for kind, words, where in (
        ("random", "random", "are token alignment heads, for want of others"),
        (
            "random-layer-matched",
            "same layers",
            "come from other layers or are token alignment heads",
        ),
    ):
        for k in result["k"]:
            draws = [
                one
                for one in result["conditions"]
                if (one["kind"], one["k"], one["gate"]) == (kind, k, result["gates"][0])
                and one["ablate"] == result["ablate"]
            ]
            most = max((one["filled_up"] for one in draws), default=0)
            if most:
                alike = len(set.intersection(*(set(one["heads"]) for one in draws)))
                lines.append(
                    f"{words}, {k} heads: up to {most} heads of a draw {where}"
                    + (f"; all {len(draws)} draws share {alike}" if len(draws) > 1 else "")
                )
    return lines


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"


command = Study(VerifyRemoval, verify_removal, removal_table)
