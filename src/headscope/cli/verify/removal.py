"""`headscope verify removal`: what a model does without heads, beside as many random ones."""

from __future__ import annotations

from statistics import fmean

from headscope.cli.output import cell
from headscope.estimates import Estimate
from headscope.results.removal import (
    Case,
    Condition,
    Kind,
    RemovalResult,
    Tested,
    Texts,
    shared_heads,
)
from headscope.studies.study import Study
from headscope.studies.verify.removal import VerifyRemoval, verify_removal

__all__ = ["command", "removal_table"]

#: Random draws as tables of texts and of losses name them.
DRAWN: dict[Kind, str] = {"random": "random", "random-layer-matched": "same layers"}
LOSS_DRAWN: dict[Kind, str] = {
    "random": "random",
    "random-layer-matched": "random, same layers",
}
#: What it says where draws of a kind hold heads from elsewhere than asked for.
FILLED_UP: dict[Kind, str] = {
    "random": "are token alignment heads, for want of others",
    "random-layer-matched": "come from other layers or are token alignment heads",
}


def removal_table(result: RemovalResult) -> str:
    """The conditions, the tests of each chosen set, what is not known, and the run's folder.

    Random draws are given as their mean, with the lowest and highest figure of a draw.
    """
    lines = _texts(result) + _losses(result) + _remarks(result)
    return "\n".join([*lines, f"run: {result.run}"])


def _texts(result: RemovalResult) -> list[str]:
    """The translations under every condition, and the tests of chrF++."""
    base = result.baseline.text
    if base is None:
        return []
    lines = [_line("", "k", "gate", "chrF++", "change", "95 % interval", "BLEU", "off", "copy")]
    interval = f"{cell(base.low, '.1f')} to {cell(base.high, '.1f')}"
    lines.append(_row("as is", "", "", base, "", f"chrF++ {interval}"))
    for case in result.cases:
        top, change = case.top, case.top.change.chrf
        at = str(top.label.k), f"{top.label.gate:g}"
        words = "chosen, mean" if top.label.ablate == "mean" else "chosen"
        lines.append(_row(words, *at, top.text, *_spread(change, "+.1f")))
        for kind, words in DRAWN.items():
            if drawn := [one.text for one in case.draws(kind) if one.text is not None]:
                lines.append(_mean_row(words, *at, drawn, base.chrf))
    return lines + [_tests(case, result.draws) for case in result.cases]


def _losses(result: RemovalResult) -> list[str]:
    """The NLL of the references under every condition, its tests, and the kinds of tokens."""
    base, tokens = result.baseline.loss, result.reference_tokens
    if base is None or tokens is None:
        return []
    lines = [
        f"NLL of the reference, nats a token ({result.sentences} sentences, {tokens.total} tokens)",
        _loss_line("", "k", "gate", "NLL", "change", "95 % interval"),
        _loss_line("original", "", "", f"{base.nll:.3f}", "",
                   f"NLL {base.nll_low:.3f} to {base.nll_high:.3f}"),
    ]  # fmt: skip
    for case in result.cases:
        top = case.top
        if top.loss is None:
            continue
        at = str(top.label.k), f"{top.label.gate:g}"
        words = "selected, mean" if top.label.ablate == "mean" else "selected"
        lines.append(
            _loss_line(words, *at, f"{top.loss.nll:.3f}", *_spread(top.change.nll, "+.3f"))
        )
        tests = []
        for kind, words in LOSS_DRAWN.items():
            if draws := case.nll(kind):
                mean = fmean(draws)
                span = f"{len(draws)} draws, {min(draws):.3f} to {max(draws):.3f}"
                lines.append(_loss_line(words, *at, f"{mean:.3f}", f"{mean - base.nll:+.3f}", span))
                tests += _loss_tests(top, kind)
        lines += tests
    return lines


def _loss_tests(top: Condition, kind: Kind) -> list[str]:
    """Selected - random of all tokens and of each kind, with intervals and p-values."""
    than, kinds = top.loss_than(kind), top.kinds_than(kind)
    if than is None or kinds is None:
        return []
    least = f"{than.distinct} different sets, p over draws at least {cell(than.least_p, '.4g')}"
    rows = {
        "all tokens": Tested.told(than),
        "linked words, first token": kinds.linked,
        "linked words, later tokens": kinds.linked_later,
        "unlinked tokens": kinds.unlinked,
        "first of linked - unlinked": kinds.linked_minus_unlinked,
    }
    at = f"{top.label.k} heads at gate {top.label.gate:g}"
    lines = [f"selected - {LOSS_DRAWN[kind]}, {at} ({least}):"]
    for name, test in rows.items():
        if not test.known:
            lines.append(f"  {name:<28}-  (no such tokens)")
            continue
        value, bounds = _spread(test, "+.3f")
        lines.append(
            f"  {name:<28}{value:>8}  {bounds:<20}  p {cell(test.p_sentences, '.4g')} over "
            f"sentences, {cell(test.p_draws, '.4g')} over draws"
        )
    return lines


