"""How soon a click in the explorer is answered, and what it costs when nobody clicks. Prints JSON.

    python bench/explore.py --out bench/results/explore-pocket.json
    python bench/explore.py --model GEMMA --pair en-de --data pairs.tsv
    python bench/explore.py --clicks 5 --many 0 --idle 2          # a small version
    python bench/explore.py --tokens 32000 --threads 1                # a long prompt
    python bench/explore.py --tokens 32000 --threads 1 --report       # the page of its peaks

`headscope explore` runs in a process of its own, a headless Chromium clicks heads of its map. Of
every click: milliseconds until the tokens of the original output have their colours, and until the
output of the selected gate stands there whole. Then the share of a core that the server takes while
nobody clicks, and how its memory grows over many clicks.

With `--tokens` a model of random weights and the shape `long` (`peaks_models.py`) gets a prompt of
so many tokens: also the milliseconds from the opening of the page until the prompt is painted, and
from the pointer on a token of the output until its arcs are.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from machine import machine, tell
from timing import load, moment, say, spread

#: Click a head, and the milliseconds until the page is in each of two states.
CLICK = """async ([head, wanted]) => {
  const root = document.querySelector(".explorer"), began = performance.now(), times = {};
  const cell = document.querySelectorAll(".explorer rect.cell")[head];
  const before = root.dataset.run;
  await new Promise((resolve) => {
    const observer = new MutationObserver(() => {
      const state = root.dataset.state, now = performance.now() - began;
      if (root.dataset.run !== before && !(state in times)) times[state] = now;
      if (state === "failed" || wanted in times) { observer.disconnect(); resolve(); }
    });
    observer.observe(root, { attributes: true });
    cell.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  });
  return times;
}"""


#: Until what the page has just done is painted.
PAINTED = "await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));"
#: Milliseconds since the page was asked for, once the prompt of so many characters is painted.
OPENED = f"""async (length) => {{
  while (document.querySelector(".prompt").textContent.length !== length) {PAINTED}
  {PAINTED}
  return performance.now();
}}"""
#: Milliseconds from the pointer on a token of the output until its arcs are painted.
POINTED = f"""async (at) => {{
  const began = performance.now();
  const token = document.querySelectorAll("[data-lane=original] .written .tok")[at];
  token.dispatchEvent(new PointerEvent("pointerover", {{ bubbles: true }}));
  if (!document.querySelector(".arcs path")) throw new Error("there are no arcs");
  {PAINTED}
  return performance.now() - began;
}}"""


def opened(page: Any, root: str, text: str, process: int) -> dict[str, Any]:
    """What opening the page with a prompt and pointing at its output take."""
    times = []
    for _ in range(3):
        page.goto("about:blank")
        # What nobody waits for any more ends with the layer that computes.
        used = -1.0
        while used != (used := processor_seconds(process)):
            time.sleep(0.5)
        page.goto(f"{root}#{urlencode({'input': json.dumps({'prompt': text}), 'pin': '1.0'})}")
        times.append(page.evaluate(OPENED, len(text)))
        say(f"opened in {times[-1]:.0f} ms")
    page.wait_for_selector(".explorer[data-state=done]", timeout=600_000)
    tokens = page.locator("[data-lane=original] .written .tok").count()
    return {
        "milliseconds_to_prompt": spread(times),
        "milliseconds_to_arcs": spread([page.evaluate(POINTED, at) for at in range(tokens)]),
        "milliseconds_to_colours": clicked(page, 0, "shifted")["shifted"],
        "elements": page.evaluate("document.querySelectorAll('*').length"),
    }


def reported(page: Any, model: str, text: str) -> dict[str, Any]:
    """What opening the page of peaks takes; the first half of a text is translated by the same."""
    from headscope.studies.report import write_report

    half = text.split()[: len(text.split()) // 2 - 16]
    links = " ".join(f"{at}-{at}" for at in range(len(half)))
    data, run = Path(model).with_name("en-de.tsv"), Path(model).with_name("run")
    data.write_text("\t".join((" ".join(half), " ".join(half), links)) + "\n", encoding="utf-8")
    words = ["find", "translation-score", "--model", model, "--data", data, "--pair", "en-de"]
    words += ["--source-column", "0", "--target-column", "1", "--links-column", "2"]
    words += ["--baseline-examples", "1", "--out", run]
    command = [sys.executable, "-m", "headscope", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    file = write_report(run, run / "page.html")
    times = []
    for _ in range(5):
        page.goto("about:blank")
        page.goto(file.as_uri())
        times.append(page.evaluate(f"async () => {{ {PAINTED} return performance.now(); }}"))
    return {
        "milliseconds_to_page": spread(times),
        "bytes": file.stat().st_size,
        "arcs": page.locator(".arcs g").count(),
        "elements": page.evaluate("document.querySelectorAll('*').length"),
    }


def clicked(page: Any, head: int, wanted: str = "done") -> dict[str, float]:
    """Milliseconds from a click on a head to the states of the page until the wanted one."""
    times: dict[str, float] = page.evaluate(CLICK, [head, wanted])
    if "failed" in times:
        raise RuntimeError(page.inner_text("[role=alert]"))
    return times


def resident(process: int) -> int:
    """Bytes of memory that a process holds now."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("this system does not say how much memory a process holds")


