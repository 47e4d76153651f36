"""What the documents show is accepted by the code they describe."""

import json
import pydoc
import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from driftline.study.spec import Study
from service.cli.main import app
from service.settings import ServiceSettings
from service.store.store import Store
from tests.recorder.stored import Stored
from tests.results.samples import curve
from trainers import COSTS, plugin
from trainers.registry import methods
from trainers.run import main as trial_main
from trainers.trial.document import parse

ROOT = Path(__file__).parents[1]
STUDIES = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", STUDIES, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_study_of_the_page_is_valid() -> None:
    assert Study.from_yaml(block("yaml")).check() == []


def test_the_trial_of_the_page_is_valid() -> None:
    assert parse(json.loads(block("json"))).rounds == 100


def test_every_key_of_a_study_is_on_the_page() -> None:
    for name in Study.model_fields:
        assert re.search(rf"`{name}`|^{name}:", STUDIES, re.MULTILINE), name


def test_the_page_of_the_service_describes_every_variable() -> None:
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    fields = ServiceSettings.model_fields.values()
    assert len(fields) >= 14
    for field in fields:
        assert f"| {field.alias} | {field.description} |" in page
    for name in ("DRIFTLINE_HANG_SECONDS", "DRIFTLINE_URL", "DRIFTLINE_TOKEN"):
        assert f"{name}" in page


