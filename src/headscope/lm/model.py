"""A decoder language model together with the knowledge of where its heads are."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

import torch

from headscope.errors import InputError, caution, naming, telling
from headscope.heads import Gate, Geometry, HeadSet
from headscope.heads.adaptation import Adaptation
from headscope.heads.geometry import HeadLike, check_geometry
from headscope.lm import gates, generation, geometry, tokens
from headscope.lm.attention.maps import Attention, attention_of
from headscope.lm.attention.peaks import PeakRequest, Peaks, attention_peaks
from headscope.lm.attention.weights import WeightRequest, Weights, attention_weights
from headscope.lm.batching import (
    UNBOUNDED,
    Batch,
    collate,
    in_halves,
    length_buckets,
    lengths_of,
    longest_shared,
    separated,
)
from headscope.lm.checkpoints import (
    adapter_of,
    digest_of_files,
    digest_of_state,
    state_of_files,
)
from headscope.lm.feed_forward import feed_forward_gated
from headscope.lm.generation import GenerateConfig, Generation, Observer, StopTable
from headscope.lm.generation.settings import check_followed
from headscope.lm.geometry import AttentionSite
from headscope.lm.gguf import is_gguf, open_gguf
from headscope.lm.hooks import text_config
from headscope.lm.identity import identity
from headscope.lm.inputs import evaluating, forward_inputs
from headscope.lm.owners import inner_model, owned, virtual_tokens
from headscope.lm.queries import query_gated
from headscope.lm.replacement import Replacement
from headscope.lm.selfcheck import Noise, Proof, checked
from headscope.lm.tokens import Encoded
from headscope.lm.weights import count_of, input_device, method_of, refuse_wrong_layers
from headscope.progress import Steps

#: Identities of models that are settled, by the models' ids.
_SETTLED: ContextVar[Mapping[int, str]] = ContextVar("settled", default=MappingProxyType({}))

T = TypeVar("T")
Ids = TypeVar("Ids", bound=Sequence[int])


@dataclasses.dataclass(frozen=True, eq=False)
class LanguageModel:
    """A model whose attention heads can be gated, watched and scored.

    Made by `headscope.load` or `LanguageModel.wrap`, never directly.  The model, its
    configuration and its tokenizer stay as they are; gates and observers are contexts.

    Attributes:
        model: the ``transformers`` model.
        tokenizer_or_none: its tokenizer, or None; `tokenizer` raises where there is none.
        geometry: number of query heads of each decoder layer.
        sites: attention module and output projection of each layer that has heads.
        name: how the model was named when it was loaded.
        revision: commit of a model from the Hub, else None.
        folder: where its files are (for one from a GGUF file, that file), or None for a model that
            was wrapped.
        noise: how far repeated passes over the same tokens lie apart, from the self-check; None
            without one.
        proved: when the self-check was passed (UTC), which may be before; None without one.
        system: the system message of prompts that go through the chat template; "" for none, None
            for what the template has; see `with_system`.
        loaded_as: `identity` when its files were read, for a model that its user can change; None
            otherwise.
        files: their state then (see `headscope.lm.checkpoints.state_of_files`).
        generation_config: whether texts follow the checkpoint's generation settings; see
            `with_generation_config`.
    """

    model: Any
    tokenizer_or_none: Any
    geometry: Geometry
    sites: tuple[AttentionSite, ...]
    name: str
    _: dataclasses.KW_ONLY
    revision: str | None = None
    folder: Path | None = None
    noise: Noise | None = None
    proved: str | None = None
    system: str | None = None
    loaded_as: str | None = None
    files: tuple[Any, ...] | None = None
    generation_config: bool = False

    @classmethod
    def wrap(
        cls,
        model: Any,
        tokenizer: Any = None,
        name: str = "model",
        *,
        revision: str | None = None,
        folder: Path | None = None,
        check: bool = True,
        prove: Callable[[LanguageModel], Proof] = checked,
        within_reach: bool = True,
    ) -> LanguageModel:
        """Take a model that is already loaded, as it is: nothing of it changes.

        It is a decoder of ``transformers``, or an adapter model around one; without a tokenizer,
        token ids can be used but no texts. Where its `folder` is known the digest is that of its
        weight files. `check` runs the self-check (a few forward passes over a few tokens), or
        `prove` in its place. A model that is not `within_reach` of its user stays as its files
        say. Raises `InputError` if the heads cannot be found or it fails.
        """
        if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
            raise InputError(
                f"LanguageModel.wrap needs a transformers model, not {type(model).__name__}; "
                "use headscope.load for a name or a folder."
            )
        if getattr(model.config, "is_encoder_decoder", False):
            raise InputError(
                f"{type(model).__name__} is an encoder-decoder; headscope needs a decoder "
                "language model such as Llama, Qwen or GPT-2."
            )
        if tokenizer is not None:
            tokens.check_tokenizer(tokenizer)
        refuse_wrong_layers(model)
        virtual_tokens(model)
        with telling(
            lambda why: (
                f"{name}: a pass over a few tokens fails ({why}); correct its configuration, or "
                "use another model."
            )
        ):
            found = geometry.probe(model, tokenizer)
        lm = cls(model, tokenizer, *found, name, revision=revision, folder=folder)
        if check and tokenizer is not None and (end := tokens.added_end(tokenizer)):
            caution(
                f"the tokenizer of {name} ends every text with {lm.decode(end, special=True)}; "
                "it is left out of prompts and answers, and kept where whole documents are "
                "scored"
            )
        lm = dataclasses.replace(lm, **prove(lm)._asdict()) if check else lm
        if folder is not None and within_reach:
            lm = dataclasses.replace(lm, loaded_as=lm.identity)
        return lm

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        facts = (repr(self.name), type(self.shell).__name__, self.geometry, dtype, self.device)
        return f"{type(self).__name__}({', '.join(map(str, facts))})"

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; raises `InputError` where the model was wrapped without one."""
        if self.tokenizer_or_none is None:
            raise InputError(
                f"The model {self.name!r} has no tokenizer, so it cannot read text; pass one to "
                "LanguageModel.wrap(model, tokenizer)."
            )
        return self.tokenizer_or_none

    def with_system(self, system: str | None) -> LanguageModel:
        """The same model, whose chat template is given this system message (see `ChatWriter`)."""
        other = copy.copy(self)
        vars(other)["system"] = system
        return other

    def with_generation_config(self, followed: bool = True) -> LanguageModel:
        """The same model, whose texts follow the generation settings of its checkpoint or not (see
        `headscope.lm.generation.settings`); raises `InputError` if they cannot be followed."""
        other = copy.copy(self)
        vars(other)["generation_config"] = followed
        if followed:
            check_followed(other)
        return other

    @property
    def shell(self) -> Any:
        """The model where only its configuration is asked for, whether or not it has weights."""
        return self.model

    @property
    def layers_name(self) -> str:
        """Qualified name of the list of decoder layers."""
        parts = self.sites[0].attention_name.split(".")
        return ".".join(itertools.takewhile(lambda part: not part.isdigit(), parts))

    @property
    def decoder(self) -> torch.nn.Module:
        """The module that holds the list of decoder layers: every forward pass enters it."""
        decoder: torch.nn.Module = self.model.get_submodule(self.layers_name.rpartition(".")[0])
        return decoder

    @property
    def decoder_layers(self) -> list[torch.nn.Module]:
        """The decoder layers in order, those without heads included."""
        return list(self.model.get_submodule(self.layers_name).children())

    @property
    def device(self) -> torch.device:
        """Where token ids go: the device on which the embeddings are looked up."""
        return input_device(self.model)

    @property
    def pass_overhead(self) -> int:
        """What a forward pass costs beside its tokens, in tokens, to weigh against padding.

        Little where a processor does all the work itself (40 were measured on one core), much where
        a device waits for its next kernel, and most where weights are brought in for each pass.
        """
        if any(weight.device.type == "meta" for weight in self.model.parameters()):
            return 1 << 20
        return 64 if self.device.type == "cpu" else 1024

    @property
    def dtype(self) -> torch.dtype:
        """Dtype the model computes in."""
        return cast(torch.dtype, self.model.dtype)

    @property
    def quantised(self) -> str | None:
        """How the weights are quantised, such as ``bitsandbytes 4 bits``; None: they are not."""
        return method_of(self.model)

    @property
    def dequantised(self) -> str | None:
        """How the weights were quantised in the GGUF file that they were read from, such as
        ``Q4_K_M``; None: they were not, or the model is not from such a file."""
        if self.folder is None or not is_gguf(self.folder):
            return None
        return open_gguf(self.folder, self.name).quantised

    @property
    def parameters(self) -> int:
        """How many numbers the model learned; two 4-bit ones that share a byte count as two."""
        return sum(count_of(parameter) for parameter in self.model.parameters())

    @property
    def key_value_heads(self) -> tuple[int, ...]:
        """Heads of keys and values of each layer; see `headscope.lm.geometry.key_value_heads`."""
        return geometry.key_value_heads(self)

    @property
    def context_length(self) -> int:
        """Longest row of tokens; `UNBOUNDED` where neither model nor tokenizer sets a bound."""
        config = text_config(self.shell)
        names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
        bounds = [getattr(config, name, None) for name in names]
        bounds.append(getattr(self.tokenizer_or_none, "model_max_length", None))
        # Tokenizers without a bound carry a number with thirty digits.
        numbers = [b for b in bounds if isinstance(b, int) and 0 < b < UNBOUNDED]
        # These rotations are made for so many times the length of training.
        rope = getattr(config, "rope_parameters", None) or {}
        times = rope.get("factor") if "dynamic" in str(rope.get("rope_type")) else None
        return int(numbers[0] * max(1.0, times or 1.0)) if numbers else UNBOUNDED

    @functools.cached_property
    def longest_shared(self) -> int:
        """The longest row that may share a batch with rows of other lengths; see
        `headscope.lm.batching.longest_shared`."""
        return longest_shared(text_config(self.shell))

    @functools.cached_property
    def _rotations(self) -> list[Any]:
        """The modules whose rotations follow the longest row they have met."""
        if self.longest_shared == UNBOUNDED:
            return []
        return [part for part in self.model.modules() if hasattr(part, "max_seq_len_cached")]

    def check_lengths(self, rows: Sequence[Sequence[int]]) -> None:
        """Raises `InputError` if a row of tokens is longer than the context."""
        for number, length in enumerate(lengths_of(rows)):
            if length > self.context_length:
                raise InputError(
                    f"Row {number} has {length} tokens, but the model's context holds at most "
                    f"{self.context_length}; shorten it."
                )

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a text, from the model's generation settings, its configuration, its
        tokenizer and its chat template, in ascending order."""
        places = (
            getattr(getattr(self.shell, "generation_config", None), "eos_token_id", None),
            getattr(text_config(self.shell), "eos_token_id", None),
            getattr(self.tokenizer_or_none, "eos_token_id", None),
            tokens.end_of_turn(self.tokenizer_or_none),
        )
        ids: set[int] = set()
        for place in places:
            several = place if isinstance(place, list | tuple) else (place,)
            ids.update(index for index in several if isinstance(index, int) and index >= 0)
        return tuple(sorted(ids))

    @property
    def pad_token_id(self) -> int:
        """Id written where rows are padded: the tokenizer's, else an end of text, else 0; the
        first of them that the model has an embedding of.

        Padding is always masked, so the choice changes no result.
        """
        own: int | None = getattr(self.tokenizer_or_none, "pad_token_id", None)
        tried = [*self.eos_token_ids] if own is None else [own, *self.eos_token_ids]
        return next((index for index in tried if 0 <= index < self.vocabulary), 0)

    @property
    def unknown_tokens(self) -> tuple[str, ...]:
        """Special tokens of the tokenizer that the model has no embedding of, by id."""
        if self.tokenizer_or_none is None:
            return ()
        special = sorted(tokens.special_tokens(self.tokenizer).items())
        return tuple(name for index, name in special if not 0 <= index < self.vocabulary)

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of the weights and of what the model does with them now.

        Of the files that `transformers` reads them from (names and contents, by name), as long as
        the model is as `headscope.load` left it; else of its state dict (names, dtypes, shapes and
        bytes, by name) and its `identity`. Raises `InputError` as `identity` does.
        """
        now = self.identity if self.within_reach else None
        waits = self.within_reach and any(weight.is_meta for weight in self.model.parameters())
        outlived = not self.files_are_there() if waits or now not in self._digests else False
        if outlived and (waits or not self.within_reach):
            raise InputError(
                f"the weight files of {self.name} were changed since it was loaded; load it again"
            )
        if now not in self._digests:
            if self.folder is None or now != self.loaded_as or outlived:
                own = digest_of_state(self.model)
                self._digests[now] = hashlib.sha256(f"{own} {now}".encode()).hexdigest()
            else:
                self._digests[now] = digest_of_files(self.folder)
        return self._digests[now]

    @property
    def identity(self) -> str:
        """What a pass depends on now, weights included; see `headscope.lm.identity`. Inside
        `settled` what it was at its beginning."""
        return _SETTLED.get().get(id(self.model)) or self.identity_now()

    def identity_now(self, functions: bool = True) -> str:
        """`identity`, looked up now; or without what functions of the user's do."""
        self.forget_lengths()
        return identity(self.model, functions)

    @contextlib.contextmanager
    def settled(self) -> Iterator[None]:
        """Look the model up once for all that asks inside the block, if it is `within_reach`."""
        now = {id(self.model): self.identity_now()} if self.within_reach else {}
        before = _SETTLED.set({**_SETTLED.get(), **now})
        try:
            yield
        finally:
            _SETTLED.reset(before)

    @functools.cached_property
    def _digests(self) -> dict[str | None, str]:
        """Digests that are known, by `identity`; of a model out of reach by None."""
        return {}

    @property
    def within_reach(self) -> bool:
        """Whether its user holds it, and can change it between two calls."""
        return self.folder is None or self.loaded_as is not None

    def files_are_there(self) -> bool:
        """Whether the files are still those that the weights were, or will be, read from."""
        return self.folder is None or self.files in (None, state_of_files(self.folder))

    @property
    def adapter(self) -> str | None:
        """The adapter that is applied to the weights of its folder, such as ``LORA (rank 4, alpha
        8)``; None: none."""
        return None if self.folder is None else adapter_of(self.folder)

    @property
    def stop_table(self) -> StopTable:
        """What every token id means for the end of a text; made once for each set of ends."""
        tables = vars(self).setdefault("_stop_tables", {})
        ends = self.eos_token_ids
        if ends not in tables:
            tables[ends] = StopTable(self)
        made: StopTable = tables[ends]
        return made

    @property
    def vocabulary(self) -> int:
        """How many tokens the model has an embedding of."""
        embedding = inner_model(self.shell).get_input_embeddings()
        return int(getattr(embedding, "num_embeddings", None) or embedding.weight.shape[0])

    def encode(
        self, text: str, special: bool = True, most: int | None = None, *, closed: bool = False
    ) -> list[int]:
        """Token ids of ``text`` by the tokenizer's own defaults, special tokens included, none of
        them twice; without ``special`` none are added to those that the text holds.

        An end that the tokenizer puts behind every text is left out, so that the text can go on;
        ``closed`` keeps it, for whole documents. With ``most`` the first so many of the ids, or as
        many as the context holds. Raises `InputError` if the model has no embedding of a token.
        """
        if not isinstance(text, str):
            raise InputError(f"a text is wanted, not {text!r:.60} ({type(text).__name__})")
        ids: list[int] = tokens.tokenized(self.tokenizer, text, special)["input_ids"]
        ids = ids[tokens.own_tokens(self.tokenizer, text, ids, closed)] if special else ids
        ids = ids if most is None else ids[: min(most, self.context_length)]
        return self.known(ids)

    def encoded(self, text: str, special: bool = True) -> Encoded:
        """The tokens of `encode` with the characters that each stands for; see
        `headscope.lm.tokens.encode`."""
        made = tokens.encode(self.tokenizer, text, special)
        self.known(made.ids)
        return made

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of tokens; see `headscope.lm.tokens.decode`."""
        return tokens.decode(self.tokenizer, ids, special)

    def known(self, ids: Ids) -> Ids:
        """The same token ids; `InputError` names one that the model has no embedding of."""
        if ids and not 0 <= min(ids) <= max(ids) < self.vocabulary:
            wrong = next(index for index in ids if not 0 <= index < self.vocabulary)
            reads = self.tokenizer_or_none is not None and wrong >= 0
            name = f" {self.decode([wrong], special=True)!r}" if reads else ""
            raise InputError(
                f"{self.name} has no embedding of the token{name} (id {wrong}; it knows "
                f"{self.vocabulary:,}); leave it out of texts (--no-chat where a chat template "
                "writes it), or give the tokenizer that the model was trained with"
            )
        return ids

    def collate(self, rows: Sequence[Sequence[int]]) -> Batch:
        """Rows of token ids padded on the left; see `headscope.lm.batching.collate`.

        Raises `InputError` if rows of unlike lengths may not share a batch (see `buckets`).
        """
        lengths = lengths_of(rows)
        if len(separated(range(len(rows)), lengths, self.longest_shared)) > 1:
            raise InputError(
                f"{self.name} computes rows of more than {self.longest_shared} tokens otherwise "
                f"than shorter ones; pass the row of {max(lengths)} tokens alone."
            )
        batch = collate(rows, self.pad_token_id)
        self.known([int(batch.input_ids.min()), int(batch.input_ids.max())])
        return batch

    def forward(self, batch: Batch, logits: bool = True, **options: Any) -> Any:
        """What the model returns for a batch (see `headscope.lm.inputs.forward_inputs`)."""
        with owned(self.model):
            self.forget_lengths()
            return self.model(**(forward_inputs(self.model, batch, logits) | options))

    def forget_lengths(self) -> None:
        """Let the next pass compute as if it were the model's first.

        Rotations that grow with the longest row (``dynamic``) stay so in later, shorter rows.
        """
        for module in self._rotations:
            for name in [name for name, _ in module.named_buffers(recurse=False)]:
                own, marked, _ = name.partition("original_inv_freq")
                if marked and getattr(module, f"{own}max_seq_len_cached", None) is not None:
                    plain = getattr(module, name).to(getattr(module, f"{own}inv_freq").device)
                    module.register_buffer(f"{own}inv_freq", plain.clone(), persistent=False)
                    setattr(module, f"{own}max_seq_len_cached", module.original_max_seq_len)

    def next_logits(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """The logits (B, V), float32, of what follows each row; no gradient."""
        found: dict[int, torch.Tensor] = {}
        with evaluating(self.model), torch.no_grad():
            for some in self.separated(lengths_of(rows)):
                batch = self.collate([rows[at] for at in some])
                logits: torch.Tensor = self.forward(batch, logits=False).logits
                found.update(zip(some, logits[:, -1].float(), strict=True))
        return torch.stack([found[at] for at in range(len(rows))])

    def separated(self, lengths: Sequence[int]) -> list[list[int]]:
        """Rows of these lengths in as few batches as give each what it has alone: one, but for
        rows beyond `longest_shared`."""
        return separated(range(len(lengths)), lengths, self.longest_shared)

    def buckets(
        self,
        lengths: Sequence[int],
        batch_tokens: int,
        overhead: int | None = None,
        widths: Sequence[int] | None = None,
    ) -> list[list[int]]:
        """Rows of these lengths as batches of this model; see
        `headscope.lm.batching.length_buckets`.

        Without `overhead` each batch is read in one pass. `widths` are the lengths of the rows when
        they are collated, if they grow from there.
        """
        overhead = self.pass_overhead if overhead is None else overhead
        return length_buckets(lengths, batch_tokens, overhead, self.longest_shared, widths)

    def in_batches(
        self, lengths: Iterable[int], batch_tokens: int, work: Callable[[list[int]], T]
    ) -> Iterator[tuple[list[int], T]]:
        """What ``work`` makes of rows of these lengths, batch by batch, each read in one pass.

        See `headscope.lm.batching`: similar lengths share a batch, halved where memory is short.
        """
        return in_halves(self.buckets([*lengths], batch_tokens), work)

    def gated(
        self,
        gate: Gate | torch.Tensor,
        replacement: Replacement | None = None,
    ) -> AbstractContextManager[None]:
        """Apply a gate inside a ``with`` block; see `headscope.lm.gates.gated`."""
        return gates.gated(self, gate, replacement)

    @contextlib.contextmanager
    def adapted(self, adaptation: Adaptation) -> Iterator[None]:
        """Apply an adaptation, gates of heads or queries and of feed-forward parts, inside a
        ``with`` block; contexts nest, and numbers multiply.

        Raises `InputError` if it is of another geometry, or the model's feed-forward parts or
        queries cannot be gated.
        """
        gate, parts = adaptation.gate, adaptation.feed_forward
        with naming(adaptation.name):
            check_geometry(gate, self.geometry, "the gate")
        with contextlib.ExitStack() as stack:
            if adaptation.place == "query":
                stack.enter_context(query_gated(self, torch.from_numpy(gate.values.copy())))
            else:
                stack.enter_context(self.gated(gate))
            if parts is not None:
                stack.enter_context(feed_forward_gated(self, torch.from_numpy(parts.copy())))
            yield

    def attention_peaks(self, request: PeakRequest | None = None) -> AbstractContextManager[Peaks]:
        """Record where heads look inside a ``with`` block; see `headscope.lm.attention.peaks`."""
        return attention_peaks(self, request)

    def attention_weights(self, request: WeightRequest) -> AbstractContextManager[Weights]:
        """Record exact attention on chosen keys inside a ``with`` block; see
        `headscope.lm.attention.weights`."""
        return attention_weights(self, request)

    def attention(
        self,
        text: str | tuple[str, str],
        heads: HeadSet | HeadLike | Iterable[HeadLike] | None = None,
    ) -> Attention:
        """What every token of a text, or of a prompt and its answer, attends to: `weights` float32
        (layers, heads, queries, keys); see `headscope.lm.attention.maps.attention_of`."""
        return attention_of(self, text, heads)

    def generate(
        self,
        prompts: Sequence[str] | str,
        config: GenerateConfig | None = None,
        limits: Sequence[int] | None = None,
        observe: Observer | None = None,
        special: bool = True,
        *,
        gates: Sequence[Gate] | torch.Tensor | None = None,
        replacement: Replacement | None = None,
        progress: Steps | None = None,
        max_new_tokens: int | None = None,
    ) -> list[Generation]:
        """Continue prompts greedily, each under a gate of its own if there are ``gates``; see
        `headscope.lm.generation.generate`.

        ``max_new_tokens`` given here replaces that of ``config``.
        """
        if max_new_tokens is not None:
            config = dataclasses.replace(config or GenerateConfig(), max_new_tokens=max_new_tokens)
        with owned(self.model):
            return generation.generate(
                self,
                prompts,
                config,
                limits,
                observe,
                special,
                gates=gates,
                replacement=replacement,
                progress=progress,
            )
