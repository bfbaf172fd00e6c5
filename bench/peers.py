"""The same work by headscope and by others, side by side, as JSON.

    python bench/peers.py --venvs FOLDER --smollm2 FOLDER --gemma3 FOLDER --qwen GGUF --out FILE

Every repeat does each job once in every way, in an order that changes, after one round to warm up.
Seconds are of the process on a CPU and of the wall on a GPU; a ratio is the other way's seconds
over headscope's in the same repeat (above 1 headscope is faster), and the median counts. What the
ways make is compared, and the result says how far it is equal. With --minutes it ends early, and
the same command goes on from the repeats that --out holds.

Packages run in environments of their own under --venvs, made where they are missing, as processes
that take turns with this one. What is not in a package (a plain pass, attention matrices of a whole
batch, zeroed weights and ``generate``, the loops of the papers, two passes) is written here, from
the papers' definitions. Without --shape the model is one of 4.3 million parameters with random
weights; sentences are those of the bundled model, or --data. With another shape, weights are made
on the device, and packages take no part; `gpu.py` does all of this at the shape of an 8B model.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from machine import machine, tell, write
from peaks_models import SHAPES, build
from peaks_ways import Settings, eager
from peers_packages import TEXTS, Texts, pack, scores
from rate_ways import Ways, matrix_peak
from timing import CLOCKS, load, moment, say, spread, wait

import headscope
from headscope.data.align import align_file
from headscope.evidence.runner import KEPT_AT_ONCE
from headscope.find.capture import capture_reference
from headscope.find.gate_descent import answer_losses
from headscope.find.gate_gradients import gate_gradients, moving_gate_gradients
from headscope.find.hits import counted_hits, given_texts
from headscope.find.lahis_scores import importance
from headscope.find.mask_config import MaskTraining
from headscope.find.mask_training import (
    gumbel_noise,
    rows_of_step,
    starting_weights,
    straight_through,
    train_mask,
)
from headscope.find.scoring import NOWHERE
from headscope.find.translation_score_config import TranslationScore
from headscope.heads import HeadSet
from headscope.heads.draws import draw_sets
from headscope.lm.batching import collate
from headscope.lm.generation import Generation, generate_batch
from headscope.lm.generation.texts import generation_of
from headscope.lm.inputs import forward_inputs
from headscope.lm.losses import frozen
from headscope.lm.model import LanguageModel
from headscope.lm.prompting import Answered
from headscope.lm.shared_losses import answer_losses as losses_of_answers
from headscope.lm.shared_losses import common_beginning, first_changed_layer
from headscope.pocket import weights
from headscope.pocket.sample import sample_documents
from headscope.studies.costs.estimate import Machine, Rate, Work, estimate_seconds
from headscope.studies.costs.shapes import Shape, shape_of
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.verify.removal_translations.conditions import (
    Removal,
    answer_rows,
    prompts_with_limits,
)

ROOT = Path(__file__).resolve().parents[1]
#: Versions of the packages; that of torch and of transformers are those of the constraints.
PACKAGES = {
    "nnsight": "0.8.1",
    "transformer-lens": "4.3.0",
    "nam-causal-head-gating": "0.1.0",
}
JOBS = ("translation-score", "removal-by-loss", "removal", "lahis", "mask", "rating")
#: A text or a score is equal where logits, weights, losses differ by less.
LOGITS, CLOSE = 1e-4, 1e-5
#: What others are called.
MATRICES = ("attention matrices of a batch", "nnsight", "transformer-lens")
GENERATE, ZEROED = "zeroed W_O and generate", "zeroed W_O"
ANSWERS = "zeroed W_O, logits of answers"
#: Ratios aimed at, by job, model, the other way and headscope's.
AIMS = {
    **{
        ("translation-score", model, matrix, "headscope"): 1.0
        for model in ("small", "smollm2")
        for matrix in MATRICES
    },
    **{
        (job, "qwen", rival, "headscope"): 1.0
        for job, others in (
            ("translation-score", ("a plain pass", "a plain pass with logits", *MATRICES)),
            ("removal-by-loss", (ZEROED, ANSWERS, "nnsight", "transformer-lens")),
            ("removal", (GENERATE,)),
        )
        for rival in others
    },
    ("translation-score", "smollm2", "a plain pass", "headscope"): 0.9,
    ("translation-score", "gemma3", "a plain pass", "headscope"): 0.9,
    ("removal", "small", "zeroed W_O and generate", "headscope"): 1.6,
    ("removal", "smollm2", "zeroed W_O and generate", "headscope"): 1.5,
    ("removal", "gemma3", "zeroed W_O and generate", "headscope"): 2.0,
    **{
        (job, model, rival, ours): 1.0
        for model in ("small", "smollm2")
        for job, rival, ours in (
            ("lahis", "the published loop", "headscope --update-gate"),
            ("mask", "nam-causal-head-gating", "headscope, autocast"),
        )
    },
}
#: Real models, with the examples of a prompt in removal.
REAL = {"smollm2": 0, "gemma3": 3, "qwen": 0}
#: One in so many tokens of a random model ends its texts.
ENDS = 20

#: Seconds by clock, and what was made.
Timed = tuple[dict[str, float], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """One job on one model in several ways.

    Attributes:
        ways: calls by name.
        rows: what is compared: the other way, headscope's, and how equal what they made is.
        cost: of what headscope made the tokens by operation, and the share of them with logits.
        warm: calls that warm up; None: the ways.
        tokens: of all texts under all conditions, where passes share some; None: those of `cost`.
    """

    job: str
    work: dict[str, Any]
    ways: dict[str, Callable[[], Timed]]
    rows: Sequence[tuple[str, str, Callable[[Any, Any], dict[str, Any]]]]
    cost: Callable[[Any], tuple[Work, float]]
    warm: dict[str, Callable[[], Timed]] | None = None
    tokens: int | None = None


@dataclasses.dataclass(frozen=True)
class Model:
    """A model with its sentences.

    Attributes:
        name: such as `small`.
        folder: where packages read it; None: they take no part.
        data: files of sentences; shots: examples of a prompt in removal.
    """

    name: str
    lm: LanguageModel
    folder: Path | None
    pair: str
    data: tuple[str, ...]
    shots: int

    def directions(self, sentences: int, shots: int = 0) -> dict[str, Any]:
        """Test sentences, with examples before each in its prompt."""
        choice = PairsChoice(pair=(self.pair,), data=self.data, limit=sentences, shots=shots)
        own = "pocket" if not self.data else self.name
        return dict(read_directions(choice, own, "test", sentences).items())


class Peers:
    """The packages, each a process with the model of the moment."""

    def __init__(self, venvs: Path | None, scratch: Path) -> None:
        self.scratch, self.left_out = scratch, dict[str, str]()
        self.versions: dict[str, dict[str, str]] = {}
        self._pythons: dict[str, Path] = {}
        self._running: dict[str, subprocess.Popen[str]] = {}
        for name, version in PACKAGES.items():
            if venvs is None:
                self.left_out[name] = "no folder for its environment was given (--venvs)"
                continue
            try:
                self._pythons[name], self.versions[name] = environment(venvs / name, name, version)
            except subprocess.CalledProcessError as error:
                self.left_out[name] = last_line(error.stderr or error.stdout)

    def started(self, name: str, folder: Path | None) -> str | None:
        """Start a package with a model; why it cannot be used, if so."""
        if name in self.left_out:
            return self.left_out[name]
        if folder is None:
            return "the model is made in memory alone"
        if name not in self._running:
            script = Path(__file__).with_name("peers_packages.py")
            self._running[name] = subprocess.Popen(
                [self._pythons[name], script, name, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=(self.scratch / f"{name}.log").open("w"),
                text=True,
                env={
                    "OMP_NUM_THREADS": "1",
                    "HF_HUB_OFFLINE": "1",
                    "TOKENIZERS_PARALLELISM": "false",
                },
            )
            try:
                self._answer(name)
            except RuntimeError as error:
                del self._running[name]
                return str(error)
        return None

    def work(self, name: str, inputs: Path) -> Timed:
        """Do a job whose inputs stand in a file."""
        stdin = self._running[name].stdin
        assert stdin is not None
        print(inputs, file=stdin, flush=True)
        answer = self._answer(name)
        file = inputs.with_name(inputs.name + ".made.npz")
        made: Any = answer
        if file.is_file():
            stored = np.load(file, allow_pickle=True)
            whole = "losses" in stored
            made = stored["losses"] if whole else (list(stored["peaks"]), stored["scores"])
        return {clock: answer[clock] for clock in ("process", "wall")}, made

    def given(
        self, model: Model, texts: Texts, name: str, **others: Any
    ) -> tuple[dict[str, Callable[[], Timed]], dict[str, str]]:
        """The packages that read texts, each as a call, and why others take no part."""
        ways, left_out = dict[str, Callable[[], Timed]](), dict[str, str]()
        for package in MATRICES[1:]:
            if why := self.started(package, model.folder):
                left_out[package] = why
                continue
            file = self.scratch / f"{package}-{model.name}-{name}.npz"
            packed = {field_: pack([*map(np.asarray, getattr(texts, field_))]) for field_ in TEXTS}
            np.savez(file, **packed, **others)
            ways[package] = partial(self.work, package, file)
        return ways, left_out

    def stop(self) -> None:
        """End all processes."""
        for process in self._running.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
        self._running.clear()

    def _answer(self, name: str) -> dict[str, float]:
        stdout = self._running[name].stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            raise RuntimeError(last_line((self.scratch / f"{name}.log").read_text("utf-8")))
        answer: dict[str, float] = json.loads(line)
        return answer


def environment(folder: Path, name: str, version: str) -> tuple[Path, dict[str, str]]:
    """An environment with a package, made if it is not there; its Python, and what is in it."""
    python = folder / "bin" / "python"
    pinned = re.findall(r"^((?:torch|transformers)==\S+)$", text_of("constraints.txt"), re.M)

    def run(*command: object) -> str:
        words = [str(word) for word in command]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    if not python.is_file():
        say(f"making an environment for {name}")
        run(sys.executable, "-m", "venv", folder)
        torch_pin, transformers_pin = sorted(pinned)
        run(python, "-m", "pip", "install", torch_pin)
        run(python, "-m", "pip", "install", torch_pin, transformers_pin, f"{name}=={version}")
    ask = f"print(*map(__import__('importlib.metadata').metadata.version, {(name, *VERSIONS)}))"
    return python, dict(zip((name, *VERSIONS), run(python, "-c", ask).split(), strict=True))


VERSIONS = ("torch", "transformers")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it ended without a word"


def here(lm: LanguageModel, work: Callable[[], Any]) -> Timed:
    """Work in this process."""
    wait(lm)
    process, wall = time.process_time(), time.perf_counter()
    made = work()
    wait(lm)
    return {"process": time.process_time() - process, "wall": time.perf_counter() - wall}, made


def translation_score(
    model: Model, peers: Peers, sentences: int, batch_tokens: int | None
) -> tuple[Case, dict[str, str]]:
    """Peaks of all heads at the steps that predict the references, and the scores of their links.

    Without `batch_tokens` all sentences are read together: the shortest of twice as many.
    """
    lm = model.lm
    (pairs,) = model.directions(sentences * (1 if batch_tokens else 2)).values()
    texts, _ = given_texts(lm, pairs, TranslationScore(chat=False), NOWHERE)
    texts = sorted(texts, key=lambda text: len(text.ids))[:sentences]
    ids = [list(text.ids) for text in texts]
    tables = [np.zeros((len(text.rows), len(text.ids)), dtype=np.bool_) for text in texts]
    for text, table in zip(texts, tables, strict=True):
        hits = counted_hits(text.words, skip_identical=False)
        table[hits >> 32, hits & 0xFFFFFFFF] = True
    limit = batch_tokens or 1 << 40
    batches = lm.buckets([*map(len, ids)], limit) if batch_tokens else [[*range(len(ids))]]
    rival = Texts(ids, [text.rows - 1 for text in texts], batches)
    width = lm.geometry.width

    def ours() -> Any:
        found = capture_reference(
            lm, ids, [text.rows for text in texts], None, Settings("predict", limit)
        )
        peaks = [text.peaks for text in found]
        return peaks, scores(peaks, tables)

    def plain(logits: bool) -> None:
        with torch.inference_mode():
            for rows, _ in rival.padded():
                batch = collate([ids[row] for row in rows], lm.pad_token_id)
                lm.model(**forward_inputs(lm.model, batch, logits=logits))

    def largest(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        there = {name: value.to(lm.device) for name, value in inputs.items()}
        output = lm.model(**there, output_attentions=True, use_cache=False, logits_to_keep=1)
        return torch.stack([layer.argmax(dim=-1) for layer in output.attentions], dim=1)

    def attentions() -> Any:
        with torch.inference_mode():
            peaks = rival.peaks(largest)
        return peaks, scores(peaks, tables)

    def switched() -> Timed:
        with eager(lm):
            return here(lm, attentions)

    def check(own: Any, other: Any) -> dict[str, Any]:
        """Peaks that differ, and the widest gap between the weights of two such keys."""
        differ, gap, peaks = 0, 0.0, 0
        for row, (first, two) in enumerate(zip(own[0], other[0], strict=True)):
            places = np.argwhere(first != two)
            peaks, differ = peaks + first.size, differ + len(places)
            if not len(places):
                continue
            with eager(lm), torch.inference_mode():
                inputs = torch.tensor([ids[row]], device=lm.device)
                found = lm.model(input_ids=inputs, output_attentions=True).attentions
            lines = torch.cat(found)[:, :, np.asarray(rival.queries[row])].float().cpu().numpy()
            at, layer, head = places.T
            weights = lines[layer, head, at]
            ours, theirs = (
                weights[np.arange(len(at)), keys[at, layer, head]] for keys in (first, two)
            )
            gap = max(gap, float(np.abs(ours - theirs).max()))
        difference = float(np.abs(own[1] - other[1]).max())
        equal = difference <= CLOSE or gap <= CLOSE
        return {
            "equal": equal,
            "peaks": peaks,
            "peaks_that_differ": differ,
            "widest_gap_of_weights": gap,
            "largest_difference_of_scores": difference,
        }

    ways: dict[str, Callable[[], Timed]] = {
        "headscope": lambda: here(lm, ours),
        "a plain pass with logits": lambda: here(lm, lambda: plain(True)),
        "a plain pass": lambda: here(lm, lambda: plain(False)),
        "attention matrices of a batch": switched,
    }
    rows: list[Any] = [
        (name, "headscope", lambda *_: {"equal": None}) for name in list(ways)[1:3]
    ] + [("attention matrices of a batch", "headscope", check)]
    packages, left_out = peers.given(model, rival, f"peaks-{limit}", tables=pack(tables))
    ways |= packages
    rows += [(name, "headscope", check) for name in packages]
    work = {
        "sentences": len(ids),
        "tokens": spread([len(row) for row in ids]),
        "batch_tokens": batch_tokens,
        "batches": len(rival.batches),
        "heads": lm.geometry.layers * width,
    }
    cost = forward_cost([len(row) for row in ids], 0.0)
    return Case("translation-score", work, ways, rows, cost), left_out


def forward_cost(
    lengths: Sequence[int], logits: float, times: float = 1.0
) -> Callable[[Any], tuple[Work, float]]:
    """Rows of these lengths read so many times, with the logits of this share of the tokens."""
    work = Work(forward=times * sum(lengths), length=fmean(lengths))
    return lambda _: (work, logits)


def backward_cost(texts: Sequence[Answered]) -> Callable[[Any], tuple[Work, float]]:
    """A gradient of the gate for each text, whose answers alone have logits."""
    lengths = [len(text.ids) for text in texts]
    learned = sum(len(text.ids) - text.start for text in texts) / sum(lengths)
    # No rows together: the logits of a large batch, made twice, are no part of what must be done.
    work = Work(backward=sum(lengths), length=fmean(lengths), rows=0.0)
    return lambda _: (work, learned)


def removal_by_loss(
    model: Model, peers: Peers, sentences: int, conditions: int
) -> tuple[Case, dict[str, str]]:
    """Losses of references without random sets of 6 % of the heads, and of the model as it is."""
    lm = model.lm
    (pairs,) = model.directions(sentences, model.shots).values()
    answers, _ = answer_rows(lm, pairs, align_file(pairs), Removal())
    removed = random_sets(lm, 0.06, conditions)
    gates = [heads.removed() for heads in removed]
    lengths = [len(row.ids) for row in answers]

    def texts_of(count: int) -> Texts:
        ids = [list(row.ids) for row in answers[:count]]
        batches = lm.buckets(lengths[:count], Removal().batch_tokens)
        return Texts(ids, [row.places - 1 for row in answers[:count]], batches)

    def ours(count: int, some: int) -> Any:
        made = dict(losses_of_answers(lm, answers[:count], gates[:some]))
        return np.stack([np.concatenate(made[at]) for at in range(some)])

    def whole(inputs: dict[str, torch.Tensor], places: Any) -> torch.Tensor:
        made: torch.Tensor = lm.model(**inputs, use_cache=False).logits
        return made[places]

    def chosen(inputs: dict[str, torch.Tensor], places: Any) -> torch.Tensor:
        hidden = lm.model.get_decoder()(**inputs, use_cache=False).last_hidden_state
        made: torch.Tensor = lm.model.get_output_embeddings()(hidden[places])
        return made

    def plain(logits: Callable[..., torch.Tensor], texts: Texts, some: int) -> Any:
        def there(inputs: dict[str, torch.Tensor], places: Any) -> torch.Tensor:
            return logits({name: tensor.to(lm.device) for name, tensor in inputs.items()}, places)

        made = []
        for heads in removed[:some]:
            with zeroed_heads(lm, heads), torch.inference_mode():
                made.append(texts.losses(there))
        return np.stack(made)

    def ways(count: int, some: int) -> tuple[dict[str, Callable[[], Timed]], dict[str, str]]:
        texts = texts_of(count)
        columns = []
        for heads in removed[:some]:
            widths = {site.layer: np.arange(site.head_width) for site in lm.sites}
            own: dict[int, Any] = {}
            for head in sorted(heads, key=lambda head: head.layer):
                more = head.head * len(widths[head.layer]) + widths[head.layer]
                own[head.layer] = np.concatenate([own.get(head.layer, more[:0]), more])
            columns.append(own)
        packages, left_out = peers.given(model, texts, f"losses-{count}", columns=pack(columns))
        mine: dict[str, Callable[[], Any]] = {
            "headscope": partial(ours, count, some),
            ZEROED: partial(plain, whole, texts, some),
            ANSWERS: partial(plain, chosen, texts, some),
        }
        return {name: partial(here, lm, work) for name, work in mine.items()} | packages, left_out

    def check(own: Any, other: Any) -> dict[str, Any]:
        difference = float(np.abs(own - other).max())
        return {"equal": difference <= LOGITS, "largest_difference_of_losses": difference}

    every, left_out = ways(len(answers), len(gates))
    first = [min(first_changed_layer(gate), lm.geometry.layers - 1) for gate in gates]
    work: dict[str, Any] = {
        "sentences": len(answers),
        "conditions": len(gates),
        "heads_removed": len(removed[-1]),
        "tokens": spread(lengths),
        "tokens_of_answers": spread([len(row.places) for row in answers]),
        "common_tokens": common_beginning(answers),
        "layer_passes": {
            "of_whole_passes": lm.geometry.layers * len(gates),
            "from_the_first_gated": sum(lm.geometry.layers - layer for layer in first) + max(first),
        },
        "batch_tokens": Removal().batch_tokens,
    }
    # What must be read: the beginning once a condition, the rest from the first gated layer on.
    begin = work["common_tokens"]
    rest = sum(lengths) - begin * len(lengths)
    share = work["layer_passes"]["from_the_first_gated"] / work["layer_passes"]["of_whole_passes"]
    needed = len(gates) * (begin + share * rest)
    wanted = len(gates) * sum(len(row.places) for row in answers)
    cost = Work(forward=needed, length=fmean(lengths))
    return (
        Case(
            "removal-by-loss",
            work,
            every,
            [(name, "headscope", check) for name in every if name != "headscope"],
            lambda _: (cost, wanted / needed),
            ways(2, 1)[0],
            len(gates) * sum(lengths),
        ),
        left_out,
    )


def random_sets(lm: LanguageModel, share: float, conditions: int) -> list[HeadSet]:
    """No heads, and random sets of this share of all: so many conditions."""
    every = tuple(lm.geometry.heads())
    size = HeadSet(lm.geometry, every[: max(1, round(share * len(every)))])
    drawn = draw_sets(size, max(1, conditions - 1), 0)
    return [HeadSet(lm.geometry, ()), *drawn][:conditions]


@contextmanager
def zeroed_heads(lm: LanguageModel, heads: HeadSet) -> Iterator[None]:
    """The columns of W_O that read these heads set to zero."""
    before = []
    for head in heads:
        (site,) = [site for site in lm.sites if site.layer == head.layer]
        start = head.head * site.head_width
        columns = site.projection.weight.data[:, start : start + site.head_width]
        before.append((columns, columns.clone()))
        columns.zero_()
    try:
        yield
    finally:
        for columns, values in before:
            columns.copy_(values)


class Translations:
    """Sentences to be translated with sets of heads removed."""

    def __init__(self, model: Model, sentences: int, conditions: int, rows: int) -> None:
        self.lm, self.batch_rows = model.lm, rows
        directions = model.directions(sentences, model.shots)
        self.prompts, self.limits, self.config, self.special = prompts_with_limits(
            self.lm, [*directions.values()], Removal()
        )
        self.removed = random_sets(self.lm, 0.15, conditions)

    def pool(self) -> list[Generation]:
        """As `headscope verify removal` writes them."""
        made: list[Generation] = []
        together = max(1, KEPT_AT_ONCE // len(self.prompts))
        for start in range(0, len(self.removed), together):
            some = self.removed[start : start + together]
            made += self.lm.generate(
                list(self.prompts) * len(some),
                self.config,
                list(self.limits) * len(some),
                special=self.special,
                gates=[heads.removed() for heads in some for _ in self.prompts],
            )
        return made

    def generate(self) -> list[Generation]:
        """By zeroed weights and the ``generate`` of transformers, batch by batch."""
        lm, newline = self.lm, self.config.stop_at_newline
        ids = [lm.encode(prompt, self.special) for prompt in self.prompts]
        order = sorted(range(len(ids)), key=lambda at: len(ids[at]) + self.limits[at])
        made: list[Generation] = []
        for heads in self.removed:
            texts: dict[int, Generation] = {}
            with zeroed_heads(lm, heads):
                for start in range(0, len(order), self.batch_rows):
                    batch = order[start : start + self.batch_rows]
                    limits = [self.limits[at] for at in batch]
                    new = generate_batch(lm, lm.collate([ids[at] for at in batch]), limits, newline)
                    for at, tokens in zip(batch, new, strict=True):
                        texts[at] = generation_of(lm, ids[at], tokens, newline)
            made += [texts[at] for at in range(len(ids))]
        return made

    def ways(self) -> dict[str, Callable[[], Timed]]:
        return {
            "headscope": lambda: here(self.lm, self.pool),
            GENERATE: lambda: here(self.lm, self.generate),
        }

    def cost(self, made: Sequence[Generation]) -> tuple[Work, float]:
        """Prompts read and tokens written by a pool that is always full."""
        new = sum(len(text.output_ids) + (text.stop == "eos") for text in made)
        read = sum(len(text.prompt_ids) for text in made)
        length = (read + new) / len(made)
        rows = min(len(made), Removal().batch_tokens / length)
        return Work(forward=read, generated=new, length=length, rows=rows), 0.0

    def check(self, own: Sequence[Generation], other: Sequence[Generation]) -> dict[str, Any]:
        """Texts that differ, and the widest gap between the logits of the first tokens that do."""
        gaps = []
        for number, (ours, theirs) in enumerate(zip(own, other, strict=True)):
            if ours.output_ids == theirs.output_ids:
                continue
            pairs = zip(ours.output_ids, theirs.output_ids, strict=False)
            # One may have ended where the other went on.
            shorter = min(len(ours.output_ids), len(theirs.output_ids))
            alike = next((at for at, (a, b) in enumerate(pairs) if a != b), shorter)
            with self.lm.gated(self.removed[number // len(self.prompts)].removed()):
                before = [*ours.prompt_ids, *ours.output_ids[:alike]]
                logits = self.lm.next_logits([before])[0]
            # What ends a text may be any of several tokens.
            ends = logits[list(self.lm.eos_token_ids)].max()
            values = [
                logits[made.output_ids[alike]] if len(made.output_ids) > alike else ends
                for made in (ours, theirs)
            ]
            gaps.append(float((values[0] - values[1]).abs()))
        return {
            "equal": max(gaps, default=0.0) < LOGITS,
            "texts": len(own),
            "texts_that_differ": len(gaps),
            "widest_gap_of_logits": max(gaps, default=0.0),
            "tokens": sum(len(made.output_ids) + (made.stop == "eos") for made in own),
        }


def removal(model: Model, sentences: int, conditions: int, rows: int = 32) -> Case:
    texts = Translations(model, sentences, conditions, rows)
    work = {
        "sentences": len(texts.prompts),
        "conditions": len(texts.removed),
        "shots": model.shots,
        "chat": not texts.special,
        "rows_of_generate": rows,
        "batch_tokens": Removal().batch_tokens,
    }
    warm = Translations(model, 2, 2, rows)
    compared = [(GENERATE, "headscope", texts.check)]
    return Case("removal", work, texts.ways(), compared, texts.cost, warm.ways())


def documents(lm: LanguageModel, count: int, longest: int) -> list[Answered]:
    """English documents of the bundled model's world, put together where they shall be long."""
    each = 1 + longest // 48
    texts = [text.text for text in sample_documents("en", "dev", count * each, 0).documents]
    joined = [" ".join(texts[at : at + each]) for at in range(0, len(texts), each)]
    return [
        Answered(tuple(lm.encode(text)[:longest]), 1, f"document {number}")
        for number, text in enumerate(joined, 1)
    ]


