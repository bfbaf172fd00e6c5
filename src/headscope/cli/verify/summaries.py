"""`headscope verify summaries`: what a model writes without heads that all languages share."""

from __future__ import annotations

from headscope.cli.verify.writing import effects_table, leak_line, not_measured_lines
from headscope.results.writing import Summaries
from headscope.studies.study import Study
from headscope.studies.verify.summaries import VerifySummaries, verify_summaries

__all__ = ["command", "summaries_table"]

WORDS = {
    "rouge_l": ("ROUGE-L", 1, 1.0),
    "chrf": ("chrF++", 1, 1.0),
    "bert_score": ("BERTScore", 1, 1.0),
    "off_target": ("other language", 1, 100.0),
}


def summaries_table(result: Summaries) -> str:
    """By language and measure: as is, without the heads, without random ones, and the tests."""
    task = "repeating sentences" if result.task == "repeat" else "summaries"
    title = f"{task}, general heads {','.join(result.heads)} at gate {result.gate:g}"
    lines = [title, *effects_table(result, WORDS)]
    if cut := sum(result.cut.values()):
        lines.append(f"texts cut to fit the context: {cut}")
    lines += [*leak_line(result.leakage, "texts"), *not_measured_lines(result.not_measured)]
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(VerifySummaries, verify_summaries, summaries_table)
