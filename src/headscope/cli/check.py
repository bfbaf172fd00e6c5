"""`headscope check`: does headscope run on this model?"""

from __future__ import annotations

import time
from functools import partial

from headscope.cli import old_options as options
from headscope.cli.output import emit, progress
from headscope.errors import InputError


def check(
    model: options.ModelName = "pocket",
    revision: options.Revision = None,
    device: options.Device = None,
    dtype: options.Dtype = "float32",
    device_map: options.DeviceMap = None,
    max_memory: options.MaxMemory = None,
    offload_folder: options.OffloadFolder = None,
    quantise: options.Quantise = None,
    tokenizer: options.Tokenizer = None,
    as_json: options.AsJson = False,
) -> None:
    """Load a model and compare gates and peaks with slow references: does it run here?

    A few forward passes for each head; peaks are best compared in float32.
    """
    started = time.monotonic()
    from headscope.cli.models import hide_loading_bars
    from headscope.lm import load
    from headscope.lm.matrix import as_markdown, check_model
    from headscope.lm.placement import memory_limits
    from headscope.runs import Signature

    hide_loading_bars()
    with progress() as update:
        lm = load(
            model,
            revision,
            device,
            dtype,
            device_map,
            max_memory=memory_limits(max_memory or ()) or None,
            offload_folder=offload_folder,
            quantise=quantise,
            tokenizer=tokenizer,
        )
        report = check_model(lm, progress=partial(update, "comparing with slow references"))
    settings = {"dtype": str(lm.dtype), "quantised": lm.quantised}
    key = Signature.of("check", settings, {"model": lm.digest})
    result = {
        "signature": str(key),
        "run": None,
        "seconds": time.monotonic() - started,
        "model": lm.name,
        "revision": lm.revision,
        "layers": lm.geometry.layers,
        "total_heads": lm.geometry.total,
        "passed": report.passed,
        "noise": None if lm.noise is None else lm.noise.largest,
        "report": report,
    }
    verdict = "runs as it should" if report.passed else "does not pass"
    if lm.noise is not None and lm.noise.largest:
        verdict += (
            f"\nRepeated passes differ by up to {lm.noise.largest:.2g} standard deviations of the "
            "logits, so a gate of ones was held to that and not to equal bits."
        )
    emit(
        result,
        as_json,
        f"{as_markdown([report]).rstrip()}\n\n{model}: {lm.geometry.total} query heads in "
        f"{lm.geometry.layers} layers; {verdict}",
    )
    if not report.passed:
        raise InputError(
            f"{model}: gates or peaks differ from the slow reference, so results on this model "
            "would be wrong; try --dtype float32, or another model"
        )


command = check