def published_loop(lm: LanguageModel, texts: Sequence[Answered], update: bool) -> Any:
    """LAHIS by its published loop: one document at a time, parameters frozen; (n, L, W)."""
    gate = torch.nn.Parameter(torch.ones(lm.geometry.shape, device=lm.device))
    adam = torch.optim.AdamW([gate], lr=1e-2, weight_decay=1e-2)
    products = []
    with frozen(lm.model):
        for text in texts:
            ids = torch.tensor([text.ids], device=lm.device)
            with lm.gated(gate):
                lm.model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            assert gate.grad is not None
            products.append((gate.detach() * gate.grad).cpu().numpy())
            if update:
                adam.step()
            adam.zero_grad()
    return np.stack(products)


def lahis(model: Model, count: int, longest: int) -> Case:
    lm = model.lm
    texts = documents(lm, count, longest)

    def check(own: Any, other: Any) -> dict[str, Any]:
        one, two = importance(own), importance(other)
        difference = float(np.abs(one - two).max() / np.abs(two).max())
        return {"equal": difference <= CLOSE, "largest_relative_difference": difference}

    def ways(some: Sequence[Answered]) -> dict[str, Callable[[], Timed]]:
        works: dict[str, Callable[[], Any]] = {
            "headscope": lambda: gate_gradients(lm, some).products,
            "headscope --update-gate": lambda: moving_gate_gradients(lm, some).products,
            "the published loop, gate at 1": lambda: published_loop(lm, some, False),
            "the published loop": lambda: published_loop(lm, some, True),
        }
        return {name: partial(here, lm, work) for name, work in works.items()}

    ours, moving, still, loop = timed = ways(texts)
    work = {"documents": len(texts), "tokens": spread([len(text.ids) for text in texts])}
    compared = [(still, ours, check), (loop, moving, check)]
    return Case("lahis", work, timed, compared, backward_cost(texts), ways(texts[:2]))