def processor_seconds(process: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(given: argparse.Namespace, page: Any, process: int) -> dict[str, Any]:
    """Everything that is measured of one server and one page."""
    heads = page.locator(".explorer rect.cell").count()
    order = [(7 * number) % heads for number in range(heads)]
    say("warm up")
    clicked(page, order[-1])
    clicked(page, order[-1])  # and back
    times = []
    for number in range(given.clicks):
        times.append(clicked(page, order[number % heads]))
        say(f"click {number + 1} of {given.clicks}")
    result: dict[str, Any] = {
        "milliseconds_to_colours": spread(
            [measured["shifted"] for measured in times if "shifted" in measured]
        ),
        "milliseconds_to_whole_output": spread(
            [measured["written"] for measured in times if "written" in measured]
        ),
        "milliseconds_to_everything": spread([measured["done"] for measured in times]),
    }
    if given.many:
        kept: dict[int, int] = {}
        for number in range(1, given.many + 1):
            clicked(page, order[number % heads])
            if number in (given.many // 10, given.many):
                kept[number] = resident(process)
                say(f"{number} clicks, {kept[number] / 1e6:.0f} MB")
        result["resident_bytes_after_clicks"] = {str(at): size for at, size in kept.items()}
    time.sleep(1)
    before, began = processor_seconds(process), time.monotonic()
    time.sleep(given.idle)
    idle = (processor_seconds(process) - before) / (time.monotonic() - began)
    return {**result, "idle_share_of_a_core": idle, "idle_seconds": given.idle}


def long_model(folder: str, tokens: int) -> str:
    """Writes a model of random weights, and gives a prompt of so many of its tokens."""
    from peaks_models import build
    from peaks_ways import random_rows

    lm, _ = build("long", "cpu", "float32")
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
    return " ".join(f"w{token}" for token in random_rows(lm, 1, tokens)[0])


def main() -> None:
    """Measures and prints; progress goes to stderr."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--data", help="sentence pairs; those of the bundled model need none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clicks", type=int, default=50)
    parser.add_argument("--many", type=int, default=1000, help="clicks while memory is watched")
    parser.add_argument("--idle", type=float, default=60, help="seconds without a click")
    parser.add_argument("--tokens", type=int, help="of a long prompt, for a model made here")
    parser.add_argument("--report", action="store_true", help="the page of peaks of that prompt")
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    given = parser.parse_args()
    before, began, loads = machine("cpu"), moment(), [load()]
    text = ""
    if given.tokens:
        given.model = str(Path(tempfile.mkdtemp()) / "long")
        text = long_model(given.model, given.tokens)
    words = ["explore", given.model, "--no-browser", "--device", "cpu", "--pair", given.pair]
    words += ["--data", given.data] if given.data else []
    about: dict[str, Any] = {"model": Path(given.model).name, "pair": given.pair, "began": began}
    about |= {"prompt_tokens": given.tokens} if given.tokens else {}
    os.environ |= {"OMP_NUM_THREADS": str(given.threads), "HF_HUB_OFFLINE": "1"}
    process = None
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        try:
            if given.report:
                result = reported(page, given.model, text)
            else:
                command = [sys.executable, "-m", "headscope", *words]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                assert process.stdout is not None
                line = process.stdout.readline()
                page.goto(next(word for word in line.split() if word.startswith("http")))
                page.wait_for_selector(".explorer")
                if text:
                    root = page.evaluate("location.origin + '/'")
                    result = opened(page, root, text, process.pid)
                else:
                    page.wait_for_selector(".explorer[data-state=done]", timeout=300_000)
                    result = measured(given, page, process.pid)
        finally:
            browser.close()
            if process is not None:
                process.terminate()
                process.wait()
    loads.append(load())
    tell(
        {**about, "machine": {**before, "threads": given.threads}, "load": loads, **result},
        given.out,
    )


if __name__ == "__main__":
    main()
