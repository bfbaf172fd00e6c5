"""`headscope use rate`: what heads are worth on each document of a corpus."""

from __future__ import annotations

from headscope.cli.output import cell, one_line
from headscope.results.rating import RatedCorpus, RatingJob
from headscope.studies.study import Study
from headscope.studies.use.rate import UseRate, use_rate

__all__ = ["command"]


def _table(result: RatedCorpus | RatingJob) -> str:
    """Each language's documents and mean score, then what was left out and how fast it went."""
    if isinstance(result, RatingJob):
        state = "was submitted" if result.submitted else "is still at it"
        return (
            f"job {result.job} {state}: {result.chunks_done} of {result.chunks} chunks "
            f"done; its logs are in {result.logs}\n"
            f"run the same command again when it has ended\nrun: {result.run}"
        )
    lines = [f"{'language':<12}{'documents':>12}{'tokens':>15}{'mean score':>12}  95 % interval"]
    lines += [
        f"{one_line(code) or '-':<12}{scores.documents:>12}{scores.tokens:>15}"
        f"{scores.mean:>12.4f}  {scores.low:.4f} to {scores.high:.4f}"
        for code, scores in result.languages.items()
    ]
    figures = result.figures
    speed = cell(figures.tokens_per_second, ",.0f")
    lines.append(f"{figures.tokens} tokens, {speed} a second of scoring")
    if figures.rejected:
        lines.append(f"{figures.rejected} records not rated, see rejects.jsonl:")
        reasons = figures.reasons.items()
        lines += [f"  {count} because {one_line(reason)}" for reason, count in reasons]
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(UseRate, use_rate, _table)