def published_step(lm: LanguageModel, samples: Sequence[Answered], config: MaskTraining) -> float:
    """A step of Heads Up! as its loop takes it: logits of all tokens, parameters not frozen."""
    count = lm.geometry.layers * lm.geometry.width
    start = torch.from_numpy(starting_weights(config.seed, count, config.mean, config.spread))
    numbers = torch.nn.Parameter(start.to(lm.device))
    adam = torch.optim.AdamW([numbers], lr=config.learning_rate_at(0), weight_decay=0.0)
    rows = [samples[row] for row in rows_of_step(config.seed, 0, config.batch, len(samples))]
    noise = torch.from_numpy(gumbel_noise(config.seed, 0, len(rows), count)).to(lm.device)
    batch = collate([row.ids for row in rows], lm.pad_token_id).to(lm.device)
    learned = torch.zeros(batch.input_ids.shape, device=lm.device)
    for at, row in enumerate(rows):
        learned[at, row.start - len(row.ids) :] = 1
    gates = straight_through(numbers, noise, config.temperature_at(0))
    lm.model.requires_grad_(True)
    try:
        with lm.gated(gates.view(len(rows), *lm.geometry.shape)):
            logits = lm.model(**forward_inputs(lm.model, batch)).logits[:, :-1]
            losses = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), batch.input_ids[:, 1:].flatten(), reduction="none"
            ).view(len(rows), -1)
            counted = learned[:, 1:]
            loss = ((losses * counted).sum(dim=1) / counted.sum(dim=1)).mean()
            loss.backward()
        adam.step()
    finally:
        lm.model.zero_grad(set_to_none=True)
        lm.model.requires_grad_(False)
    return float(loss.detach())


