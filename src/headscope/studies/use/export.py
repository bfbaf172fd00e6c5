"""Write a gate into an ordinary checkpoint or a stock adapter, and prove what was written."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from headscope.errors import InputError, OptionalPart
from headscope.heads import Head, about_rank
from headscope.heads.adaptation import Adaptation
from headscope.heads.geometry import spelled
from headscope.heads.hub import exists
from headscope.progress import Progress
from headscope.results.adapt import AppliedGate, GateNumbers
from headscope.results.common import Ranking
from headscope.results.export import (
    ExportBase,
    ExportedAdapter,
    ExportedFiles,
    ExportedHead,
    ExportedModel,
    ExportProof,
    UnloadedModel,
)
from headscope.runs import Run, carry_out, decode, encode
from headscope.settings import UNSIGNED, Option, Settings
from headscope.shown.blocks import (
    Bars,
    Block,
    HeadMaps,
    NotMeasured,
    Section,
    Shown,
    Table,
    one_column,
)
from headscope.shown.words import count, number, percent
from headscope.studies.models import ModelChoice, about_model, model_inputs, model_provenance
from headscope.studies.shows import model_facts
from headscope.studies.study import Study
from headscope.studies.use.adapters import one_a_head, read_sets, removing, together
from headscope.studies.use.gates import GateChoice, about, factors_section

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel
    from headscope.use.exporting.card import Base
    from headscope.use.exporting.proof import ProofReference
    from headscope.use.exporting.pruning import Pruning

COMMAND = "use export"
FORMS = {
    "checkpoint": "an ordinary checkpoint",
    "pruned": "a smaller checkpoint",
    "ia3": "an (IA)\u00b3 adapter",
    "lora": "a LoRA adapter",
}
#: Files and tensors that are named.
NAMED = 4
NOTES = {
    "checkpoint": "The factors are in the attention output projections; headscope is not needed to "
    "load it",
    "pruned": "Whole groups of removed heads are taken out, other factors are in the attention "
    "output projections; headscope is not needed to load it. Heads are counted anew",
    "ia3": "The factors are vectors before the attention output projections; stock PEFT loads them "
    "around the base model, whose weights are not changed",
    "lora": "What is added to the attention output projections; stock PEFT and servers load it "
    "around the base model, whose weights are not changed. At scale s heads are multiplied by "
    "1 + s (g - 1)",
}
Form = Literal["checkpoint", "pruned", "ia3", "lora"]
#: Those that are models by themselves.
WHOLE = ("checkpoint", "pruned")
SEVERAL = "adapters"
WRITTEN = "written"


@dataclass(frozen=True)
class UseExport(Settings):
    """Write a model with its gate folded into the weights, to be used without headscope.

    A checkpoint is written tensor by tensor and never loaded, whatever its size. Tokenizer,
    settings and licence are copied, and the model card says what was done.
    """

    # Heads without a number to multiply them by are removed.
    gate: GateChoice
    # Its device and dtype are those of the comparison alone.
    model: ModelChoice = field(default_factory=ModelChoice)
    form: Annotated[
        Form,
        Option(
            "An ordinary checkpoint; a smaller one without those groups of heads that are removed "
            "whole in every layer; or an adapter that stock PEFT loads around the base model: "
            "(IA)³, or LoRA, which servers load too.",
            flag="--as",
        ),
    ] = "checkpoint"
    max_shard_size: Annotated[
        str, Option("Of a weight file, such as 500MB or 5GB.", metavar="SIZE", panel="Expert")
    ] = "5GB"
    # Always so for a GGUF file.
    dequantise: Annotated[
        bool,
        Option("Write a quantised model as an ordinary one; the quantised one is loaded for it."),
    ] = False
    check: Annotated[
        bool,
        Option(
            "Load what was written and compare its logits with those of the gated model.",
            flag="--prove/--no-prove",
            panel="Expert",
        ),
    ] = True
    # What the following four change is in the signature of a LoRA export alone.
    one_a_head: Annotated[
        bool, Option("With --as lora: an adapter for each head, which a server mixes.")
    ] = field(default=False, metadata=UNSIGNED)
    sets: Annotated[
        tuple[str, ...],
        Option(
            "With --as lora, instead of --heads and --gate: heads or a gate for an adapter of this "
            "name; repeatable.",
            flag="--set",
            metavar="NAME=HEADS",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    rank_limit: Annotated[
        int | None,
        Option(
            "With --as lora: the largest rank that may be written.",
            metavar="N",
            min=1,
            panel="Expert",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    gguf: Annotated[
        bool,
        Option("With --as lora: also write adapter.gguf for llama.cpp; always so for a GGUF file."),
    ] = field(default=False, metadata=UNSIGNED)

    def parts(self) -> Iterator[OptionalPart]:
        """What adapters are compared and written with, too."""
        from headscope.use.exporting.lora import LLAMA_CPP
        from headscope.use.exporting.proof import PEFT

        yield from super().parts()
        if self.form not in WHOLE and self.check:
            yield PEFT
        if self.gguf:
            yield LLAMA_CPP


def use_export(
    config: UseExport, out: Path | None = None, progress: Progress | None = None
) -> ExportedModel:
    """Export and return the command's result; a run that was stopped goes on.

    The run holds `checkpoint/`, `adapter/` or a folder for each of `adapters/`, which anything that
    reads such folders takes as it is, and `gate/`, the gate on heads. The model is not loaded to
    write it, unless its weights are quantised; to compare, it is loaded first and the export after
    it, one at a time.

    Raises:
        InputError: if the gate does not fit the model or cannot be folded into it, the checkpoint
            cannot be read, or the export's logits are not those of the gated model.
    """
    from headscope.lm.checkpoints import read_config, resolve, tokenizer_of, weight_files
    from headscope.lm.gguf import is_gguf
    from headscope.lm.hollow import hollow_model, without_products
    from headscope.lm.loading import place_of
    from headscope.use.exporting.card import read_base
    from headscope.use.exporting.checkpoint import (
        bytes_of,
        check_plain,
        check_without_adapter,
        quantised_by,
    )
    from headscope.use.exporting.lora import check_lora
    from headscope.use.exporting.pruning import plan_pruning

    began = time.monotonic()
    config = dataclasses.replace(config, gate=removing(config.gate))
    _check_adapters(config)
    bytes_of(config.max_shard_size)
    name = config.model.model
    folder, commit = resolve(name, config.model.revision)
    settings = read_config(folder, name)
    weight_files(folder, name)
    check_without_adapter(folder)
    if is_gguf(folder):
        config = _of_gguf(config)
    quantised = quantised_by(folder)
    if config.form == "checkpoint" and not config.dequantise:
        check_plain(folder)
    if (
        config.dequantise
        and not is_gguf(folder)
        and (config.form != "checkpoint" or quantised is None)
    ):
        raise InputError(
            f"{name}: --dequantise is for writing quantised weights as a checkpoint; leave it out"
        )
    config.model.whole_for("use export")
    place_of(config.model.device, config.model.device_map)
    reading = tokenizer_of(folder, name, config.model.tokenizer)
    hollow = hollow_model(name, folder, settings, reading, commit)
    adaptation, adaptations = _read_gates(config, hollow)
    base = read_base(name, folder, commit)
    with without_products():
        facts = about_model(hollow) | {"device": None, "quantised": quantised}
    ranking = decode(Ranking, about_rank(adaptation.gate))
    signed = {"settings": config, "applied": adaptation.as_dict(), "rank": ranking.rank}
    if config.form == "lora":
        for each in adaptations.values():
            check_lora(hollow, each.gate, config.rank_limit, config.gguf)
        applied = {name: each.as_dict() for name, each in adaptations.items()}
        signed |= {"adapters": applied, "gguf": config.gguf}
    pruning = plan_pruning(hollow, adaptation.gate) if config.form == "pruned" else None
    single = "checkpoint" if config.form in WHOLE else "adapter"
    folder_name = single if "" in adaptations else SEVERAL
    known = {**model_provenance(hollow), "device": None, "seed": None}

    def compute(run: Run) -> ExportedModel:
        gate, place = adaptation.gate, run.path / folder_name
        work = _Export(
            config, hollow, adaptation, adaptations, base, run, place, quantised, progress, pruning
        )
        files, proofs, note = work.make()
        written, proof = _joined(files), None
        if proofs:
            proof = max(proofs.values(), key=lambda proof: proof.largest_difference / proof.allowed)
        return ExportedModel(
            path=str(place),
            form=config.form,
            model=decode(UnloadedModel, facts),
            gate=about(adaptation),
            ranked=ranking,
            heads=tuple(
                ExportedHead(head.layer, head.head, gate[head]) for head in gate.changed_heads()
            ),
            found_by=gate.origin.signature or None,
            found_on_same_weights=_same_weights(adaptation, hollow),
            base=ExportBase(base.name, base.hub, base.revision, base.licence, base.unread),
            written=written,
            check=proof,
            check_note=note,
            adapters=None
            if "" in adaptations
            else tuple(
                ExportedAdapter(
                    name=name,
                    heads=each.gate.changed_heads().keys,
                    written=files[name],
                    check=proofs.get(name),
                )
                for name, each in adaptations.items()
            ),
        )

    inputs = model_inputs(hollow)
    result = carry_out(COMMAND, out, signed, inputs, compute, began, known, kind=ExportedModel)
    place = Path(str(result.run)) / folder_name
    if not place.is_dir():
        raise InputError(
            f"{place}: is gone, though this run has ended; delete {result.run} and run the "
            "same command again"
        )
    return dataclasses.replace(result, path=str(place))


def _of_gguf(config: UseExport) -> UseExport:
    """The settings for a GGUF file, which is always written dequantised, in float32.

    Raises:
        InputError: for an (IA)³ adapter, or weights that would be rounded before they are
            multiplied.
    """
    name = config.model.model
    if config.form == "ia3":
        raise InputError(
            f"{name}: an (IA)³ adapter names the checkpoint that it is for, and a GGUF file is "
            "none; export with --as checkpoint or --as lora"
        )
    if config.model.dtype not in ("auto", "float32"):
        raise InputError(f"{name}: a GGUF file is written in float32; leave --dtype out")
    model = dataclasses.replace(config.model, dtype="float32")
    gguf = config.form == "lora"
    return dataclasses.replace(config, dequantise=True, model=model, gguf=gguf)


def _check_adapters(config: UseExport) -> None:
    """Raises `InputError` unless it is clear what is exported, and as which adapters."""
    if config.form != "lora":
        for name, given in (
            ("--one-a-head", config.one_a_head),
            ("--set", bool(config.sets)),
            ("--rank-limit", config.rank_limit is not None),
            ("--gguf", config.gguf),
        ):
            if given:
                raise InputError(f"{name} is for LoRA adapters; add --as lora")
    if not config.sets:
        config.gate.check()
    elif config.one_a_head or config.gate.heads is not None or config.gate.gate is not None:
        raise InputError(
            "--set gives every set an adapter; leave out --heads, --gate and --one-a-head"
        )


def _read_gates(
    config: UseExport, lm: LanguageModel
) -> tuple[Adaptation, Mapping[str, Adaptation]]:
    """What is to be exported, whole and by folder; a single artifact's folder has the name "".

    Raises:
        InputError: if it cannot be folded: a gate on queries, or one that changes nothing; or a
            LoRA adapter cannot hold it.
    """
    if config.sets:
        by_folder = read_sets(config.sets, config.gate, lm.geometry, lm.name)
        whole = together(by_folder)
    else:
        whole = config.gate.read(lm.geometry, lm.name)
        by_folder = {"": whole}
    for adaptation in by_folder.values():
        parts = adaptation.feed_forward
        parts_kept = parts is None or bool((parts == 1).all())
        if adaptation.place == "query":
            raise InputError(
                f"{adaptation.name}: its gates multiply queries, after norms and positions, so "
                "they cannot be folded into weights; apply it with `headscope use adapt`"
            )
        if adaptation.gate.is_identity and parts_kept:
            raise InputError(
                f"{adaptation.name}: multiplies everything by 1, so the export would be the model "
                "itself; name heads, or a gate that changes some"
            )
        if config.form == "lora" and not parts_kept:
            raise InputError(
                f"{adaptation.name}: multiplies feed-forward parts too, which is no change of low "
                "rank; export with --as checkpoint or --as ia3"
            )
    return whole, one_a_head(whole) if config.one_a_head else by_folder


def _joined(files: Mapping[str, ExportedFiles]) -> ExportedFiles:
    """What was written in all: the files of all folders, and the largest rank."""
    if "" in files:
        return files[""]
    parts = list(files.values())
    return ExportedFiles(
        files=tuple(f"{name}/{file}" for name, part in files.items() for file in part.files),
        size=sum(part.size for part in parts),
        changed=tuple(dict.fromkeys(module for part in parts for module in part.changed)),
        lora_rank=max(part.lora_rank or 0 for part in parts),
        heads_in_rank_512=parts[0].heads_in_rank_512,
    )


@dataclass(frozen=True)
class _Export:
    """One export in its run folder."""

    config: UseExport
    hollow: LanguageModel
    adaptation: Adaptation
    adaptations: Mapping[str, Adaptation]
    base: Base
    run: Run
    place: Path
    quantised: str | None
    progress: Progress | None
    pruning: Pruning | None = None

    def make(self) -> tuple[dict[str, ExportedFiles], dict[str, ExportProof], str | None]:
        """Write, compare, give the folder its name.

        Returns, by folder, what was written and how exact it is, and why that is not known.
        """
        from headscope.use.exporting.checkpoint import finish_folder
        from headscope.use.exporting.proof import TEXTS, ProofReference, let_go, room_for

        config, model = self.config, self.config.model
        staged = self.run.part(f"{self.place.name}/config.json").parent
        lm = note = None
        if self._reads_loaded() or config.check:
            # Spread over devices it may be larger than any of them.
            if not model.device_map:
                note = room_for(self.hollow, model.device, model.dtype)
            if note is None:
                self._say("loading the model", 0, 1)
                lm = model.load()
            elif self._reads_loaded():
                raise InputError(f"{self.base.name}: {note}; quantised weights have to be loaded")
        # One that stands under its name is whole: an earlier start was stopped right after that.
        target = self.place if self.place.exists() else staged
        if target is staged:
            written = {name: self._write(lm, name, staged / name) for name in self.adaptations}
        else:
            written = {name: self._written(name) for name in self.adaptations}
        references = {}
        if lm is not None and config.check:
            self._say("comparing", 0, len(self.adaptations) + 1)
            rounded = self._dtype() if config.form in WHOLE and not self.quantised else None
            texts = TEXTS if len(self.adaptations) == 1 else TEXTS[:1]
            for name, each in self.adaptations.items():
                low_rank = config.form == "lora"
                references[name] = ProofReference.of(
                    lm, each.gate, each.feed_forward, texts, rounded, low_rank
                )
        lm = None
        let_go()
        proofs = self._compare(references, target) if references else {}
        if target is staged:
            self.adaptation.gate.save_pretrained(self.run.path / "gate")
            for name, files in written.items():
                self.run.append_part(WRITTEN, name or config.form, encode(files))
            finish_folder(staged, self.place)
        return written, proofs, note if config.check else "not asked for"

    def _reads_loaded(self) -> bool:
        """Whether weights are taken from the loaded model, since those of the files are none."""
        low_rank = self.config.form == "lora"
        quantised = self.quantised is not None or self.config.model.quantise is not None
        return self.config.dequantise or (low_rank and quantised)

    def _write(self, lm: LanguageModel | None, name: str, staged: Path) -> ExportedFiles:
        from headscope.use.exporting.checkpoint import fold_checkpoint, ia3_adapter
        from headscope.use.exporting.lora import lora_adapter
        from headscope.use.exporting.pruning import pruned_checkpoint
        from headscope.use.exporting.tensors import dequantised_tensors

        gate, parts = self.adaptations[name].gate, self.adaptations[name].feed_forward
        card = self._card(name, lm)
        if self.config.form == "ia3":
            return ia3_adapter(
                self.hollow, gate, self.place, feed_forward=parts, card=card, staged=staged
            )
        if self.config.form == "lora":
            return lora_adapter(
                self.hollow,
                gate,
                self.place,
                weights=lm if self._reads_loaded() else None,
                rank_limit=self.config.rank_limit,
                gguf=self.config.gguf,
                card=card,
                staged=staged,
            )
        weights = None
        if self.config.dequantise and lm is not None:
            weights = dequantised_tensors(lm, self.hollow)
        if self.pruning is None:
            fold = functools.partial(fold_checkpoint, self.hollow, gate, weights=weights)
        else:
            fold = functools.partial(pruned_checkpoint, self.pruning)
        written: ExportedFiles = fold(
            self.place,
            feed_forward=parts,
            max_shard_size=self.config.max_shard_size,
            card=card,
            progress=lambda done, total: self._say("writing the checkpoint", done, total),
            staged=staged,
        )
        if self._is_gguf() and lm is not None:  # no folder holds what belongs to the model
            lm.model.config.save_pretrained(staged)
            lm.model.generation_config.save_pretrained(staged)
            lm.tokenizer.save_pretrained(staged)
        elif self.config.model.tokenizer is not None:
            self.hollow.tokenizer.save_pretrained(staged)
        return written

    def _written(self, name: str) -> ExportedFiles:
        known, part = self.run.read_part(WRITTEN), name or self.config.form
        if part not in known:
            raise InputError(
                f"{self.place}: the note of what was written there is gone; delete {self.run.path} "
                "and run the same command again"
            )
        written: ExportedFiles = decode(ExportedFiles, known[part])
        return written

    def _compare(
        self, references: Mapping[str, ProofReference], folder: Path
    ) -> dict[str, ExportProof]:
        import torch

        from headscope.use.exporting.proof import (
            compare,
            lora_loaded,
            read_adapter,
            read_checkpoint,
        )

        reference = next(iter(references.values()))
        # Quantised activations round, too.
        rounded = torch.bfloat16 if self.quantised else self._dtype()
        placed = self.config.model.device_map
        if self.config.form in WHOLE:
            model = read_checkpoint(folder, reference, placed)
        elif self._reads_loaded():  # a GGUF file, or weights that are quantised while loading
            model = self.config.model.load().model
        else:
            assert self.hollow.folder is not None
            model = read_checkpoint(self.hollow.folder, reference, placed)
        if self.config.form not in WHOLE:
            # The base's weights are not touched, but kernels of quantised ones round differently.
            rounded = torch.bfloat16 if self.quantised else reference.dtype
        if self.config.form == "ia3":
            model = read_adapter(model, folder)
        proofs = {}
        for done, (name, reference) in enumerate(references.items(), 1):
            self._say("comparing", done, len(references) + 1)
            if self.config.form == "lora":
                gate = self.adaptations[name].gate
                with lora_loaded(model, folder / name, gate, self.hollow.sites) as adapted:
                    proofs[name] = compare(reference, adapted, rounded)
            else:
                proofs[name] = compare(reference, model, rounded)
        self._say("comparing", len(references) + 1, len(references) + 1)
        return proofs

    def _card(self, name: str, lm: LanguageModel | None) -> str:
        from headscope.use.exporting.card import Export, export_card
        from headscope.use.exporting.lora import gate_rank

        choice, adaptation = self.config.gate, self.adaptations[name]
        if self.config.sets:
            named = next(text for text in self.config.sets if text.startswith(f"{name}="))
            origin = named.partition("=")[2]
            origin = Path(origin).name if exists(Path(origin)) else origin
        elif choice.gate is not None:
            origin = f"the gate {Path(choice.gate).name}"
        else:
            named = str(choice.heads)
            origin = Path(named).name if exists(Path(named)) else named
            origin += "" if choice.k is None else f", the first {choice.k}"
        dequantised = None
        if self._reads_loaded():
            stored = self.hollow.dequantised
            dequantised = self.quantised if stored is None else f"{stored}, in a GGUF file"
            if dequantised is None and lm is not None:
                dequantised = lm.quantised
        what = "vectors" if self.config.form == "ia3" else "matrices"
        rounding = f"The {what} are stored in float32."
        if self.config.form in WHOLE:
            dtype = str(self._dtype()).removeprefix("torch.")
            rounding = (
                f"The multiplied weights are stored in {dtype}: products are computed in float32 "
                "and rounded. A factor of 0 or 1 is exact."
            )
        return export_card(
            Export(
                kind=self.config.form,
                base=self.base,
                gate=adaptation.gate,
                signature=self.run.signature,
                found=origin,
                dtype=rounding,
                feed_forward=adaptation.feed_forward,
                same_weights=_same_weights(adaptation, self.hollow),
                dequantised=dequantised,
                rank=gate_rank(self.hollow, adaptation.gate),
                pruned=self.pruning.heads if self.pruning else None,
            )
        )

    def _is_gguf(self) -> bool:
        return self.hollow.folder is not None and self.hollow.folder.is_file()

    def _dtype(self) -> torch.dtype:
        """What folded weights are rounded to."""
        from headscope.use.exporting.scaling import stored_dtype
        from headscope.use.exporting.tensors import stored_tensors

        if self.quantised or self.hollow.folder is None or self._is_gguf():
            return self.hollow.dtype
        return stored_dtype(self.hollow, stored_tensors(self.hollow.folder))

    def _say(self, title: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(title, done, total)


def _same_weights(adaptation: Adaptation, lm: LanguageModel) -> bool | None:
    """Whether the gate was found on the very weights it is folded into; None if it does not say."""
    weights = adaptation.gate.origin.provenance.get("weights")
    return bool(weights == lm.digest) if weights else None


def _show(result: ExportedModel, run: Path) -> Shown:
    gate, base, proof = result.gate, result.base, result.check
    adapters = result.adapters or ()
    form = FORMS[result.form] if not adapters else f"{len(adapters)} LoRA adapters"
    cautions = []
    pruned = result.written.pruned
    if pruned and pruned.groups_dropped < min(pruned.groups_removed, pruned.groups_before - 1):
        cautions.append(
            f"The gate removes {count(pruned.groups_removed, 'whole group')} in every layer, but "
            "the architecture takes no such number of heads; the others are removed by 0."
        )
    if proof is None:
        cautions.append(f"Not compared with the gated model: {result.check_note}.")
    elif proof.proves_nothing:
        cautions.append(
            "This proves nothing: rounding alone may make a difference of "
            f"{number(proof.allowed)}, and the gate makes none that is larger."
        )
    if result.found_on_same_weights is False:
        cautions.append("The heads were found on other weights of the same shape.")
    if not base.license:
        cautions.append("The licence of the base model is not known, so the model card names none.")
    factors = {Head(head.layer, head.head).key: head.gate for head in result.heads}
    applied = factors_section(
        result.model, GateNumbers(gate.on, factors, gate.applied.feed_forward)
    )
    figure: Block | None = next(
        (block for each in applied for block in each.blocks if isinstance(block, HeadMaps)), None
    )
    figure = figure if proof is None else _before_after(proof)
    return Shown(
        "An exported model",
        "Do the written weights do what the gate does?",
        [_verdict(proof), f"{_multiplied(gate)}: written as {form} of {base.name}."],
        ""
        if proof is None
        else f"Largest difference over {count(proof.positions, 'token')} of short texts, in "
        f"{proof.dtype}; says nothing of the quality of the model.",
        "--prove" if proof is None else "",
        cautions,
        [
            *model_facts(result.model_name, gate.of),
            *([("found by", result.found_by)] if result.found_by else []),
        ],
        [
            *(
                dataclasses.replace(each, blocks=[b for b in each.blocks if b is not figure])
                for each in applied
            ),
            Section("What was written", [_written(result), *_adapters(adapters)], brief=True),
            Section("Comparison", [_comparison(result)], brief=proof is not None),
        ],
        figure,
    )


def _verdict(proof: ExportProof | None) -> str:
    if proof is None:
        return "The export was not compared with the gated model."
    if proof.proves_nothing:
        return "Cannot tell: the gate changes logits by no more than rounding may."
    return "The written weights do what the gate does."


def _multiplied(gate: AppliedGate) -> str:
    """How many heads the gate removes and multiplies otherwise."""
    removed, others = gate.removed, gate.heads - gate.removed
    what = "removed" if removed else "multiplied"
    words = f"{removed or others} of {count(gate.of, 'head')} {what}"
    if removed and others:
        words += f", {others} multiplied"
    if gate.feed_forward:
        words += f" and {count(gate.feed_forward, 'feed-forward part')} multiplied"
    return words


def _before_after(proof: ExportProof) -> Bars:
    """How far logits lie from the gated model's, before and after the gate was written."""
    return Bars(
        "Largest difference of a logit to the gated model",
        ("original model", "export"),
        ("difference",),
        ((proof.untouched_difference,), (proof.largest_difference,)),
        "logits",
        digits=min(6, max(2, 1 - floor(log10(proof.untouched_difference or 1.0)))),
        note="The original model has no gate; the export is loaded without headscope",
    )


