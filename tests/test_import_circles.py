"""No file imports itself through others, inside functions or for types alone neither."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


@pytest.mark.parametrize("types", [False, True])
def test_no_imports_go_in_a_circle(types: bool) -> None:
    graph = grimp.build_graph("headscope", exclude_type_checking_imports=not types, cache_dir=None)
    # What looks into a model names its type, and the model looks into itself.
    modules = [name for name in graph.modules if not (types and name.startswith("headscope.lm."))]
    imports = {name: graph.find_modules_directly_imported_by(name) for name in modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
