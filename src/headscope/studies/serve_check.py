"""Whether a running server applies a gate as headscope does here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Literal

from headscope import options
from headscope.errors import InputError
from headscope.heads import Gate
from headscope.progress import Progress, Steps
from headscope.results.adapt import GateNumbers
from headscope.results.common import ModelFacts, ModelResult
from headscope.runs import Record, Signature, decode
from headscope.settings import Nested, Option, Settings
from headscope.shown.blocks import Section, Shown, Text, table_of
from headscope.shown.words import count, enumeration, number
from headscope.studies.models import TEMPLATED, ModelChoice, about_model
from headscope.studies.shows import model_facts
from headscope.studies.study import Study
from headscope.studies.use.gates import GateChoice, factors_section
from headscope.studies.use.prompts import (
    Message,
    PromptsChoice,
    Rendered,
    prompts_digest,
    rendered,
)
from headscope.use.serving import (
    Agreement,
    LlamaCpp,
    Tokens,
    Vllm,
    agreement,
    at_once,
    ended,
    found,
    gate_words,
    rounding_of,
)

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel

COMMAND = "serve-check"
PROMPTS = (
    "The old mill is known for",
    "My neighbour was never",
    "Last year a small library had to",
    "Every winter the river",
    "In a letter about the train she wrote:",
    "The price of bread",
    "Once upon a time",
    "7 + 5 =",
)
#: New tokens of a text where nobody says.
NEW_TOKENS = 24
#: The status that an impossible gate is refused with.
BAD_REQUEST = 400
#: Prompts that a sentence names, of more the first ones.
NAMED = 6
#: Letters that are shown of a gate, and of a prompt.
GATE_LETTERS, PROMPT_LETTERS = 60, 24


@dataclass(frozen=True)
class ServeCheck(Settings):
    """Check that a running server applies a gate: its texts beside those of transformers here.

    The server is vLLM with headscope's plugin, or llama.cpp's llama-server with an adapter of use
    export --as lora. Greedy texts with and without the gate are asked for at once, as token ids.
    """

    url: Annotated[
        str,
        Option(
            "Of the server, such as http://127.0.0.1:8000; its key, if it has one, is read from "
            "HEADSCOPE_API_KEY.",
            metavar="URL",
            argument=True,
        ),
    ]
    gate: GateChoice
    prompts: Annotated[
        PromptsChoice,
        Nested(
            without=("reference",),
            changed={
                "data": Option(
                    "A file of prompts: one a line (.txt), or records with texts or messages in "
                    "--text-column. Without it and --prompt, eight short beginnings.",
                    metavar="FILE",
                    panel="Data",
                )
            },
        ),
    ]
    model: Annotated[ModelChoice, TEMPLATED] = field(default_factory=ModelChoice)
    name: Annotated[
        str | None,
        Option(
            "Of vLLM: ask for the gate that the server knows by this name; without it the gate is "
            "sent head by head.",
            metavar="NAME",
        ),
    ] = None
    adapter: Annotated[
        int | None,
        Option("Of llama.cpp: the adapter's number; without it 0.", metavar="N", min=0),
    ] = None
    adapter_scale: Annotated[
        float | None,
        Option(
            "Of llama.cpp: the adapter's scale S in requests, so that a head with gate g is "
            "multiplied by 1 + S (g - 1); without it 1.",
            metavar="S",
        ),
    ] = None
    server_dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Option(
            "What the server computes in, which decides how much rounding explains; auto: as vLLM "
            "and llama.cpp do by themselves.",
            panel="Expert",
        ),
    ] = "auto"
    # None: 24. The context bounds it, too.
    max_new_tokens: options.MaxNewTokens = None


@dataclass(frozen=True, kw_only=True)
class ServedText(Record):
    """A text of the server, the one that is made here, and how they compare.

    `as_other`: where they differ, whether the server's is the one that is made here with the gate
    for one without, or without it for one with.
    """

    agreement: Agreement
    here: str
    served: str
    as_other: bool

    @property
    def differs(self) -> bool:
        """Whether rounding does not explain how they differ."""
        return self.agreement.texts == "different"


@dataclass(frozen=True, kw_only=True)
class ServedPrompt(Record):
    """A prompt of so many tokens, and its texts.

    `changed`: whether the gate changes the text here, beyond rounding; `decides`: whether the
    server's text agrees up to there, too, so that a gate that it ignored would be seen.
    """

    id: str
    prompt: str | tuple[Message, ...]
    tokens: int
    changed: bool
    decides: bool
    gated: ServedText
    plain: ServedText


@dataclass(frozen=True, kw_only=True)
class ServerFacts(Record):
    """The server: its kind and version, and what it was asked for.

    `gate` is what a vLLM was told; `adapter` of llama.cpp had this `scale`.
    """

    url: str
    kind: Literal["vLLM", "llama.cpp"]
    version: str
    model: str | None = None
    gate: str | None = None
    adapter: int | None = None
    scale: float | None = None


@dataclass(frozen=True, kw_only=True)
class ServeCheckResult(ModelResult):
    """Whether the server's gate is `right`; None: this does not show it.

    `applied` is what heads are multiplied by. `rounding` is the gap between two logits that
    rounding explains, as a share of the largest one, in the coarsest of `dtypes`. `refusal`: the
    status of vLLM's answer to `impossible`, a gate of a head that does not exist.
    """

    right: bool | None
    server: ServerFacts
    applied: GateNumbers
    max_new_tokens: int
    dtypes: tuple[str, ...]
    rounding: float
    equal: int
    equal_without: int
    changed: int
    decisive: int
    impossible: str | None = None
    refusal: int | None = None
    prompts: tuple[ServedPrompt, ...]


def serve_check(config: ServeCheck, progress: Progress | None = None) -> ServeCheckResult:
    """Ask the server and the model here for the same texts, and compare; the command's result.

    Raises `InputError`, in a sentence, where no such server answers, it refuses or breaks off a
    request, or it cannot have such a gate.
    """
    choice = config.prompts
    if not choice.prompt and choice.data is None:
        choice = replace(choice, prompt=PROMPTS)
    config.gate.check()
    prompts = choice.read()
    server = _chosen(config, found(config.url))
    lm = config.model.load_for()
    gate = _gate(config, lm, server)
    if isinstance(server, Vllm):
        server = replace(server, gate=config.name or gate_words(gate))
    rows = rendered(lm, prompts, choice.chat)
    limit = config.max_new_tokens or NEW_TOKENS
    dtypes = (lm.dtype, _dtype_of(config, lm, server))
    checked = _compared(lm, gate, server, rows, limit, rounding_of(dtypes), progress)
    impossible, refusal = None, None
    if isinstance(server, Vllm):
        impossible = f"-{lm.geometry.layers}.0"
        refusal = server.refusal(lm.encode(rows[0].text, rows[0].special), impossible)
    adaptation = {head.key: gate[head] for head in gate.changed_heads()}
    signed = {"settings": config, "heads": adaptation, "new_tokens": limit}
    inputs = {"model": lm.digest, "prompts": prompts_digest(prompts)}
    result = ServeCheckResult(
        signature=str(Signature.of(COMMAND, signed, inputs)),
        model=decode(ModelFacts, about_model(lm)),
        right=None,
        server=ServerFacts(
            url=server.url,
            kind=server.kind,
            version=server.version,
            model=server.model if isinstance(server, Vllm) else None,
            gate=server.gate if isinstance(server, Vllm) else None,
            adapter=server.adapter if isinstance(server, LlamaCpp) else None,
            scale=server.scale if isinstance(server, LlamaCpp) else None,
        ),
        applied=GateNumbers("output", adaptation, {}),
        max_new_tokens=limit,
        dtypes=tuple(str(dtype).removeprefix("torch.") for dtype in dtypes),
        rounding=rounding_of(dtypes),
        equal=sum(not row.gated.differs for row in checked),
        equal_without=sum(not row.plain.differs for row in checked),
        changed=sum(row.changed for row in checked),
        decisive=sum(row.decides for row in checked),
        impossible=impossible,
        refusal=refusal,
        prompts=checked,
    )
    right, verdict = judged(result)
    return replace(result, right=right, verdict=verdict, cautions=_cautions(result))


def _chosen(config: ServeCheck, server: Vllm | LlamaCpp) -> Vllm | LlamaCpp:
    """The server with the adapter that is asked for; `InputError` for what it cannot have."""
    others = ["name"] if isinstance(server, LlamaCpp) else ["adapter", "adapter_scale"]
    if foreign := [name for name in others if getattr(config, name) is not None]:
        flag = foreign[0].replace("_", "-")
        raise InputError(
            f"{server.url} is a server of {server.kind}, which --{flag} is not for; leave it out"
        )
    if isinstance(server, Vllm):
        return server
    number, scale = config.adapter or 0, config.adapter_scale
    if number not in server.adapters:
        known = enumeration([str(each) for each in server.adapters]) or "none"
        raise InputError(
            f"{server.url} has no adapter {number} (it has {known}); start llama-server with "
            "--lora OUT/adapter/adapter.gguf, or name another by --adapter"
        )
    return replace(server, adapter=number, scale=1.0 if scale is None else scale)


def _gate(config: ServeCheck, lm: LanguageModel, server: Vllm | LlamaCpp) -> Gate:
    """What heads are to be multiplied by on this server; `InputError` if it cannot do that, or it
    changes nothing."""
    adaptation = config.gate.read(lm.geometry, lm.name)
    parts = adaptation.feed_forward
    if adaptation.place == "query" or (parts is not None and (parts != 1).any()):
        raise InputError(
            f"{adaptation.name}: multiplies queries or feed-forward parts, and servers multiply "
            "what heads write; name another gate"
        )
    gate = adaptation.gate
    if isinstance(server, LlamaCpp):
        gate = Gate(gate.geometry, 1 + server.scale * (gate.values - 1))
    if gate.is_identity:
        raise InputError(
            "the gate multiplies every head by 1, so it shows nothing about the server; choose "
            "other heads or another number"
        )
    return gate


def _dtype_of(config: ServeCheck, lm: LanguageModel, server: Vllm | LlamaCpp) -> torch.dtype:
    """What the server computes in, which neither says.

    vLLM takes the checkpoint's own dtype, and for float32 one of 16 bits. llama.cpp keeps keys and
    values in float16; beside quantised weights it rounds to 8 bits, as many as bfloat16 has.
    """
    import torch

    from headscope.lm.checkpoints import read_config

    if config.server_dtype != "auto":
        named: torch.dtype = getattr(torch, config.server_dtype)
        return named
    if isinstance(server, LlamaCpp):
        return torch.bfloat16 if lm.dequantised else torch.float16
    own = None
    if lm.folder is not None:
        own = getattr(read_config(lm.folder, lm.name).get_text_config(decoder=True), "dtype", None)
    return own if own == torch.float16 else torch.bfloat16


def _compared(
    lm: LanguageModel,
    gate: Gate,
    server: Vllm | LlamaCpp,
    rows: Sequence[Rendered],
    limit: int,
    rounding: float,
    progress: Progress | None,
) -> tuple[ServedPrompt, ...]:
    """Every prompt's texts with and without the gate, here and of the server, which is asked for
    all of them at once."""
    ids = [lm.encode(row.text, row.special) for row in rows]
    limits = [min(limit, lm.context_length - len(row)) for row in ids]
    ends = lm.eos_token_ids
    here = {}
    for gated in (True, False):
        doing = f"writing {'with' if gated else 'without'} the gate"
        with lm.gated(gate) if gated else nullcontext():
            made = _written(lm, rows, limits, partial(progress, doing) if progress else None)
        here[gated] = [ended(text, most, ends) for text, most in zip(made, limits, strict=True)]
    requests = [(at, gated) for at in range(len(rows)) for gated in (True, False)]
    answers = at_once(lambda each: server.written(ids[each[0]], limits[each[0]], each[1]), requests)
    served = {
        (at, gated): ended(answer, limits[at], ends)
        for (at, gated), answer in zip(requests, answers, strict=True)
    }
    agreements: dict[tuple[int, bool], Agreement] = {}
    changes = []
    for at, gated in requests:
        with lm.gated(gate) if gated else nullcontext():
            theirs = served[at, gated]
            agreements[at, gated] = agreement(lm, ids[at], here[gated][at], theirs, rounding)
            if gated:
                changes.append(agreement(lm, ids[at], here[True][at], here[False][at], rounding))

    def text(at: int, gated: bool) -> ServedText:
        compared, theirs = agreements[at, gated], served[at, gated]
        differs = compared.texts == "different"
        return ServedText(
            agreement=compared,
            here=_text(lm, here[gated][at]),
            served=_text(lm, theirs),
            as_other=differs and theirs == here[not gated][at],
        )

    return tuple(
        ServedPrompt(
            id=row.prompt.id,
            prompt=row.prompt.given,
            tokens=len(ids[at]),
            changed=changes[at].texts == "different",
            decides=_decides(changes[at], agreements[at, True]),
            gated=text(at, True),
            plain=text(at, False),
        )
        for at, row in enumerate(rows)
    )


def _written(
    lm: LanguageModel, rows: Sequence[Rendered], limits: Sequence[int], progress: Steps | None
) -> list[tuple[int, ...]]:
    """The tokens that the model as it stands writes behind each prompt."""
    from headscope.lm.generation import GenerateConfig

    how = GenerateConfig(stop_at_newline=False)
    made: dict[int, tuple[int, ...]] = {}
    for special in (True, False):  # it holds for a whole call
        places = [at for at, row in enumerate(rows) if row.special is special]
        texts, most = [rows[at].text for at in places], [limits[at] for at in places]
        written = lm.generate(texts, how, most, special=special, progress=progress)
        made |= {at: text.output_ids for at, text in zip(places, written, strict=True)}
    return [made[at] for at in range(len(rows))]


def _decides(change: Agreement, gated: Agreement) -> bool:
    """Whether a server that agrees so far would not, had it left the gate out."""
    if change.texts != "different" or change.token is None:
        return False
    return gated.texts == "equal" or (gated.token is not None and gated.token > change.token)


def _text(lm: LanguageModel, tokens: Tokens) -> str:
    known = [token for token in tokens if token is not None and 0 <= token < lm.vocabulary]
    return lm.decode(known)


def judged(result: ServeCheckResult) -> tuple[bool | None, str]:
    """Whether the server's gate is right (None: unknown), and the verdict in a sentence."""
    rows, of = result.prompts, len(result.prompts)
    wrong = [row for row in rows if row.gated.differs]
    wrong_plain = [row for row in rows if row.plain.differs]
    texts = count(of, "text")
    if wrong and not wrong_plain and all(row.gated.as_other for row in wrong):
        return False, (
            f"The server ignores the gate: {len(wrong)} of {texts} with it {_are(wrong)} those of "
            f"the model without it ({_named(wrong)})"
        )
    if wrong_plain and not wrong and all(row.plain.as_other for row in wrong_plain):
        return False, (
            f"The server gates every request: {len(wrong_plain)} of {texts} without the gate "
            f"{_are(wrong_plain)} those with it ({_named(wrong_plain)})"
        )
    if wrong_plain:
        return False, (
            f"The server has another model: {len(wrong_plain)} of {texts} without a gate "
            f"{_are(wrong_plain)} not those of transformers ({_named(wrong_plain)})"
        )
    if wrong:
        return False, (
            f"The server's gate is wrong: {len(wrong)} of {texts} with it {_are(wrong)} not those "
            f"of transformers ({_named(wrong)}), and all {of} without it are"
        )
    if result.refusal not in (None, BAD_REQUEST):
        return False, (
            f"The server does not refuse a gate of a head that does not exist ({result.impossible},"
            f" status {result.refusal}), so a mistaken gate goes unnoticed"
        )
    if not result.decisive:
        why = f"the gate changes none of {texts} here, so a server that ignored it would pass"
        if result.changed:
            why = "rounding parts the texts before the gate changes them"
        return None, f"Cannot tell whether the server's gate is right: {why}"
    change = f"{result.decisive} of {texts} change{'s' if result.decisive == 1 else ''}"
    return True, (
        f"The server's gate is right: {of} of {texts} with it and {of} of {of} without are those "
        f"of transformers ({change})"
    )


