"""No circles of imports: every module can be read, tested and moved without those above it."""

from graphlib import CycleError, TopologicalSorter

import grimp

PACKAGES = ("driftline", "service", "trainers", "search_spaces")
STUDY = "driftline.study.spec"
"""`Study.check`, `outlook` and what else judges a study are methods of the study, and are imported where they run."""


def test_modules_import_one_another_in_one_direction_only() -> None:
    """Imports for types and inside functions count too; a study alone reaches those that judge it."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imported = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    assert len(imported) > 500
    judges = {module for module in imported[STUDY] if STUDY in graph.find_upstream_modules(module)}
    assert all(module.startswith("driftline.study.") for module in judges)
    imported[STUDY] -= judges
    circle: list[str] = []
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []
