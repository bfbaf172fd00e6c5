"""Notebooks: run from top to bottom, stored with their outputs, and shown as pages.

    python docs/tools/notebooks.py docs/notebooks/first-look.ipynb   # run it and store its outputs

Building the site runs nothing: a page shows the outputs that are stored, and a test holds them to
what the notebook gives now.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["executed", "page"]

Notebook = dict[str, Any]


def page(file: Path) -> str:
    """The notebook as Markdown, with a line about where the file is."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in _cell(cell)]
    parts.insert(1, f"*This page is the notebook [{file.name}]({file.name}), as it was last run.*")
    return "\n\n".join(parts) + "\n"


def _cell(cell: Notebook) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *map(_output, cell["outputs"])]


def _output(output: Notebook) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    markup = "".join(output["data"]["text/html"])
    # A blank line would end the element in Markdown.
    return f'<div class="output">{markup.replace(chr(10), "&#10;")}</div>'


def executed(file: Path, folder: Path, seconds: int = 300) -> Notebook:
    """The notebook after a run in `folder`, with what it printed and drew and nothing else.

    What goes to standard error, such as progress, is left out, and so are counts and metadata,
    which differ from one machine to the next.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell raises.
    """
    import nbformat
    from jupyter_client.manager import KernelManager
    from nbclient import NotebookClient

    notebook = nbformat.read(file, as_version=4)
    with tempfile.TemporaryDirectory() as sockets:
        # Sockets of files: nothing listens on the network, not even on loopback.
        manager = KernelManager(
            kernel_name="python3", transport="ipc", ip=str(Path(sockets) / "kernel")
        )
        try:
            NotebookClient(
                notebook,
                km=manager,
                timeout=seconds,
                resources={"metadata": {"path": str(folder)}},
            ).execute()
        finally:
            manager.shutdown_kernel(now=True)
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = _kept(cell.outputs)
    nbformat.validate(notebook)
    result: Notebook = json.loads(nbformat.writes(notebook))
    return result


def _kept(outputs: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stderr":
                continue
            if kept and kept[-1].output_type == "stream":
                kept[-1].text += output.text
                continue
        elif "text/html" not in output.data:
            continue  # a widget, such as a bar of progress, which is nothing without its kernel
        else:
            output.data.pop("text/plain", None)
            output.metadata = {}
            if "execution_count" in output:
                output.execution_count = None
        kept.append(output)
    return kept


def main() -> None:
    file = Path(sys.argv[1])
    stored = executed(file, file.parent)
    file.write_text(json.dumps(stored, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
