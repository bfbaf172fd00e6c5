"""`headscope verify perplexity`: each language's text without each language's heads."""

from __future__ import annotations

from headscope.results.language_texts import Level, Matrix, TextWithoutHeads, WithoutHeads
from headscope.studies.study import Study
from headscope.studies.verify.perplexity import VerifyPerplexity, verify_perplexity

__all__ = ["command"]


def _table(result: TextWithoutHeads) -> str:
    """Each language's text as is and without heads, then each matrix with its answer."""
    lines = [
        f"{'text':<8}{'removed':<22}{'heads':>6}{'ppl':>9}{'published':>11}{'NLL':>9}"
        f"{'change':>9}  {'95 % interval':<20}{'random':>9}{'p_docs':>9}{'p_draws':>9}"
    ]
    for name, text in result.languages.items():
        lines.append(_line(name, "nothing", text.baseline))
        for row in text.removed:
            lines.append(_line(name, _removed(row, name, result.ranked), row))
    for matrix in result.matrices:
        lines += ["", *_matrix(matrix, result.ranked)]
    lines += [f"{name} has no specific heads, so none are removed" for name in result.empty]
    lines += [result.pool_note] if result.pool_note else []
    if not result.leakage.known:
        lines.append("whether the heads were found on these documents is not known")
    return "\n".join([*lines, f"run: {result.run}"])


def _removed(row: WithoutHeads, name: str, ranked: bool) -> str:
    if row.role == "full":
        return "most important"
    if row.of != name:
        return row.of
    return "specific heads" if ranked else "its heads"


def _line(name: str, words: str, level: Level) -> str:
    size, change, span, random, tests = "", "", "", "", ("", "")
    if isinstance(level, WithoutHeads):
        size, change = str(level.size), f"{level.change.value:.4f}"
        span = f"{level.change.low:.4f} to {level.change.high:.4f}"
        random = "" if level.random is None else f"{level.random.mean:.4f}"
        if (against := level.against_random) is not None:
            tests = _p(against.p_examples), _p(against.p_draws)
    return (
        f"{name:<8}{words:<22}{size:>6}{level.perplexity.value:>9.3f}"
        f"{level.published_perplexity.value:>11.3f}{level.nll.value:>9.4f}"
        f"{change:>9}  {span:<20}{random:>9}{tests[0]:>9}{tests[1]:>9}"
    ).rstrip()


def _matrix(matrix: Matrix, ranked: bool) -> list[str]:
    role = "most important heads" if matrix.role == "full" else "heads"
    role = "specific heads" if matrix.role == "chosen" and ranked else role
    title = f"change of NLL, {role} of (rows, k = {matrix.k}), text of (columns)"
    lines = [title, " " * 8 + "".join(f"{name:>9}" for name in matrix.text_of)]
    for name, row in zip(matrix.heads_of, matrix.change, strict=True):
        lines.append(f"{name:<8}" + "".join(f"{cell.value:>9.4f}" for cell in row))
    answer = matrix.answer
    if answer is not None:
        lines.append(
            f"own text rises most: {answer.own_rises_most} of {answer.languages} languages "
            f"({answer.own_rises_most_surely} surely)"
        )
        if answer.above_random is not None:
            lines.append(
                f"own text rises more than without random heads: {answer.above_random} of "
                f"{answer.languages} ({answer.above_random_surely} surely)"
            )
    return lines


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


command = Study(VerifyPerplexity, verify_perplexity, _table)