def _written(result: ExportedModel) -> Table:
    base, written = result.base, result.written
    checkpoint = result.form in WHOLE

    def named(names: Sequence[str], what: str) -> str:
        more = ", \u2026" if len(names) > NAMED else ""
        return f"{count(len(names), what)}: {', '.join(names[:NAMED])}{more}"

    rows = {
        "path": result.path,
        **({} if written.lora_rank is None else {"rank and alpha": number(written.lora_rank)}),
        "size": _size(written.size),
        "files": named(written.files, "file"),
        "cut or with factors" if written.pruned else "with factors": named(
            written.changed, "tensor" if checkpoint else "module"
        ),
        **_cut(written),
        "licence": base.license or f"not known: {base.license_note or 'the model names none'}",
    }
    if result.model and result.model.quantised:
        rows["base weights"] = f"quantised: {result.model.quantised}"
    return one_column("The export", "", rows.items(), NOTES[result.form])


def _cut(written: ExportedFiles) -> dict[str, str]:
    """What rank or which parameters the export needs."""
    rows = {}
    if written.lora_rank is not None:
        rows["heads a layer in rank 512, the most that vLLM takes"] = number(
            written.heads_in_rank_512 or 0
        )
    if (pruned := written.pruned) is not None:
        rows["key-value groups taken out, of each layer"] = (
            f"{number(pruned.groups_dropped)} of {number(pruned.groups_before)}, with "
            f"{number(pruned.heads_before // pruned.groups_before)} heads each"
        )
        rows["parameters left"] = (
            f"{number(pruned.parameters)} of {number(pruned.parameters_before)}"
        )
    return rows


