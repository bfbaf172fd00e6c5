"""`headscope use export`: write a gate into a checkpoint or an adapter that others load."""

from __future__ import annotations

from headscope.results.export import ExportedModel
from headscope.studies.study import Study
from headscope.studies.use.export import UseExport, use_export

__all__ = ["command", "export_text"]


def export_text(result: ExportedModel) -> str:
    """What the terminal shows: what was written, how exact it is, and where it is."""
    gate, base, written, proof = result.gate, result.base, result.written, result.check
    kind = "checkpoint" if result.form == "checkpoint" else "(IA)³ adapter"
    size = f"{written.size / 1e6:,.1f} MB in {len(written.files)} file(s)"
    lines = [
        f"{kind} of {base.name}: {gate.heads} of {gate.of} heads multiplied, "
        f"{gate.removed} of them by 0; {size}"
    ]
    if gate.feed_forward:
        lines.append(f"feed-forward parts multiplied: {gate.feed_forward}")
    if proof is None:
        lines.append(f"not compared with the gated model: {result.check_note}")
    else:
        lines.append(
            f"largest difference to the gated model's logits: {proof.largest_difference:.3g} "
            f"(logits reach {proof.largest_logit:.3g}; the gate moves them by up to "
            f"{proof.untouched_difference:.3g}); same most likely token at "
            f"{proof.same_choice:.1%} of {proof.positions} positions"
        )
        if proof.proves_nothing:
            lines.append(
                f"this proves nothing: rounding alone may make a difference of "
                f"{proof.allowed:.3g}, and the gate makes none that is larger"
            )
    lines.append(f"licence: {base.license or 'not known; the model card says why'}")
    return "\n".join([*lines, f"written: {result.path}", f"run: {result.run}"])


command = Study(UseExport, use_export, export_text)
