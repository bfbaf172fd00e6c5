"""Making the pocket model: its tokenizer, its shape, and its training from scratch.

Training is resumable at any step and the same for the same seed: the batches of a step depend on
the seed and the step alone, and the state is written atomically, so a run that was killed goes on
as if it had not been.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.pocket.mixture import Document, documents
from headscope.settings import Option, Settings

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

    from headscope.heads import Geometry

VOCABULARY = 3072
BOS, EOS, PAD = "<bos>", "<eos>", "<pad>"
CONTEXT = 1024

#: One user message becomes the bare prompt of the mixture: the text, then "Answer:".
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %} {{ message['content'] }}{{ eos_token }}"
    "{% else %}{{ message['content'] }}\nAnswer:{% endif %}{% endfor %}"
)
#: Share of documents whose prompt is learned too. The source sentence of a translation cannot be
#: foreseen, and computing its loss every time costs a quarter of a step on a CPU.
PROMPT_SHARE = 0.2
#: Steps whose batches are drawn together, so that documents of like length share a batch.
GROUP = 16
Encoded = tuple[list[int], int]
"""The token ids of a document, and where what is learned of it begins."""
#: Share of a training on a corpus after which documents of every length are let in.
RAMP = 0.5


@dataclass(frozen=True)
class Batch:
    """Token ids (B, T) padded on the right, and which positions' next token is learned (B, T)."""

    input_ids: torch.Tensor
    learned: torch.Tensor


@dataclass(frozen=True)
class PocketTraining(Settings):
    """How to train.

    `batch_tokens` counts padded tokens a step; rates are per parameter group. Short documents
    come first: group number n admits targets of up to `first_words` + n × `more_words` words.
    On few words there is little to look at, so heads find the right one much sooner.

    Then come `dropout_steps` with optimizers begun afresh, at `dropout_rate` of the full rates,
    in which each head of each document is removed with probability `head_dropout` (DropHead, Zhou
    et al. 2020). Without them a few heads of the lower layers are needed for everything, so that
    removing random heads breaks the model and is no control.

    `corpus` is the digest of the documents trained on, where they are not the world's own stream.
    """

    steps: Annotated[
        int,
        Option("Steps before those with head dropout; none: as shipped.", min=1, default=None),
    ] = 6400
    batch_tokens: int = 2048
    matrix_rate: float = 0.02
    other_rate: float = 0.003
    warmup: int = 60
    decay_share: float = 0.5
    weight_decay: float = 0.01
    first_words: int = 4
    more_words: float = 0.5
    seed: options.Seed = 0
    checkpoints: tuple[int, ...] = (32, 128, 320, 800, 1800, 3600, 6400)
    dropout_steps: int = 300
    dropout_rate: float = 0.1
    dropout_warmup: int = 20
    head_dropout: float = 0.12
    corpus: str = ""

    @property
    def all_steps(self) -> int:
        return self.steps + self.dropout_steps