def _adapters(adapters: Sequence[ExportedAdapter]) -> list[Table]:
    if not adapters:
        return []
    rows = {}
    for adapter in adapters:
        more = ", \u2026" if len(adapter.heads) > NAMED else ""
        about_it = [
            f"{spelled(adapter.heads[:NAMED])}{more}",
            f"rank {adapter.written.lora_rank}",
        ]
        if adapter.check is not None:
            about_it.append(f"logits differ by {number(adapter.check.largest_difference)}")
        rows[adapter.name] = "; ".join(about_it)
    return [one_column("Adapters", "heads", rows.items(), "Each is a folder in the export's path")]


def _comparison(result: ExportedModel) -> Table | NotMeasured:
    proof = result.check
    if proof is None:
        return NotMeasured("Logits", str(result.check_note))
    rows = {
        "export and gated model, largest difference": number(proof.largest_difference),
        "export and original model, largest difference": number(proof.untouched_difference),
        "gated model, largest logit": number(proof.largest_logit),
        **({} if proof.noise is None else {"rounding alone, in this dtype": number(proof.noise)}),
        "tokens compared": number(proof.positions),
        "same most likely token": percent(proof.same_choice, 1),
    }
    note = (
        f"Multiplied weights are rounded to {proof.rounded_to}; factors of 0 and 1 are exact"
        if proof.noise is None
        else "Every weight of the base was the same before and after"
    )
    return one_column(
        "Logits of the export",
        "",
        rows.items(),
        f"The export was loaded without headscope. {note}",
    )


def _size(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{number(size / unit)}\u00a0{name}"
    return f"{size}\u00a0bytes"


command = Study(
    UseExport,
    use_export,
    result=ExportedModel,
    show=_show,
    usage="--heads 5.3,5.1,4.3 --out exported",
)
