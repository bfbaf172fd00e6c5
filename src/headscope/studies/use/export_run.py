"""One export in its run folder: written, compared, given its name."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from headscope.errors import InputError
from headscope.heads.adaptation import Adaptation
from headscope.results.export import ExportedFiles, ExportProof
from headscope.runs import Run, decode, encode
from headscope.settings import Option, Settings
from headscope.studies.inputs import ModelChoice, Progress
from headscope.studies.use.gates import GateChoice

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel
    from headscope.use.exporting.base import Base
    from headscope.use.exporting.proof import Reference

Form = Literal["checkpoint", "ia3"]
#: Where in the run folder the artifact is, by form.
PLACES: dict[Form, str] = {"checkpoint": "checkpoint", "ia3": "adapter"}
WRITTEN = "written"


@dataclass(frozen=True)
class UseExport(Settings):
    """Write a model with its gate folded in, which then needs nothing of headscope.

    A checkpoint is written tensor by tensor and never loaded for it, whatever its size. Tokenizer,
    settings and licence go along, and the model card says what was done.
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


@dataclass(frozen=True)
class Export:
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

        Returns what was written, how exact it is, and why nobody knows.
        """
        from headscope.use.exporting.folder import finish_folder
        from headscope.use.exporting.proof import let_go

        gate = self.adaptation.gate
        staged = self.run.part(f"{self.place.name}/config.json").parent
        lm, note = None, None
        if self.config.dequantise or self.config.check:
            note = self._too_large()
            if note is None:
                self._say("loading the model", 0, 1)
                lm = self.config.model.load()
            elif self.config.dequantise:
                raise InputError(f"{self.base.name}: {note}; --dequantise has to load it")
        # One that stands under its name is whole: an earlier start was stopped right after that.
        target = self.place if self.place.exists() else staged
        written = self._write(lm, staged) if target is staged else self._written()
        reference = None
        if lm is not None and self.config.check:
            self._say("comparing", 0, 2)
            reference = self._reference(lm)
        lm = None
        let_go()
        proof = None if reference is None else self._compare(reference, target)
        if target is staged:
            gate.save_pretrained(self.run.path / "gate")
            self.run.append_part(WRITTEN, self.config.form, encode(written))
            finish_folder(staged, self.place)
        if not self.config.check:
            note = "not asked for"
        return written, proof, note

    def _write(self, lm: LanguageModel | None, staged: Path) -> ExportedFiles:
        from headscope.use.exporting.adapter import stage_adapter
        from headscope.use.exporting.checkpoint import stage_checkpoint
        from headscope.use.exporting.dequantised import dequantised_tensors
        from headscope.use.exporting.folder import save_companions

        gate, parts = self.adaptation.gate, self.adaptation.feed_forward
        if self.config.form == "ia3":
            shutil.rmtree(staged)
            adapter = stage_adapter(
                self.hollow, gate, staged, feed_forward=parts, card=self._card()
            )
            return ExportedFiles(files=adapter.files, size=adapter.size, changed=adapter.modules)
        weights = None
        if self.config.dequantise and lm is not None:
            weights = dequantised_tensors(lm, self.hollow)
        title = "writing the checkpoint (MB)"
        folded = stage_checkpoint(
            self.hollow,
            gate,
            staged,
            self.place,
            feed_forward=parts,
            max_shard_size=self.config.max_shard_size,
            card=self._card(),
            progress=lambda done, total: self._say(title, done // 10**6, total // 10**6),
            weights=weights,
        )
        if self._of_gguf() and lm is not None:
            save_companions(lm, staged)
        elif self.config.model.tokenizer is not None:
            self.hollow.tokenizer.save_pretrained(staged)
        return ExportedFiles(
            files=folded.files, size=folded.size, changed=folded.changed, tensors=folded.tensors
        )

    def _written(self) -> ExportedFiles:
        known = self.run.read_part(WRITTEN)
        if self.config.form not in known:
            raise InputError(
                f"{self.place}: the note of what was written there is gone; delete {self.run.path} "
                "and run the same command again"
            )
        written: ExportedFiles = decode(ExportedFiles, known[self.config.form])
        return written

    def _reference(self, lm: LanguageModel) -> Reference:
        from headscope.use.exporting.proof import Reference

        plain = self.config.form == "checkpoint" and not self.quantised
        return Reference.of(
            lm,
            self.adaptation.gate,
            self.adaptation.feed_forward,
            rounded=self._dtype() if plain else None,
        )

    def _compare(self, reference: Reference, folder: Path) -> ExportProof:
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

    def _too_large(self) -> str | None:
        """Why the model is not loaded to compare it; None if it is."""
        from headscope.use.exporting.room import room_for

        model = self.config.model
        # Spread over devices it may be larger than any of them.
        return None if model.device_map else room_for(self.hollow, model.device, model.dtype)

    def _card(self) -> str:
        from headscope.use.exporting.card import Told, export_card

        choice = self.config.gate
        if choice.gate is not None:
            found = f"the gate {Path(choice.gate).name}"
        else:
            named = str(choice.heads)
            shown = Path(named).name if Path(named).exists() else named
            found = f"{shown}" + ("" if choice.k is None else f", the first {choice.k}")
        return export_card(
            Told(
                kind=self.config.form,
                base=self.base,
                gate=self.adaptation.gate,
                signature=self.run.signature,
                found=found,
                dtype=self._rounding(),
                feed_forward=self.adaptation.feed_forward,
                same_weights=same_weights(self.adaptation, self.hollow),
                dequantised=self._dequantised(),
            )
        )

    def _of_gguf(self) -> bool:
        return self.hollow.folder is not None and self.hollow.folder.is_file()

    def _dequantised(self) -> str | None:
        """The quantisation that what was written is free of."""
        if not self.config.dequantise:
            return None
        stored = self.hollow.dequantised
        return self.quantised if stored is None else f"{stored}, in a GGUF file"

    def _dtype(self) -> torch.dtype:
        """What folded weights are rounded to."""
        from headscope.use.exporting.scaling import stored_dtype
        from headscope.use.exporting.tensors import stored_tensors

        if self.quantised or self.hollow.folder is None or self._of_gguf():
            return self.hollow.dtype
        return stored_dtype(self.hollow, stored_tensors(self.hollow.folder))

    def _rounding(self) -> str:
        if self.config.form == "ia3":
            return "The vectors are stored in float32."
        dtype = str(self._dtype()).removeprefix("torch.")
        return (
            f"The multiplied weights are stored in {dtype}: products are computed in float32 and "
            "rounded. A factor of 0 or 1 is exact."
        )

    def _say(self, title: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(title, done, total)


def same_weights(adaptation: Adaptation, lm: LanguageModel) -> bool | None:
    """Whether the gate was found on the very weights it is folded into; None if it does not say."""
    told = adaptation.gate.origin.provenance.get("weights")
    return None if not told else bool(told == lm.digest)
