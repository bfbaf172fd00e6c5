"""Write a gate into an ordinary checkpoint or a stock adapter, and prove what was written."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from headscope.errors import InputError
from headscope.heads import about_rank
from headscope.heads.adaptation import Adaptation
from headscope.progress import Progress
from headscope.results.adapt import GateNumbers
from headscope.results.common import Ranking
from headscope.results.export import (
    ExportBase,
    ExportedFiles,
    ExportedHead,
    ExportedModel,
    ExportProof,
    UnloadedModel,
)
from headscope.runs import Run, carry_out, decode, encode
from headscope.settings import Option, Settings
from headscope.shown.blocks import NotMeasured, Section, Shown, Table, one_column
from headscope.shown.words import count, number, percent
from headscope.studies.models import ModelChoice, about_model, model_inputs, model_provenance
from headscope.studies.shows import model_facts
from headscope.studies.study import Study
from headscope.studies.use.gates import GateChoice, about, factors_section

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel
    from headscope.use.exporting.card import Base
    from headscope.use.exporting.proof import ProofReference

COMMAND = "use export"
FORMS = {"checkpoint": "an ordinary checkpoint", "ia3": "an (IA)\u00b3 adapter"}
#: Files and tensors that are named.
NAMED = 4
Form = Literal["checkpoint", "ia3"]
#: Where in the run folder the artifact is, by form.
PLACES: dict[Form, str] = {"checkpoint": "checkpoint", "ia3": "adapter"}
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
            "An ordinary checkpoint, or an (IA)³ adapter that stock PEFT loads around the base "
            "model.",
            flag="--as",
        ),
    ] = "checkpoint"
    max_shard_size: Annotated[
        str, Option("Of a weight file, such as 500MB or 5GB.", metavar="SIZE")
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
            flag="--check/--no-check",
        ),
    ] = True


def use_export(
    config: UseExport, out: Path | None = None, progress: Progress | None = None
) -> ExportedModel:
    """Export and return the command's result; a run that was stopped goes on.

    The run holds `checkpoint/` or `adapter/`, which anything that reads such folders takes as it
    is, and `gate/`, the gate on heads. The model is never loaded to write it; to compare, it is
    loaded first and the export after it, one at a time.

    Raises:
        InputError: if the gate does not fit the model or cannot be folded into it, the checkpoint
            cannot be read, or the export's logits are not those of the gated model.
    """
    from headscope.lm.checkpoints import read_config, resolve, tokenizer_of
    from headscope.lm.gguf import is_gguf
    from headscope.lm.hollow import hollow_model, without_products
    from headscope.use.exporting.card import read_base
    from headscope.use.exporting.checkpoint import bytes_of, check_plain, quantised_by
    from headscope.use.exporting.proof import need_peft
    from headscope.use.exporting.tensors import checkpoint_files

    began = time.monotonic()
    config = dataclasses.replace(config, gate=_removing(config.gate))
    config.gate.check()
    bytes_of(config.max_shard_size)
    if config.form == "ia3" and config.check:
        need_peft()
    name = config.model.model
    folder, commit = resolve(name, config.model.revision)
    settings = read_config(folder, name)
    checkpoint_files(folder)
    if is_gguf(folder):
        config = _of_gguf(config)
    quantised = quantised_by(folder)
    if config.form == "checkpoint" and not config.dequantise:
        check_plain(folder)
    if config.dequantise and not is_gguf(folder) and (config.form == "ia3" or quantised is None):
        raise InputError(
            f"{name}: --dequantise is for writing quantised weights as a checkpoint; leave it out"
        )
    reading = tokenizer_of(folder, name, config.model.tokenizer)
    hollow = hollow_model(name, folder, settings, reading, commit)
    adaptation = _read_gate(config.gate, hollow)
    base = read_base(name, folder, commit)
    with without_products():
        facts = about_model(hollow) | {"device": None, "quantised": quantised}
    ranking = decode(Ranking, about_rank(adaptation.gate))
    signed = {"settings": config, "applied": adaptation.as_dict(), "rank": ranking.rank}
    known = {**model_provenance(hollow), "device": None, "seed": None}

    def compute(run: Run) -> ExportedModel:
        gate, place = adaptation.gate, run.path / PLACES[config.form]
        work = _Export(config, hollow, adaptation, base, run, place, quantised, progress)
        written, proof, note = work.make()
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
        )

    inputs = model_inputs(hollow)
    result = carry_out(COMMAND, out, signed, inputs, compute, began, known, kind=ExportedModel)
    place = Path(str(result.run)) / PLACES[config.form]
    if not place.is_dir():
        raise InputError(
            f"{place}: is gone, though this run has ended; delete {result.run} and run the "
            "same command again"
        )
    return dataclasses.replace(result, path=str(place))


def _of_gguf(config: UseExport) -> UseExport:
    """The settings for a GGUF file, which is always written dequantised, in float32.

    Raises:
        InputError: for an adapter, or weights that would be rounded before they are multiplied.
    """
    name = config.model.model
    if config.form == "ia3":
        raise InputError(
            f"{name}: an adapter names the checkpoint that it is for, and a GGUF file is none; "
            "export with --as checkpoint"
        )
    if config.model.dtype not in ("auto", "float32"):
        raise InputError(f"{name}: a GGUF file is written in float32; leave --dtype out")
    model = dataclasses.replace(config.model, dtype="float32")
    return dataclasses.replace(config, dequantise=True, model=model)


def _removing(choice: GateChoice) -> GateChoice:
    """The choice, with heads that come without a number removed."""
    if choice.heads is not None and choice.scale is None and choice.outside is None:
        return dataclasses.replace(choice, scale=0.0)
    return choice


def _read_gate(choice: GateChoice, lm: LanguageModel) -> Adaptation:
    """What is to be folded, with the origin of the heads or the gate.

    Raises:
        InputError: if it cannot be folded: a gate on queries, or one that changes nothing.
    """
    adaptation = choice.read(lm.geometry)
    if adaptation.place == "query":
        raise InputError(
            f"{adaptation.name}: its gates multiply queries, after norms and positions, so they "
            "cannot be folded into weights; apply it with `headscope use adapt`"
        )
    if adaptation.gate.is_identity and (
        adaptation.feed_forward is None or (adaptation.feed_forward == 1).all()
    ):
        raise InputError(
            f"{adaptation.name}: multiplies everything by 1, so the export would be the model "
            "itself; name heads, or a gate that changes some"
        )
    return adaptation


@dataclass(frozen=True)
class _Export:
    """One export in its run folder."""

    config: UseExport
    hollow: LanguageModel
    adaptation: Adaptation
    base: Base
    run: Run
    place: Path
    quantised: str | None
    progress: Progress | None

    def make(self) -> tuple[ExportedFiles, ExportProof | None, str | None]:
        """Write, compare, give the folder its name.

        Returns what was written, how exact it is, and why that is not known.
        """
        from headscope.use.exporting.checkpoint import finish_folder
        from headscope.use.exporting.proof import ProofReference, let_go, room_for

        config, model = self.config, self.config.model
        staged = self.run.part(f"{self.place.name}/config.json").parent
        lm = note = None
        if config.dequantise or config.check:
            # Spread over devices it may be larger than any of them.
            if not model.device_map:
                note = room_for(self.hollow, model.device, model.dtype)
            if note is None:
                self._say("loading the model", 0, 1)
                lm = model.load()
            elif config.dequantise:
                raise InputError(f"{self.base.name}: {note}; --dequantise has to load it")
        # One that stands under its name is whole: an earlier start was stopped right after that.
        target = self.place if self.place.exists() else staged
        written = self._write(lm, staged) if target is staged else self._written()
        reference = None
        if lm is not None and config.check:
            self._say("comparing", 0, 2)
            plain = config.form == "checkpoint" and not self.quantised
            gate, parts = self.adaptation.gate, self.adaptation.feed_forward
            reference = ProofReference.of(lm, gate, parts, rounded=self._dtype() if plain else None)
        lm = None
        let_go()
        proof = None if reference is None else self._compare(reference, target)
        if target is staged:
            self.adaptation.gate.save_pretrained(self.run.path / "gate")
            self.run.append_part(WRITTEN, config.form, encode(written))
            finish_folder(staged, self.place)
        return written, proof, note if config.check else "not asked for"

    def _write(self, lm: LanguageModel | None, staged: Path) -> ExportedFiles:
        from headscope.use.exporting.checkpoint import fold_checkpoint, ia3_adapter
        from headscope.use.exporting.tensors import dequantised_tensors

        gate, parts, card = self.adaptation.gate, self.adaptation.feed_forward, self._card()
        if self.config.form == "ia3":
            return ia3_adapter(
                self.hollow, gate, self.place, feed_forward=parts, card=card, staged=staged
            )
        weights = None
        if self.config.dequantise and lm is not None:
            weights = dequantised_tensors(lm, self.hollow)
        title = "writing the checkpoint (MB)"
        written = fold_checkpoint(
            self.hollow,
            gate,
            self.place,
            feed_forward=parts,
            max_shard_size=self.config.max_shard_size,
            card=card,
            progress=lambda done, total: self._say(title, done // 10**6, total // 10**6),
            weights=weights,
            staged=staged,
        )
        if self._is_gguf() and lm is not None:  # no folder holds what belongs to the model
            lm.model.config.save_pretrained(staged)
            lm.model.generation_config.save_pretrained(staged)
            lm.tokenizer.save_pretrained(staged)
        elif self.config.model.tokenizer is not None:
            self.hollow.tokenizer.save_pretrained(staged)
        return written

    def _written(self) -> ExportedFiles:
        known = self.run.read_part(WRITTEN)
        if self.config.form not in known:
            raise InputError(
                f"{self.place}: the note of what was written there is gone; delete {self.run.path} "
                "and run the same command again"
            )
        written: ExportedFiles = decode(ExportedFiles, known[self.config.form])
        return written

    def _compare(self, reference: ProofReference, folder: Path) -> ExportProof:
        import torch

        from headscope.use.exporting.proof import compare, read_adapter, read_checkpoint

        # Quantised activations round, too.
        rounded = torch.bfloat16 if self.quantised else self._dtype()
        placed = self.config.model.device_map
        if self.config.form == "ia3":
            assert self.hollow.folder is not None
            base = read_checkpoint(self.hollow.folder, reference, placed)
            model = read_adapter(base, folder)
            # The base's weights are not touched, but kernels of quantised ones round differently.
            rounded = torch.bfloat16 if self.quantised else reference.dtype
        else:
            model = read_checkpoint(folder, reference, placed)
        self._say("comparing", 1, 2)
        proof = compare(reference, model, rounded)
        self._say("comparing", 2, 2)
        return proof

    def _card(self) -> str:
        from headscope.use.exporting.card import Export, export_card

        choice = self.config.gate
        if choice.gate is not None:
            origin = f"the gate {Path(choice.gate).name}"
        else:
            named = str(choice.heads)
            origin = Path(named).name if Path(named).exists() else named
            origin += "" if choice.k is None else f", the first {choice.k}"
        dequantised = None
        if self.config.dequantise:
            stored = self.hollow.dequantised
            dequantised = self.quantised if stored is None else f"{stored}, in a GGUF file"
        rounding = "The vectors are stored in float32."
        if self.config.form == "checkpoint":
            dtype = str(self._dtype()).removeprefix("torch.")
            rounding = (
                f"The multiplied weights are stored in {dtype}: products are computed in float32 "
                "and rounded. A factor of 0 or 1 is exact."
            )
        return export_card(
            Export(
                kind=self.config.form,
                base=self.base,
                gate=self.adaptation.gate,
                signature=self.run.signature,
                found=origin,
                dtype=rounding,
                feed_forward=self.adaptation.feed_forward,
                same_weights=_same_weights(self.adaptation, self.hollow),
                dequantised=dequantised,
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
    words = f"{gate.heads} of {gate.of} heads are multiplied, {gate.removed} of them removed (by 0)"
    if gate.feed_forward:
        words += f"; so are {count(gate.feed_forward, 'feed-forward part')}"
    finding = [f"{words}: written as {FORMS[result.form]} of {base.name}."]
    uncertainty, cautions = "", []
    if proof is None:
        cautions.append(f"Not compared with the gated model: {result.check_note}.")
    else:
        finding.append(
            "Logits differ from those of the gated model by at most "
            f"{number(proof.largest_difference)}; the gate itself moves them by up to "
            f"{number(proof.untouched_difference)}."
        )
        uncertainty = (
            f"Compared on {count(proof.positions, 'token')} of a few short texts, in {proof.dtype}:"
            " this shows that the right weights were multiplied, not how good the model is."
        )
        if proof.proves_nothing:
            cautions.append(
                "This proves nothing: rounding alone may make a difference of "
                f"{number(proof.allowed)}, and the gate makes none that is larger."
            )
    if result.found_on_same_weights is False:
        cautions.append("The heads were found on other weights of the same shape.")
    if not base.license:
        cautions.append("The licence of the base model is not known, so the model card names none.")
    factors = {f"{head.layer}.{head.head}": head.gate for head in result.heads}
    return Shown(
        "An exported model",
        "Do the written weights do what the gate does?",
        finding,
        uncertainty,
        "--check" if proof is None else "",
        cautions,
        [
            *model_facts(result.model_name, gate.of),
            *([("found by", result.found_by)] if result.found_by else []),
        ],
        [
            Section("What was written", [_written(result)], brief=True),
            Section("Comparison", [_comparison(result)], brief=proof is not None),
            *factors_section(
                result.model, GateNumbers(gate.on, factors, gate.applied.feed_forward)
            ),
        ],
    )


def _written(result: ExportedModel) -> Table:
    base, written = result.base, result.written
    checkpoint = result.form == "checkpoint"

    def named(names: Sequence[str], what: str) -> str:
        more = ", \u2026" if len(names) > NAMED else ""
        return f"{count(len(names), what)}: {', '.join(names[:NAMED])}{more}"

    rows = {
        "path": result.path,
        "size": _size(written.size),
        "files": named(written.files, "file"),
        "with factors": named(written.changed, "tensor" if checkpoint else "module"),
        "licence": base.license or f"not known: {base.license_note or 'the model names none'}",
    }
    if result.model and result.model.quantised:
        rows["base weights"] = f"quantised: {result.model.quantised}"
    note = (
        "The factors are in the attention output projections; headscope is not needed to load it"
        if checkpoint
        else "The factors are vectors before the attention output projections; stock PEFT loads "
        "them around the base model, whose weights are not changed"
    )
    return one_column("The export", "", rows.items(), note)


def _comparison(result: ExportedModel) -> Table | NotMeasured:
    proof = result.check
    if proof is None:
        return NotMeasured("Logits", str(result.check_note))
    rows = {
        "export and gated model, largest difference": number(proof.largest_difference),
        "export and original model, largest difference": number(proof.untouched_difference),
        "gated model, largest logit": number(proof.largest_logit),
        "tokens compared": number(proof.positions),
        "same most likely token": percent(proof.same_choice, 1),
    }
    return one_column(
        "Logits of the export",
        "",
        rows.items(),
        "The export was loaded without headscope. Multiplied weights are rounded to "
        f"{proof.rounded_to}; factors of 0 and 1 are exact",
    )


def _size(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{number(size / unit)}\u00a0{name}"
    return f"{size}\u00a0bytes"


command = Study(UseExport, use_export, result=ExportedModel, show=_show)
