"""`headscope compare states`: do a mask and an instruction lead through the same hidden states?"""

from __future__ import annotations

from headscope.results.states import ComparedStates
from headscope.studies.compare.states import CompareStates, compare_states
from headscope.studies.study import Study


def _table(result: ComparedStates) -> str:
    """Cosines with the instructed model, and what the lens shows, layer by layer."""
    states = result.states
    pairs = {(pair.a, pair.b): pair.after_layer for pair in states.pairs}
    columns = [
        ("as is", pairs["as is", "instructed"]),
        ("masked", pairs["instructed", "masked"]),
        *((control.kind.replace("_", " "), control.after_layer) for control in states.controls),
    ]
    shown = result.lens.conditions
    lines = [
        f"cosine with the instructed model after each layer, {states.samples} samples",
        "layer  "
        + "  ".join(f"{name:>18}" for name, _ in columns)
        + "   as is / instructed / masked",
    ]
    for layer in range(states.layers):
        numbers = "  ".join(f"{rows[layer].mean:>18.3f}" for _, rows in columns)
        says = " / ".join(
            repr(shown[name][layer + 1].tokens[0]) for name in ("as is", "instructed", "masked")
        )
        lines.append(f"{layer:>5}  {numbers}   {says}")
    nearer = states.nearer["as is"].later_half
    lines.append(
        f"later half of the layers: cosine to instructed, masked minus as is: "
        f"{nearer.mean:+.3f} ({nearer.low:+.3f} to {nearer.high:+.3f})"
    )
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(CompareStates, compare_states, _table)