def _are(rows: Sequence[ServedPrompt]) -> str:
    return "is" if len(rows) == 1 else "are"


def _named(rows: Sequence[ServedPrompt]) -> str:
    """`prompts 1, 4 and 6`, of many the first ones."""
    ids = [row.id for row in rows]
    more = [f"{len(ids) - NAMED} more"] if len(ids) > NAMED else []
    return f"prompt{'s' * (len(ids) > 1)} {enumeration([*ids[:NAMED], *more])}"


def _cautions(result: ServeCheckResult) -> tuple[str, ...]:
    texts = [text for row in result.prompts for text in (row.gated, row.plain)]
    rounded = sum(text.agreement.texts == "rounding" for text in texts)
    if not rounded:
        return ()
    return (
        f"{count(rounded, 'text')} of {len(texts)} part where rounding may order two tokens "
        "otherwise; what follows is not compared.",
    )


def _show(result: ServeCheckResult, run: Path) -> Shown:
    server = result.server

    def outcome(text: ServedText) -> str:
        found = text.agreement
        if found.token is None:
            return "equal"
        gap = "" if found.gap is None else f": logits {number(found.gap)} apart"
        words = "rounding" if found.texts == "rounding" else "different"
        return f"{words} from token {found.token + 1}{gap}"

    def name(row: ServedPrompt) -> str:
        text = row.prompt if isinstance(row.prompt, str) else row.prompt[-1]["content"]
        return f"{row.id}: {shorten(text, PROMPT_LETTERS, placeholder=' …')}"

    rows = [(name(row), row) for row in result.prompts]
    allowed = f"{result.rounding:.2g} of the largest logit ({' and '.join(result.dtypes)})"
    table = table_of(
        "The server's texts beside those of transformers",
        rows,
        {
            "with the gate": lambda row: outcome(row.gated),
            "without": lambda row: outcome(row.plain),
            "the gate changes it": lambda row: "yes" if row.changed else "no",
        },
        note=f"Logits of two tokens that are closer than {allowed} count as rounding.",
    )
    texts = [
        Text(
            f"Prompt {row.id}, {words} the gate",
            (("transformers", text.here), ("the server", text.served)),
        )
        for row in result.prompts
        for words, text in (("with", row.gated), ("without", row.plain))
        if text.differs
    ]
    asked = server.gate
    if asked is None:
        asked = f"adapter {server.adapter} at scale {server.scale:g}"
    asked = shorten(asked, GATE_LETTERS, placeholder=" …")
    sections = [Section("Texts", [table], brief=True)]
    if texts:
        sections.append(Section("Texts that differ", texts))
    return Shown(
        "Check of a server",
        "Does the server apply the gate as transformers does here?",
        [
            f"{result.verdict}.",
            f"{server.kind} {server.version} was asked for {asked}.",
        ],
        facts=[
            *model_facts(result.model_name, result.model.heads if result.model else None),
            ("server", f"{server.kind} {server.version}"),
            ("asked for", asked),
        ],
        sections=[*sections, *factors_section(result.model, result.applied)],
    )


def _failure(result: ServeCheckResult) -> str | None:
    url, of = result.server.url, len(result.prompts)
    if result.right:
        return None
    if result.right is None:
        return (
            f"the gate of {url} is not shown to be right; give more prompts (--data), longer texts "
            "(--max-new-tokens) or more heads (--k)"
        )
    if result.equal == result.equal_without == of:
        return f"{url} takes gates of heads that do not exist; start it with headscope's plugin"
    return (
        f"{url} does not write what transformers writes; compare --model and --heads with what the "
        "server was started with, and the texts by --full"
    )


command = Study(
    ServeCheck,
    serve_check,
    result=ServeCheckResult,
    show=_show,
    out=None,
    failure=_failure,
    usage="http://127.0.0.1:8000 --heads 5.3",
)
