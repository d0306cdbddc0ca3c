"""JavaScript: instruments' modules that can be joined into one text, typed as Python's traits; all of it checked."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from mhalib import widgets
from mhalib.widgets import Instrument, joinable, page_script, scripts
from tools.development import javascript

TYPES = Path(widgets.__file__).with_name("types.d.ts")
STATES = {
    "AttentionPlayground": "Playground",
    "CostCalculator": "Costs",
    "HeadExplorer": "Explorer",
    "HeadWall": "Wall",
    "LiveModel": "Live",
    "MistakeHunt": "Hunt",
    "ModelCalculator": "Served",
    "ReshapeStepper": "Stepper",
    "Roofline": "Roof",
    "SortableTable": "Sortable",
    "WorkedExample": "Worked",
}


ALL = sorted({*scripts(), *scripts("LiveModel")})
ONE_SCOPE = pytest.mark.parametrize("names", [(), ("LiveModel",)], ids=["common", "live"])


def top_names(text: str) -> list[str]:
    return re.findall(r"^(?:function|const|let|var|class) (\w+)", text, flags=re.MULTILINE)


@ONE_SCOPE
def test_joined_modules_have_no_import_and_keep_their_lines(names: tuple[str, ...]) -> None:
    assert re.search(r"^\s*(?:import|export)\b", page_script(*names), flags=re.MULTILINE) is None
    for file in scripts(*names):
        text = file.read_text(encoding="utf-8")
        assert text.startswith("// @ts-check\n")
        assert joinable(file).count("\n") == text.count("\n")


@ONE_SCOPE
def test_names_differ_in_the_one_scope_where_all_are_joined(names: tuple[str, ...]) -> None:
    found = [name for file in scripts(*names) for name in top_names(joinable(file))]
    assert len(found) == len(set(found)) >= 15


def test_comments_stay_with_us_and_code_does_not(tmp_path: Path) -> None:
    file = tmp_path / "new.js"
    file.write_text("// @ts-check\n/* One\n * two. */\n/** @type {x} */\n/** @type {y} */ (f)(1);\n  /** z */\ng();\n")
    assert joinable(file) == "\n\n\n\n(f)(1);\n\ng();\n"


@ONE_SCOPE
def test_each_module_imports_what_others_before_it_export(names: tuple[str, ...]) -> None:
    exported: dict[str, set[str]] = {}
    for file in scripts(*names):
        text = file.read_text(encoding="utf-8")
        for imported, other in re.findall(
            r'^import \{ (.+) \} from "[./]+(?:live/)?(\w+\.js)";', text, flags=re.MULTILINE
        ):
            assert set(imported.split(", ")) <= exported[other], file.name
        exported[file.name] = set(re.findall(r"^export (?:function|const|class) (\w+)", text, re.MULTILINE))


@pytest.mark.parametrize(
    "line", ['import * as all from "./shared.js";', 'import { a as b } from "./shared.js";', "export default draw;"]
)
def test_a_module_that_cannot_be_joined_is_refused_by_name(tmp_path: Path, line: str) -> None:
    file = tmp_path / "new.js"
    file.write_text(f"// @ts-check\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"new\.js cannot be joined .*: write import \{ a, b \} from"):
        joinable(file)


def test_making_a_token_visible_stands_in_one_module() -> None:
    assert [file.name for file in ALL if r"\p{Cc}" in file.read_text(encoding="utf-8")] == ["shared.js"]


@pytest.mark.parametrize("name", Instrument.known)
def test_types_name_the_traits_that_python_has(name: str) -> None:
    body = re.search(rf"export interface {STATES[name]} \{{\n(.*?)\n\}}", TYPES.read_text(encoding="utf-8"), re.DOTALL)
    assert body is not None
    kept = getattr(widgets, name)
    own = set(kept.state_names()) - set(getattr(kept, "carried", ()))
    assert set(re.findall(r"^  (\w+)\??:", body[1], flags=re.MULTILINE)) == own


def test_pins_and_lock_agree() -> None:
    asked = json.loads((javascript.ROOT / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    locked = json.loads((javascript.ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in asked} == asked
    assert all(re.fullmatch(r"[\d.]+", version) for version in asked.values())
    assert all("integrity" in one and "resolved" not in one for name, one in locked.items() if name)
    assert {*javascript.PROGRAMS, *javascript.DRAWS_FORMULAS} == set(asked)


@pytest.mark.parametrize("required", [False, True])
def test_without_its_tools_one_line_says_what_is_not_checked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], required: bool
) -> None:
    shutil.copy(javascript.ROOT / "package.json", tmp_path)
    for found, why in ((None, "there is no Node"), (Path("node"), "node_modules has no @biomejs/biome")):
        assert javascript.check(tmp_path, found, required) == int(required)
        (said,) = "".join(capfd.readouterr()).splitlines()
        assert "mhalib/widgets/*.js, tools/pages/*.js, tools/teaching/*.js: JavaScript is NOT checked" in said
        assert why in said
        assert "make javascript" in said
    for name, version in (("@biomejs/biome", "1.0.0"), ("typescript", "1.0.0")):
        (tmp_path / "node_modules" / name).mkdir(parents=True)
        (tmp_path / "node_modules" / name / "package.json").write_text(json.dumps({"version": version}))
    assert "@biomejs/biome 1.0.0, and package.json asks for" in javascript.what_is_missing(tmp_path, Path("node"))


@pytest.mark.tool
@pytest.mark.parametrize(
    ("place", "bug", "complaint"),
    [
        ("mhalib/widgets/shared.js", "export function wrong() {\n  return legible(3);\n}\n", "TS2345"),
        ("mhalib/widgets/shared.js", "debugger;\n", "noDebugger"),
        ("tools/pages/page_script.js", "toggleFullScreen(3);\n", "TS2554"),
        ("tools/pages/page_script.js", "debugger;\n", "noDebugger"),
        ("tools/pages/search_script.js", "Search.texts.a = 3;\n", "TS2322"),
    ],
)
def test_a_bug_of_types_or_habits_is_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], place: str, bug: str, complaint: str
) -> None:
    node = javascript.node()
    if missing := javascript.what_is_missing(javascript.ROOT, node):
        pytest.skip(f"{missing}: {javascript.REMEDY}")
    for name in ("package.json", "tsconfig.json", "biome.json"):
        shutil.copy(javascript.ROOT / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(javascript.ROOT / "node_modules", target_is_directory=True)
    for file in [*ALL, TYPES, *javascript.ROOT.glob("tools/[pt]*/*.[jt]s")]:
        target = tmp_path / file.relative_to(javascript.ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    assert javascript.check(tmp_path, node, required=True) == 0
    with (tmp_path / place).open("a", encoding="utf-8") as changed:
        changed.write(bug)
    capfd.readouterr()
    assert javascript.check(tmp_path, node, required=True) == 1
    assert complaint in "".join(capfd.readouterr())


def test_readers_need_none_of_it() -> None:
    needed = (javascript.ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert "nodejs" not in needed
    assert {file.suffix for file in ALL} == {".js"}