PAGES = ["README.md", "CONTRIBUTING.md", *(str(file.relative_to(ROOT)) for file in (ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    known = set(typer.main.get_command(app).commands)
    for command in re.findall(r"^ +driftline (\w+)", text, re.MULTILINE):
        assert command in known, command
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if "://" not in link:
            assert ((ROOT / page).parent / link).exists(), link


def commands(text: str) -> list[list[str]]:
    """The words of every `driftline` command in a page's code, without the remarks beside them."""
    found = []
    for line in re.findall(r"^(?: +|> |\$ )(?:[A-Z_]+=\S+ )*driftline (.+)$", text, re.MULTILINE):
        words = re.split(r"   +|\s#\s|\s&$|\s>|\s\|", line)[0].strip()
        if words and "..." not in words:
            found.append(shlex.split(words))
    return found


def paragraphs(text: str) -> list[list[str]]:
    """The lines of each paragraph and list item of a page, without code, tables, quotes, pictures and headings."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(\||    |#|<|!|>).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(\s*(?:-|\*|\d+\.) )", r"\n\1", text, flags=re.MULTILINE)
    return [part.strip("\n").splitlines() for part in re.split(r"\n\s*\n", text) if part.strip()]


@pytest.mark.parametrize("page", PAGES)
def test_paragraphs_are_short_and_lines_have_at_most_100_columns(page: str) -> None:
    found = paragraphs((ROOT / page).read_text(encoding="utf-8"))
    assert len(found) > 2
    assert [lines for lines in found if len(lines) > 5 or max(map(len, lines)) > 100] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_command_has_the_options_that_a_page_gives_it(page: str) -> None:
    """It is parsed as if it ran: unknown options, missing arguments and values of a wrong type are errors."""
    for words in commands((ROOT / page).read_text(encoding="utf-8")):
        command, rest = typer.main.get_command(app), words
        while rest and rest[0] in (below := getattr(command, "commands", {})):
            command, rest = below[rest[0]], rest[1:]
        if not hasattr(
            command, "commands"
        ):  # typer's options of the program, such as --install-completion, are its own
            command.make_context(" ".join(words), list(rest))


LOCAL = ("data", "init", "validate", "frontier", "compare", "methods", "tasks", "theory")


def test_the_readmes_commands_about_studies_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that need no Ray, no server and no MLflow; tests/embedded and tests/commands run the others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRIFTLINE_URL", raising=False)
    (tmp_path / "out" / "mine").mkdir(parents=True)
    (tmp_path / "mine.csv").write_text("size,outcome\n" + "".join(f"{number},{number % 2}\n" for number in range(40)))
    store = Store(tmp_path / "out" / "mine" / "driftline.db")
    study = Stored(store, ["fedavg", "fedprox"], 5)
    for label in ("fedavg", "fedprox"):
        study.add([curve([0.0, 0.5, 0.6, 0.7, 0.7, 0.7], label=label)])
    study.succeed()
    store.close()
    ran = []
    for words in commands((ROOT / "README.md").read_text(encoding="utf-8")):
        name = words[0]
        if name not in LOCAL or "NAME" in words:
            continue
        if name == "init":
            Path("study.yaml").unlink(missing_ok=True)
        extra = ["--no-estimate"] if name == "validate" else []
        result = CliRunner().invoke(app, [*words, *extra], catch_exceptions=False)
        assert result.exit_code == 0, (words, result.output)
        ran.append(name)
    assert set(ran) == set(LOCAL)


def test_every_example_of_the_gallery_is_there_with_its_picture() -> None:
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    named = re.findall(r"^    driftline run (examples/[\w/-]+\.yaml)$", text, re.MULTILINE)
    assert len(named) == 9
    for name in named:
        assert (ROOT / name).is_file()
        assert (ROOT / "docs" / "gallery" / f"{Path(name).stem}.png").is_file()


def test_the_map_names_files_that_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = 0
    for line in text.splitlines():
        if not (found := re.match(r"    ((?:\w+/)+\w+\.py(?:, [\w/]+\.py)*)", line)):
            continue
        first, *others = found[1].split(", ")
        for name in (first, *(name if "/" in name else str(Path(first).with_name(name)) for name in others)):
            assert (ROOT / name).is_file(), name
            named += 1
    assert named > 40
    for package in re.findall(r"help\('([\w.]+)'\)", text):
        assert (ROOT / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8").startswith('"""')


def example_of(page: str) -> tuple[str, list[str]]:
    """The command that a page begins with, and the lines that it prints, apart from those left out."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    block = re.search(r"^```text\n\$ ([^\n]+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    return block[1], [line for line in block[2].splitlines() if line != "..."]


@pytest.mark.parametrize("page", ["coverage", "data", "gallery", "methods", "theory"])
def test_the_first_command_of_a_page_prints_what_the_page_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command, lines = example_of(page)
    program, *words = shlex.split(command)
    assert program == "driftline"
    printed = CliRunner().invoke(app, words).stdout.splitlines()
    assert lines
    assert [line for line in lines if line not in printed] == []


def test_the_module_of_the_page_of_models_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    for name, language in {"net.py": "python", "trial.json": "json"}.items():
        (code,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        (tmp_path / name).write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert trial_main(["trial.json"]) == 0
    command, (shown,) = example_of("models")
    assert command == "python -m trainers.run trial.json"
    assert re.search(".*".join(map(re.escape, shown.split("..."))), capsys.readouterr().out)


def test_the_map_shows_what_the_engine_says_of_itself() -> None:
    command, lines = example_of("architecture")
    assert command == '''python -c "help('trainers.engine')"'''
    printed = pydoc.plain(pydoc.render_doc("trainers.engine", "Help on %s:")).splitlines()
    assert len(lines) > 10
    assert [line for line in lines if line not in (text.rstrip() for text in printed)] == []


STUDY_FILES = [file for file in (ROOT / "examples").rglob("*.yaml") if file.parent.name != "papers"]


@pytest.mark.parametrize("example", sorted(str(file.relative_to(ROOT)) for file in STUDY_FILES))
def test_examples_are_read(example: str) -> None:
    study = Study.from_yaml(ROOT / example)
    assert study.labels
    assert Study.from_json(study.to_json()).fingerprint() == study.fingerprint()


def test_the_example_of_all_methods_has_every_method() -> None:
    """But for one that works with a single client a round, which no other method of a study could share."""
    entries = Study.from_yaml(ROOT / "examples" / "all-methods.yaml").methods
    alone = {name for name, module in methods().items() if getattr(module, "CLIENTS_PER_ROUND", None) == 1}
    assert {entry.name for entry in entries} == {*methods()} - alone
    assert alone == {"lookahead"}


DOORS = r"(\.(plugin|run|registry|theory)\b.*)?"
"""What recipes and examples may name behind `trainers`: everything that an author of a plug-in needs is in `plugin`."""


def test_recipes_and_examples_use_the_doors_of_trainers() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md", *(ROOT / "examples").rglob("*.py")]
    found = [
        (page.name, module)
        for page in pages
        for module in re.findall(
            r"^\s*(?:from|import) (trainers[\w.]*)", page.read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    inside = {pair for pair in found if not re.fullmatch(f"trainers{DOORS}", pair[1])}
    assert inside == {("optimizer.md", "trainers.optimizers")}  # the test of the optimizer that the page adds
    assert {name for name, module in found if module == "trainers.plugin"} >= {
        *("method.md", "optimizer.md", "schedule.md", "report.md", "task.md", "model.md"),
        *("task.py", "model.py"),
    }


def test_the_door_of_plug_ins_says_what_it_has() -> None:
    listed = re.findall(r"\w+", (plugin.__doc__ or "").split("\n\n")[1])
    assert set(plugin.__all__) <= set(listed)
    assert len(plugin.__all__) > 40


def test_the_page_of_results_has_every_cost() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = page.partition("| cost | what it counts | comparisons |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (yes|no verdicts).* \|$", table, re.MULTILINE)
    assert rows == [(name, "yes" if cost.repeatable else "no verdicts") for name, cost in COSTS.items()]
