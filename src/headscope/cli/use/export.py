"""`headscope use export`: write a gate into a checkpoint or an adapter that others load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import emit, progress
from headscope.cli.use.gates import gate_choice

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice
    from headscope.recipes.use.gates import GateChoice

__all__ = ["export", "export_text"]

FormName = Literal["checkpoint", "ia3"]


@taking(model=model_choice, choice=gate_choice)
def export(
    model: ModelChoice,
    *,
    choice: GateChoice,
    form: Annotated[
        FormName,
        Option(
            "--as",
            help="An ordinary checkpoint, or an (IA)³ adapter that stock PEFT loads around the "
            "base model.",
        ),
    ] = "checkpoint",
    max_shard_size: Annotated[
        str,
        Option("--max-shard-size", metavar="SIZE", help="Of a weight file, such as 500MB or 5GB."),
    ] = "5GB",
    dequantise: Annotated[
        bool,
        Option(
            "--dequantise",
            help="Write a quantised model as an ordinary one; the quantised one is loaded for it.",
        ),
    ] = False,
    check: Annotated[
        bool,
        Option(
            "--check/--no-check",
            help="Load what was written and compare its logits with those of the gated model.",
        ),
    ] = True,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a model with its gate folded in, which then needs nothing of headscope.

    A checkpoint is written tensor by tensor and never loaded for it, whatever its size. Tokenizer,
    settings and licence go along, and the model card says what was done.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.use.export import UseExport, use_export

    hide_loading_bars()
    config = UseExport(choice, model, form, max_shard_size, dequantise, check)
    with progress() as update:
        result = use_export(config, out, update)
    emit(result, as_json, export_text(result))


def export_text(result: Mapping[str, Any]) -> str:
    """What the terminal shows: what was written, how exact it is, and where it is."""
    gate, base, proof = result["gate"], result["base"], result["check"]
    kind = "checkpoint" if result["as"] == "checkpoint" else "(IA)³ adapter"
    size = f"{result['bytes'] / 1e6:,.1f} MB in {len(result['files'])} file(s)"
    lines = [
        f"{kind} of {base['name']}: {gate['heads']} of {gate['of']} heads multiplied, "
        f"{gate['removed']} of them by 0; {size}"
    ]
    if gate["feed_forward"]:
        lines.append(f"feed-forward parts multiplied: {gate['feed_forward']}")
    if proof is None:
        lines.append(f"not compared with the gated model: {result['check_note']}")
    else:
        lines.append(
            f"largest difference to the gated model's logits: {proof['largest_difference']:.3g} "
            f"(logits reach {proof['largest_logit']:.3g}; the gate moves them by up to "
            f"{proof['untouched_difference']:.3g}); same most likely token at "
            f"{proof['same_choice']:.1%} of {proof['positions']} positions"
        )
        if proof["untouched_difference"] <= proof["allowed"]:
            lines.append(
                f"this proves nothing: rounding alone may make a difference of "
                f"{proof['allowed']:.3g}, and the gate makes none that is larger"
            )
    lines.append(f"licence: {base['license'] or 'not known; the model card says why'}")
    return "\n".join([*lines, f"written: {result['path']}", f"run: {result['run']}"])


command = export