def mask(model: Model, peers: Peers, rows: int) -> tuple[Case, dict[str, str]]:
    """One step of training a mask on sentences with their translations, without instruction."""
    lm = model.lm
    (pairs,) = model.directions(rows).values()
    samples = []
    for pair in pairs.pairs:
        before, whole = lm.encode(f"{pair.source}\n"), lm.encode(f"{pair.source}\n{pair.target}")
        samples.append(Answered(tuple(whole), min(len(before), len(whole) - 1), pair.id))
    # In one step of this length a weight can get from 4 to 0.
    config = MaskTraining(steps=1, batch=rows, learning_rate=10.0, warmup=0.0)

    def ours() -> float:
        return float(train_mask(lm, samples, config).losses[0])

    def halved() -> float:
        with torch.autocast(lm.device.type, dtype=torch.bfloat16):
            return ours()

    def check(own: float, other: float) -> dict[str, Any]:
        return {"equal": abs(own - other) <= CLOSE, "difference_of_losses": abs(own - other)}

    works: dict[str, Callable[[], Any]] = {
        "headscope": ours,
        "headscope, autocast": halved,
        "the published step": lambda: published_step(lm, samples, config),
    }
    ways: dict[str, Callable[[], Timed]] = {
        name: partial(here, lm, work) for name, work in works.items()
    }
    compared: list[Any] = [("the published step", "headscope", check)]
    left_out = {}
    name = "nam-causal-head-gating"
    why = peers.started(name, model.folder)
    if why is None:
        file = peers.scratch / f"{name}-{model.name}.npz"
        starts = np.array([sample.start for sample in samples])
        np.savez(file, ids=pack([list(sample.ids) for sample in samples]), starts=starts)
        ways[name] = partial(peers.work, name, file)
        with torch.no_grad():
            original = float(answer_losses(lm, samples).mean())

        def same_batch(_: float, other: dict[str, float]) -> dict[str, Any]:
            """Its gates are soft, so the loss of the original model is compared."""
            return check(original, other["loss"])

        compared += [(name, ours, same_batch) for ours in ("headscope", "headscope, autocast")]
    else:
        left_out[name] = why
    work = {
        "samples": rows,
        "tokens": spread([len(sample.ids) for sample in samples]),
        "tokens_of_answers": spread([len(sample.ids) - sample.start for sample in samples]),
    }
    return Case("mask", work, ways, compared, backward_cost(samples)), left_out