def _spread(change: Estimate | None, form: str) -> tuple[str, str]:
    """A change and its interval."""
    change = change or Estimate()
    return cell(change.value, form), f"{cell(change.low, form)} to {cell(change.high, form)}"


def _loss_line(words: str, k: str, gate: str, nll: str, change: str, span: str) -> str:
    return f"{words:<20}{k:>4}{gate:>6}{nll:>8}{change:>8}  {span}".rstrip()


def _mean_row(words: str, k: str, gate: str, draws: list[Texts], base: float | None) -> str:
    mean = Texts(
        chrf=_mean([one.chrf for one in draws]),
        bleu=_mean([one.bleu for one in draws]),
        off_target=_mean([one.off_target for one in draws]),
        source_copy=_mean([one.source_copy for one in draws]),
    )
    change = None if mean.chrf is None or base is None else mean.chrf - base
    scores = [one.chrf for one in draws if one.chrf is not None]
    span = f"draws {min(scores):.1f} to {max(scores):.1f}" if scores else ""
    return _row(words, k, gate, mean, cell(change, "+.1f"), span)


def _row(words: str, k: str, gate: str, of: Texts | None, change: str, span: str) -> str:
    of = of or Texts()
    rates = (cell(of.off_target, ".1%"), cell(of.source_copy, ".1%"))
    return _line(words, k, gate, cell(of.chrf, ".1f"), change, span, cell(of.bleu, ".1f"), *rates)


def _line(*cells: object) -> str:
    words, k, gate, chrf, change, span, bleu, off, copy = map(str, cells)
    row = f"{words:<12}{k:>4}{gate:>6}{chrf:>8}{change:>8}  {span:<20}{bleu:>7}{off:>8}{copy:>8}"
    return row.rstrip()


def _tests(case: Case, draws: int) -> str:
    """The p-values of one set: over sentences and over draws, free and layer-matched."""
    parts = []
    for kind, words in DRAWN.items():
        than = case.top.than(kind)
        if than is None or than.p_examples is None:
            continue
        if 0 < than.distinct < draws:
            sets = "set" if than.distinct == 1 else "sets"
            words = f"{words} ({than.distinct} different {sets})"
        parts.append(
            f"against {words} {cell(than.p_examples, '.4g')} over sentences, "
            f"{cell(than.p_draws, '.4g')} over draws"
        )
    told, label = "; ".join(parts) or "not tested", case.top.label
    mean = ", mean ablation" if label.ablate == "mean" else ""
    return f"p, {label.k} heads at gate {label.gate:g}{mean}: {told}"


def _remarks(result: RemovalResult) -> list[str]:
    lines = []
    leak = result.leakage
    if leak is None or not leak.known:
        lines.append("whether the heads were found on these sentences is not known")
    elif leak.overlap:
        lines.append(f"{leak.overlap} of {leak.of} test pairs are among what the heads were "
                     "found on")  # fmt: skip
    if result.pool_note:
        lines.append(result.pool_note)
    lines += _filled_up(result)
    missing = {} if result.measuring is None else result.measuring.not_measured
    return [*lines, *(f"not measured, {name}: {why}" for name, why in missing.items())]


def _filled_up(result: RemovalResult) -> list[str]:
    """Which random draws hold heads from elsewhere than asked for; those draws are much alike."""
    lines = []
    for kind, where in FILLED_UP.items():
        for k in result.k:
            case = result.case(k, *result.main[1:])
            draws = [] if case is None else [one for one in case.beside if one.label.kind == kind]
            most = max((one.filled_up or 0 for one in draws), default=0)
            if most:
                alike = shared_heads(draws)
                lines.append(
                    f"{DRAWN[kind]}, {k} heads: up to {most} heads of a draw {where}"
                    + (f"; all {len(draws)} draws share {alike}" if len(draws) > 1 else "")
                )
    return lines


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


command = Study(VerifyRemoval, verify_removal, removal_table)