def train_pocket(
    out: Path,
    config: PocketTraining = PocketTraining(),
    device: str = "cpu",
    save_every: int = 200,
    stop_after: int | None = None,
    given: Sequence[Batch] | None = None,
    quiet: bool = False,
) -> Path:
    """Train all steps of `config` and return the folder with the final weights (bf16).

    `out` holds `state/` (to resume from), `log.jsonl`, and one folder a checkpoint, named
    `step-00032` and so on; the last one is `final`. `stop_after` ends the work early (the state
    is kept), for tests. `given` are the batches of all steps, where documents other than the
    world's stream are trained on; they are taken to be what `config.corpus` is the digest of.
    The steps are reported on stderr unless `quiet`, and in the log.
    """
    import torch

    from headscope.lm import LanguageModel

    out.mkdir(parents=True, exist_ok=True)
    _own_folder(out, config)
    tokenizer = _tokenizer(out, config.seed)
    model: Any = new_model(tokenizer, config.seed)
    model.to(device)
    optimizers = _optimizers(model, config)
    done = _resume(out / "state", model, optimizers, device)
    started, tokens = time.time(), 0
    if given is not None and len(given) != config.all_steps:
        raise InputError(f"{len(given)} batches were given for {config.all_steps} steps")
    batches = (
        step_batches(tokenizer, config, first=done) if given is None else islice(given, done, None)
    )
    lm = LanguageModel.wrap(model, tokenizer, check=False)
    model.train()
    for step in range(done, config.all_steps):
        if step == config.steps:
            optimizers = _optimizers(model, config)
        rate = _rate(step, config)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["full_rate"] * rate
        batch = next(batches)
        gate = head_gate(lm.geometry, config, step, len(batch.input_ids))
        with nullcontext() if gate is None else lm.gated(gate):
            loss = batch_loss(model, batch, device)
            torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        tokens += batch.input_ids.numel()
        finished = step + 1
        if finished in config.checkpoints:
            save_weights(model, tokenizer, out / f"step-{finished:05d}")
        if finished % 20 == 0 or finished == config.all_steps:
            line = _log(
                out, finished, config.all_steps, float(loss.detach()), tokens, started, done
            )
            if not quiet:
                print(line, file=sys.stderr, flush=True)
        stop = stop_after is not None and finished - done >= stop_after
        if finished % save_every == 0 or finished == config.all_steps or stop:
            _save_state(out / "state", model, optimizers, finished)
        if stop:
            return out / "state"
    save_weights(model, tokenizer, out / "final")
    return out / "final"


def head_gate(
    geometry: Geometry, config: PocketTraining, step: int, rows: int
) -> torch.Tensor | None:
    """Which heads each document of a step keeps: 0 or 1, float32 (B, L, W); None for all heads."""
    if step < config.steps:
        return None
    import torch

    seed = random.Random(f"heads {config.seed} {step}").getrandbits(62)
    drawn = torch.rand((rows, *geometry.shape), generator=torch.Generator().manual_seed(seed))
    return (drawn >= config.head_dropout).float()


def batch_loss(model: Qwen3ForCausalLM, batch: Batch, device: str) -> torch.Tensor:
    """Mean next-token loss over the learned positions; logits are made for those alone."""
    import torch

    ids, learned = batch.input_ids.to(device), batch.learned.to(device)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    keep = learned[:, :-1]
    logits = model.lm_head(hidden[keep])
    return torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][keep])