def rating(model: Model, count: int, batch_tokens: int) -> Case:
    """Losses of documents with heads of the upper half removed, and without."""
    lm = model.lm
    upper = [head for head in lm.geometry.heads() if head.layer >= lm.geometry.layers // 2]
    heads = random.Random(0).sample(upper, max(1, lm.geometry.total // 10))
    gate = HeadSet(lm.geometry, tuple(heads)).removed()
    texts = [text.text for text in sample_documents("en", "dev", count, 0).documents]
    longest = min(2048, lm.context_length)
    both = Ways(lm, gate, batch_tokens, longest)

    def two_passes() -> Any:
        with torch.no_grad():
            return both.two_passes(texts)

    def check(own: Any, other: Any) -> dict[str, Any]:
        difference = float(np.abs(np.array(own) - np.array(other)).max())
        return {"equal": difference <= CLOSE, "largest_difference_of_losses": difference}

    ways = {
        "headscope": partial(here, lm, lambda: both.trater(texts)),
        "two passes": partial(here, lm, two_passes),
    }
    work = {
        "documents": len(texts),
        "batch_tokens": batch_tokens,
        "heads_removed": len(heads),
        "first_layer": min(head.layer for head in heads),
    }
    # What lies below the first removed head is read once.
    times = 2 - work["first_layer"] / lm.geometry.layers
    cost = forward_cost([len(row) for row in both.encode(texts)], 2 / times, times)
    return Case("rating", work, ways, [("two passes", "headscope", check)], cost)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much of each job is done.

    Attributes:
        pairs: of Translation Scores; batches: padded tokens of a batch, None: all sentences.
        removal, losses: sentences, conditions.
        documents: whose gradients are taken; longest: their tokens.
        samples: of a step of a mask.
        rated: documents.
    """

    pairs: int
    batches: tuple[int | None, ...]
    removal: tuple[int, int]
    losses: tuple[int, int]
    documents: int
    longest: tuple[int, ...]
    samples: int
    rated: int


SIZES = {
    "quick": Sizes(2, (None, 512), (2, 2), (3, 3), 2, (16,), 2, 2),
    "small": Sizes(60, (None, 512), (100, 12), (50, 40), 50, (16, 32, 64, 128), 16, 100),
    "smollm2": Sizes(12, (2048,), (32, 2), (12, 8), 0, (), 8, 0),
    "gemma3": Sizes(12, (2048,), (32, 2), (12, 8), 0, (), 0, 0),
    "qwen": Sizes(6, (2048,), (6, 2), (3, 8), 0, (), 0, 0),
    "gpu": Sizes(400, (None, 8192), (50, 4), (50, 40), 32, (128, 2048), 64, 400),
}


def cases(
    model: Model, peers: Peers, jobs: Sequence[str], sizes: Sizes
) -> Iterator[tuple[Case, dict[str, str]]]:
    """The jobs of a model, each with the packages that take no part and why."""
    if "translation-score" in jobs:
        for batch_tokens in sizes.batches:
            yield translation_score(model, peers, sizes.pairs, batch_tokens)
    if "removal-by-loss" in jobs:
        yield removal_by_loss(model, peers, *sizes.losses)
    if "removal" in jobs:
        yield removal(model, *sizes.removal), {}
    if "lahis" in jobs:
        for longest in sizes.longest:
            yield lahis(model, sizes.documents, longest), {}
    if "mask" in jobs and sizes.samples:
        yield mask(model, peers, sizes.samples)
    if "rating" in jobs and sizes.rated:
        yield rating(model, sizes.rated, 2048), {}


def measured(
    case: Case,
    repeats: int,
    clock: str,
    until: float | None = None,
    earlier: Sequence[dict[str, Any]] = (),
) -> Iterator[dict[str, Any]]:
    """A row for each comparison; repeats end after the one at whose end `until` is past, by
    ``time.perf_counter``, and go on from the rows of an `earlier` process. On a GPU with the most
    bytes that each way held."""
    seconds: dict[str, dict[str, list[float]]] = {
        name: {"process": [], "wall": []} for name in case.ways
    }
    for row in earlier:
        seconds |= {name: repeats for name, repeats in row["repeats"].items() if name in seconds}
    made: dict[str, Any] = {}
    peaks: dict[str, int] = {}
    begin = min(len(repeats[clock]) for repeats in seconds.values())
    for number in (0, *range(begin + 1, repeats + 1)):
        if number > begin + 1 and until is not None and time.perf_counter() > until:
            break
        ways = case.ways if number or case.warm is None else case.warm
        turn = list(ways)
        random.Random(number).shuffle(turn)
        for name in turn:
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            took, made[name] = ways[name]()
            if torch.cuda.is_available():
                peaks[name] = torch.cuda.max_memory_allocated()
            if number:
                for kind, value in took.items():
                    seconds[name][kind].append(value)
        if number:
            say(
                f"{case.job} {number}: "
                + ", ".join(f"{name} {repeats[clock][-1]:.3f}" for name, repeats in seconds.items())
            )
    for rival, ours, check in case.rows:
        ratios = [b / a for a, b in zip(seconds[ours][clock], seconds[rival][clock], strict=True)]
        work, logits = case.cost(made[ours])
        yield {
            "job": case.job,
            "against": rival,
            "headscope": ours,
            "ratio": spread(ratios),
            "seconds": {
                name: {kind: median(values) for kind, values in seconds[name].items()}
                for name in (ours, rival)
            },
            "repeats": {name: seconds[name] for name in (ours, rival)},
            "outcome": check(made[ours], made[rival]),
            "work": case.work,
            "tokens": case.tokens or work.tokens,
            "cost": {"work": dataclasses.asdict(work), "logits": logits},
            **({"peak_bytes": {name: peaks[name] for name in (ours, rival)}} if peaks else {}),
        }


def shares(row: dict[str, Any], shape: Shape, peak: Machine, clock: str) -> dict[str, Any]:
    """Of a row of `measured`, tokens a second and the share of the roofline of each way."""
    least = estimate_seconds(Work(**row["cost"]["work"]), shape, peak, row["cost"]["logits"])
    seconds = {way: took[clock] for way, took in row["seconds"].items()}
    return {
        "tokens_per_second": {way: row["tokens"] / took for way, took in seconds.items()},
        "roofline_seconds": least,
        "share_of_roofline": {way: least / took for way, took in seconds.items()},
    }


def roofline(lm: LanguageModel, clock: Callable[[], float]) -> Machine:
    """This device as its fastest large matrix product and its fastest large copy."""
    rate = Rate(matrix_peak(lm, clock)["operations_per_second"])
    numbers = torch.empty(1 << (30 if lm.device.type == "cuda" else 24), device=lm.device)
    copied = torch.empty_like(numbers)
    seconds = []
    for _ in range(5):
        wait(lm)
        began = clock()
        copied.copy_(numbers)
        wait(lm)
        seconds.append(clock() - began)
    return Machine("here", rate, rate, rate, 2 * numbers.nbytes / min(seconds), 0.0, overlaps=True)


def made_model(shape: str, device: str, dtype: str, scratch: Path) -> tuple[Any, Path | None]:
    """A model of a shape with random weights and the bundled tokenizer, whose texts end as often as
    others do; the small one with a folder, where packages read it."""
    from transformers import AutoTokenizer

    model = build(shape, device, dtype)[0].model
    tokenizer = AutoTokenizer.from_pretrained(weights.path())
    model.generation_config.eos_token_id = list(range(ENDS, model.config.vocab_size, ENDS))
    if shape != "small":
        return LanguageModel.wrap(model, tokenizer, shape, check=False), None
    folder = scratch / shape
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return headscope.load(str(folder), device=device, dtype=dtype), folder


def models(given: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, Callable[[], Model]]]:
    """Names of models, and what loads each."""

    def made() -> Model:
        lm, folder = made_model(given.shape, given.device, given.dtype, scratch)
        return Model(given.shape, lm, folder, "en-de", (), 0)

    def read(name: str, shots: int) -> Model:
        source = folder = getattr(given, name)
        lm = headscope.load(str(source), device=given.device, dtype=given.dtype)
        if source.is_file() and given.venvs:
            # Packages read no GGUF.
            folder = scratch / name
            lm.model.save_pretrained(folder)
            lm.tokenizer.save_pretrained(folder)
        return Model(name, lm, folder, given.pair, tuple(given.data), shots)

    yield given.shape, made
    for name, shots in REAL.items():
        if getattr(given, name):
            yield name, partial(read, name, shots)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=JOBS, action="append", help="these jobs alone")
    parser.add_argument("--model", action="append", help="these models alone, as results call them")
    parser.add_argument("--shape", choices=list(SHAPES), default="small")
    parser.add_argument("--venvs", type=Path, help="folder for the environments of packages")
    parser.add_argument("--smollm2", type=Path, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--gemma3", type=Path, help="folder of Gemma 3 270M")
    parser.add_argument("--qwen", type=Path, help="Qwen2.5 0.5B, a GGUF file or a folder")
    parser.add_argument("--data", action="append", default=[], help="sentences for these three")
    parser.add_argument("--pair", default="en-es", help="their direction")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--minutes", type=float, help="end after so many, to be continued")
    parser.add_argument("--out", type=Path, help="also write the JSON there, and go on from it")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs")
    given = parser.parse_args()
    if SHAPES[given.shape].vocabulary < 3072:
        parser.error(f"the vocabulary of {given.shape} is smaller than that of the tokenizer")
    torch.set_num_threads(given.threads)
    until = time.perf_counter() + 60 * given.minutes if given.minutes else None
    clock = "process" if given.device == "cpu" else "wall"
    result: dict[str, Any] = {
        "bench": "peers",
        "started": moment(),
        "machine": machine(given.device),
        "clock": clock,
        "dtype": given.dtype,
        "quick": given.quick,
        "packages": {},
        "models": {},
        "rows": [],
        "left_out": [
            {"model": name, "what": "the model", "why": f"it was not given (--{name})"}
            for name in given.model or REAL
            if not getattr(given, name, True)
        ],
        "done": [],
    }
    own = {key: result["machine"][key] for key in ("commit", "changed_since_commit", "load_before")}
    if given.out and given.out.is_file():
        result |= json.loads(given.out.read_text(encoding="utf-8"))
    result["processes"] = [*result.get("processes", ()), {"started": moment(), **own}]
    left_out = result["left_out"]
    with tempfile.TemporaryDirectory() as scratch:
        peers = Peers(given.venvs, Path(scratch))
        try:
            for name, read in models(given, Path(scratch)):
                jobs = [job for job in JOBS if job in (given.only or JOBS)]
                jobs = [job for job in jobs if [name, job] not in result["done"]]
                if given.model and name not in given.model:
                    continue
                if not jobs or (until is not None and time.perf_counter() > until):
                    continue
                model = read()
                shape, peak = shape_of(model.lm), roofline(model.lm, CLOCKS[clock])
                result["models"][name] = {
                    "layers": model.lm.geometry.layers,
                    "heads": model.lm.geometry.total,
                    "parameters": model.lm.parameters,
                    "sentences": "given" if model.data else "of the bundled model",
                    "operations_a_second": peak.forward.operations,
                    "bytes_a_second": peak.bandwidth,
                }
                sizes = SIZES["quick" if given.quick else name if name in SIZES else "gpu"]
                for job in jobs:
                    if until is not None and time.perf_counter() > until:
                        break
                    whole = True
                    for case, missing in cases(model, peers, [job], sizes):
                        same = [name, case.job, json.loads(json.dumps(case.work))]
                        earlier = [
                            row
                            for row in result["rows"]
                            if [row["model"], row["job"], row["work"]] == same
                        ]
                        result["rows"] = [row for row in result["rows"] if row not in earlier]
                        for row in measured(case, given.repeats, clock, until, earlier):
                            whole &= row["ratio"]["n"] >= given.repeats
                            aim = AIMS.get((job, name, row["against"], row["headscope"]))
                            told = {"model": name, **row, "aim": aim}
                            result["rows"].append(told | shares(row, shape, peak, clock))
                        for package, why in missing.items():
                            missed = {"model": name, "what": f"{case.job}: {package}", "why": why}
                            left_out += [missed] * (missed not in left_out)
                    result["done"] += [[name, job]] * whole
                    result |= {"packages": peers.versions, "load_after": load(), "ended": moment()}
                    if given.out:
                        write(result, given.out)
                peers.stop()
        finally:
            peers.stop()
    tell(result, given.out)


if __name__ == "__main__":
    main()
