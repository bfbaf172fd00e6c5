"""`headscope verify failures`: how translations fail that were good before."""

from __future__ import annotations

from typing import Any

from headscope.studies.study import Study
from headscope.studies.verify.failures import VerifyFailures, verify_failures

__all__ = ["command"]


def _table(result: dict[str, Any], examples: int = 3) -> str:
    """The shares, and the first cases of each kind with what decided."""
    of_run = result["condition"] is not None
    counted = f"{result['selected']} of {result['rows']} sentences" if of_run else "all rows"
    judge = result["judge"]
    lines = [f"{'kind':<18}{'share':>8}{'count':>7}" + (f"{'judge':>8}" if judge else "")]
    for kind, share in result["shares"].items():
        line = f"{kind:<18}{_share(share):>8}{result['counts'][kind]:>7}"
        lines.append(line + (f"{_share(judge['shares'][kind]):>8}" if judge else ""))
    lines.append(f"shares over {counted}" + (", good before and bad after" if of_run else ""))
    if judge:
        agree, invalid = _share(judge["agreement"]), judge["invalid"]
        lines.append(
            f"rules and judge agree on {agree} of {judge['answered']} cases; "
            f"{invalid} answers could not be read"
        )
    for kind in result["shares"]:
        chosen = [one for one in result["cases"] if one["kind"] == kind]
        for one in [one for one in chosen if one["selected"] or not of_run][:examples]:
            where = f"{one['direction']} {one['id']}" if one["direction"] else one["id"]
            lines.append(f"{kind}: {where}: {one['evidence']['because']}")
    return "\n".join([*lines, f"run: {result['run']}"])


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


command = Study(VerifyFailures, verify_failures, _table, loads=False)