def _optimizers(model: Qwen3ForCausalLM, config: PocketTraining) -> list[Any]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms."""
    import torch

    layers = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    muon = torch.optim.Muon(layers, lr=config.matrix_rate, weight_decay=config.weight_decay)
    adam = torch.optim.AdamW(rest, lr=config.other_rate, betas=(0.9, 0.98), weight_decay=0.0)
    for optimizer, rate in ((muon, config.matrix_rate), (adam, config.other_rate)):
        for group in optimizer.param_groups:
            group["full_rate"] = rate
    return [muon, adam]


def _rate(step: int, config: PocketTraining) -> float:
    """Linear warm-up, flat, then linear to nought over the last `decay_share` of the steps.

    The steps with head dropout rise and fall likewise, falling over their last four fifths.
    """
    if step >= config.steps:
        done = step - config.steps
        left = (config.dropout_steps - done) / (0.8 * config.dropout_steps)
        return config.dropout_rate * min(1.0, (done + 1) / config.dropout_warmup, left)
    left = (config.steps - step) / (config.decay_share * config.steps)
    return min(1.0, (step + 1) / config.warmup, left)


def save_weights(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """An ordinary checkpoint folder in bf16, complete or absent."""
    import copy

    import torch

    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    half: Any = copy.deepcopy(model)
    half.to("cpu", torch.bfloat16).eval()
    half.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)


def _own_folder(out: Path, config: PocketTraining) -> None:
    note, wanted = out / "training.json", json.dumps(asdict(config), indent=1)
    if not note.exists():
        write_bytes(note, f"{wanted}\n".encode())
    elif json.loads(note.read_text()) != json.loads(wanted):
        raise InputError(
            f"{out} holds a training run with other settings ({note.name} tells which): "
            "give another --out, or the same settings to go on"
        )


def _tokenizer(out: Path, seed: int) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    folder = out / "tokenizer"
    if not folder.exists():
        partial = out / "tokenizer.partial"
        train_tokenizer(seed).save_pretrained(partial)
        os.replace(partial, folder)
    loaded: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
    return loaded


def _save_state(folder: Path, model: Any, optimizers: list[Any], step: int) -> None:
    from safetensors.torch import save_file

    tensors = {f"model.{n}": p.detach().cpu().contiguous() for n, p in model.named_parameters()}
    for number, optimizer in enumerate(optimizers):
        for key, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{number}.{key}.{name}"] = value.detach().cpu().contiguous()
    folder.mkdir(exist_ok=True)
    partial = folder / "state.safetensors.partial"
    save_file(tensors, partial, metadata={"step": str(step)})
    os.replace(partial, folder / "state.safetensors")


def _resume(folder: Path, model: Any, optimizers: list[Any], device: str) -> int:
    """Load a saved state, if there is one, and return the number of steps done."""
    import torch
    from safetensors import safe_open

    path = folder / "state.safetensors"
    if not path.exists():
        return 0
    with safe_open(path, "pt") as stored:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(stored.get_tensor(f"model.{name}"))
        names = list(stored.keys())
        for number, optimizer in enumerate(optimizers):
            state: dict[int, dict[str, torch.Tensor]] = {}
            prefix = f"optimizer.{number}."
            for name in names:
                if name.startswith(prefix):
                    key, field = name.removeprefix(prefix).split(".")
                    state.setdefault(int(key), {})[field] = stored.get_tensor(name).to(device)
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        return int(stored.metadata()["step"])


def _log(
    out: Path, step: int, steps: int, loss: float, tokens: int, started: float, first: int
) -> str:
    """Write one line of the log and return it in words."""
    seconds = time.time() - started
    left = seconds / max(1, step - first) * (steps - step)
    record = {"step": step, "loss": loss, "tokens": tokens, "seconds": round(seconds, 1)}
    with (out / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(record) + "\n")
    return (
        f"step {step}/{steps}  loss {loss:.3f}  {tokens / seconds:,.0f} tokens/s  "
        f"{left / 60:.0f} min left"
    )


def step_batches(
    tokenizer: PreTrainedTokenizerFast, config: PocketTraining, first: int = 0
) -> Iterator[Batch]:
    """The batches from step `first` on; what a step sees depends on the seed and the step."""
    group = first // GROUP
    skip = first % GROUP
    while True:
        yield from _group(tokenizer, config, group)[skip:]
        group, skip = group + 1, 0


def _group(tokenizer: PreTrainedTokenizerFast, config: PocketTraining, number: int) -> list[Batch]:
    """`GROUP` batches of documents of like length, in random order."""
    rng = random.Random(f"group {config.seed} {number}")
    stream = documents("train", f"{config.seed} {number}")
    wanted = GROUP * config.batch_tokens
    encoded: list[Encoded] = []
    size = 0
    longest = config.first_words + number * config.more_words
    while size < wanted * 1.1:
        short = [d for d in islice(stream, 256) if len(d.target.split()) <= longest]
        for ids, start in _encode(tokenizer, short):
            encoded.append((ids, 0 if rng.random() < PROMPT_SHARE else start))
            size += len(ids)
    return _batches(tokenizer, encoded, config.batch_tokens, rng)[:GROUP]


def _batches(
    tokenizer: PreTrainedTokenizerFast,
    encoded: list[Encoded],
    batch_tokens: int,
    rng: random.Random,
) -> list[Batch]:
    chunks: list[list[Encoded]] = [[]]
    for pair in sorted(encoded, key=lambda pair: len(pair[0])):
        if chunks[-1] and (len(chunks[-1]) + 1) * len(pair[0]) > batch_tokens:
            chunks.append([])
        chunks[-1].append(pair)
    rng.shuffle(chunks)
    return [_collate(tokenizer, chunk) for chunk in chunks]


def _encode(tokenizer: PreTrainedTokenizerFast, batch: list[Document]) -> Iterator[Encoded]:
    """Token ids of each document with its end mark, and where its target begins.

    Prompt and target are separate pieces of the tokenizer's first split (the target begins with
    a space), so encoding them apart gives the same tokens as encoding them as one string.
    """
    prompts = tokenizer([d.prompt for d in batch], add_special_tokens=False)["input_ids"]
    targets = tokenizer(
        [f" {d.target}" if d.prompt else d.target for d in batch], add_special_tokens=False
    )["input_ids"]
    for prompt, target in zip(prompts, targets, strict=True):
        yield [tokenizer.bos_token_id, *prompt, *target, tokenizer.eos_token_id], len(prompt)


def _collate(tokenizer: PreTrainedTokenizerFast, chunk: list[Encoded]) -> Batch:
    import torch

    width = max(len(ids) for ids, _ in chunk)
    input_ids = torch.full((len(chunk), width), int(tokenizer.pad_token_id))
    learned = torch.zeros((len(chunk), width), dtype=torch.bool)
    for row, (ids, start) in enumerate(chunk):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        learned[row, start : len(ids) - 1] = True
    return Batch(input_ids, learned)


def corpus_batches(
    tokenizer: PreTrainedTokenizerFast, corpus: Sequence[Document], batch_tokens: int, seed: int
) -> list[Batch]:
    """Batches that hold every document of `corpus` once, the same for the same seed.

    Short documents open the training, as in the world's own stream: over the first `RAMP` of it
    longer and longer ones are let in. Documents of like length share a batch.
    """
    rng = random.Random(f"corpus {seed}")
    encoded = [
        (ids, 0 if rng.random() < PROMPT_SHARE else begins)
        for start in range(0, len(corpus), 4096)
        for ids, begins in _encode(tokenizer, list(corpus[start : start + 4096]))
    ]
    longest = max((len(ids) for ids, _ in encoded), default=1)
    placed = []
    for pair in encoded:
        opens = RAMP * len(pair[0]) / longest
        placed.append((opens + (1 - opens) * rng.random(), pair))
    placed.sort(key=lambda place: place[0])
    batches: list[Batch] = []
    group: list[Encoded] = []
    size = 0
    for _, pair in placed:
        group.append(pair)
        size += len(pair[0])
        if size >= GROUP * batch_tokens:
            batches += _batches(tokenizer, group, batch_tokens, rng)
            group, size = [], 0
    return batches + (_batches(tokenizer, group, batch_tokens, rng) if group else [])


def train_tokenizer(seed: int = 0, texts: int = 60_000) -> PreTrainedTokenizerFast:
    """A byte-level BPE of `texts` documents of the train split (about half a minute).

    Any text of any language can be given to the model. Like most decoders' tokenizers it puts a
    `<bos>` before every text by itself.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    stream = islice(documents("train", f"tokenizer-{seed}"), texts)
    tokenizer.train_from_iterator((f"{d.prompt} {d.target}" for d in stream), trainer)
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos)]),
        ]
    )
    make: Any = PreTrainedTokenizerFast
    fast: PreTrainedTokenizerFast = make(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """A randomly initialised pocket model in float32 (2.2 million parameters).

    A small Qwen3 with 96 query heads in groups of four. Qwen3 rather than Llama because it
    normalises queries and keys: without that, attention of a model this small saturates early in
    training and heads that copy or align never form.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=160,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)
