"""`headscope verify transfer`: which of two contradicting statements an answer follows."""

from __future__ import annotations

from headscope.cli.verify.writing import effects_table
from headscope.results.writing import Transfer
from headscope.studies.study import Study
from headscope.studies.verify.transfer import VerifyTransfer, verify_transfer

__all__ = ["command", "transfer_table"]

WORDS = {
    "follows_a": ("says A", 1, 100.0),
    "follows_b": ("says B", 1, 100.0),
    "neither": ("says neither", 1, 100.0),
    "ranked_a": ("A ranks above B", 1, 100.0),
}


def transfer_table(result: Transfer) -> str:
    """By pair: shares of answers in per cent, by text and by rank, with the tests."""
    lines = [
        f"answers in per cent; up: A's heads times {result.up:g}, down: B's heads times "
        f"{result.down:g}",
        *effects_table(result, WORDS),
        *(f"{code}: has no specific heads, so none are changed" for code in result.without_heads),
    ]
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(VerifyTransfer, verify_transfer, transfer_table)
