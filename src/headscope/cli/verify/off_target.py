"""`headscope verify off-target`: in which language a model writes without a language's heads."""

from __future__ import annotations

from headscope.cli.verify.writing import effects_table, leak_line, not_measured_lines
from headscope.results.writing import OffTarget
from headscope.studies.study import Study
from headscope.studies.verify.off_target import VerifyOffTarget, verify_off_target

__all__ = ["command", "off_target_table"]

WORDS = {"off_target": ("other language", 1, 100.0), "empty": ("empty", 1, 100.0)}


def off_target_table(result: OffTarget) -> str:
    """By language: the share of outputs in another one, with the tests; in per cent."""
    lines = [
        "outputs in another language than asked for, in per cent "
        f"({'translations' if result.ask == 'translate' else 'continued documents'})",
        *effects_table(result, WORDS),
    ]
    lines += [
        f"{code}: {heads.wanted} heads were asked for, {heads.available} are specific"
        for code, heads in result.too_few.items()
    ]
    lines += [f"{code}: no heads are known, so nothing is removed" for code in result.without_heads]
    lines += [*leak_line(result.leakage, "texts"), *not_measured_lines(result.not_measured)]
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(VerifyOffTarget, verify_off_target, off_target_table)
