"""The repository as a stranger finds it: one address, commands that exist, no trace of a machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import nbformat
import pytest
import tomllib
import waiting
import yaml

import mhalib
from tools.editions import offline
from tools.notebooks import notebooks

TEXT = {".md", ".toml", ".cff", ".yml", ".yaml", ".json", ".ipynb", ".py", ".txt", ".js", ".ts"}
WORKFLOWS = sorted(path.name for path in (notebooks.ROOT / ".github/workflows").iterdir())
MAKEFILE = (notebooks.ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = {".venv/.installed", *re.findall(r"^([a-z]+):", MAKEFILE, flags=re.MULTILINE)}


def tracked() -> list[str]:
    listing = subprocess.run(["git", "ls-files"], cwd=notebooks.ROOT, capture_output=True, text=True, check=True)
    return [name for name in listing.stdout.splitlines() if (notebooks.ROOT / name).is_file()]


def read(name: str) -> str:
    return (notebooks.ROOT / name).read_text(encoding="utf-8")


def test_has_its_fixed_top_level() -> None:
    for name in ("_config.yml", "_toc.yml", "chapters", "mhalib", "tests", "requirements.txt"):
        assert (notebooks.ROOT / name).exists(), name


def test_what_a_chapter_needs_beyond_the_package_is_pinned_by_pip_s_name() -> None:
    """And what the package needs is left to the package."""
    project = tomllib.loads(read("pyproject.toml"))["project"]
    package = [*project["dependencies"], *project["optional-dependencies"]["widgets"]]
    needed = {re.match(r"[\w-]+", requirement)[0] for requirement in package}
    own = {name for names in notebooks.OWN_NEEDS.values() for name in names}
    assert not own & needed
    assert own <= set(re.findall(r"^([\w-]+)==", read("requirements.txt"), flags=re.MULTILINE))
    assert {notebooks.CHAPTERS / f"{stem}.ipynb" for stem in notebooks.OWN_NEEDS} <= set(notebooks.CHAPTERS.glob("*"))


def test_versions_agree() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == mhalib.__version__


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "handbooks/tools_and_release.md"])
def test_only_commands_that_exist_are_named(name: str) -> None:
    named = set(re.findall(r"`make ([a-z]+)`|^make ([a-z]+)", read(name), flags=re.MULTILINE))
    assert {one or other for one, other in named} <= TARGETS
    assert {"book", "test", "serve", "notebooks", "lab", "lint", "help"} <= TARGETS


def test_readme_leads_to_files_and_says_how_to_read_and_how_to_test() -> None:
    readme = read("README.md")
    links = re.findall(r"\]\(([^)#]+)", readme)
    assert [link for link in links if not exists(link)] == ["../../releases/latest"]  # beside the files, on GitHub
    assert f"`{offline.NAME}.zip`" in readme
    assert re.findall(r"^make (\w+)", readme, flags=re.MULTILINE) == ["serve", "test"]
    assert len(readme.split()) <= 1000


@pytest.mark.parametrize(
    ("ready", "goals", "installed"),
    [
        *((None, goal, ".venv/reads.txt") for goal in ("serve", "book", "offline")),
        *((None, goal, "requirements.txt") for goal in ("test", "serve pdf")),
        (".reads", "test", "requirements.txt"),
        *((one, "serve", None) for one in (".reads", ".installed")),
    ],
)
def test_whoever_only_reads_installs_what_builds_the_pages(
    tmp_path: Path, ready: str | None, goals: str, installed: str | None
) -> None:
    """That no more is imported, anywhere.yml tries each week."""
    (tmp_path / ".venv").mkdir()
    for name in ("requirements.txt", "requirements.lock", "pyproject.toml", *([f".venv/{ready}"] if ready else [])):
        (tmp_path / name).touch()
    (tmp_path / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    command = ["make", "--dry-run", "LOCKED=", *goals.split()]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert re.findall(r"-m pip install .*-r (\S+)", done.stdout) == ([installed] if installed else [])
    _package, pages, *others = read("requirements.txt").split("\n\n")
    assert pages.startswith("# the pages\n")
    assert "\njupyter-book==" in pages
    assert "playwright==" in "".join(others)


def test_the_handbook_gives_the_command_that_make_test_runs() -> None:
    command = re.search(r"-m (pytest -n .*)$", MAKEFILE, flags=re.MULTILINE)[1]
    assert command in read("handbooks/tools_and_release.md")
    assert re.search(r"^make test$", read(".ci/run"), flags=re.MULTILINE)


def test_the_handbooks_list_every_tool_every_tag_and_all_metadata() -> None:
    said = read("handbooks/tools_and_release.md")
    tools = [path for path in (notebooks.ROOT / "tools").glob("*/*.py") if path.name != "__init__.py"]
    assert [path.name for path in tools if f"{path.name}`" not in said] == []
    rooms = re.findall(r"^### tools/(\w+)", said, flags=re.MULTILINE)
    for room, text in zip(rooms, re.split(r"^### tools/\w+", said, flags=re.MULTILINE)[1:], strict=True):
        listed = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
        assert [
            name for name in re.findall(r"`(\w+\.py)`", " ".join(listed)) if not exists(f"tools/{room}/{name}")
        ] == []
    _, _, tags = read("handbooks/chapter.md").partition("## Tags and metadata of cells\n")
    tags = tags.partition("\n#")[0]
    pages = [nbformat.read(path, as_version=4) for path in sorted(notebooks.CHAPTERS.glob("*.ipynb"))]
    metadata = [cell.metadata for page in pages for cell in page.cells]
    used = {tag for one in metadata for tag in one.get("tags", [])} | {key for one in metadata for key in one}
    unsaid = {name for name in used if f"`{name}`" not in tags and f'{{"{name}"' not in tags}
    assert unsaid <= {"tags"}


def exists(name: str) -> bool:
    return (notebooks.ROOT / name).exists()


ROOMS = ("mhalib", "mhalib_classroom", "tools", "tests")


def test_the_map_of_the_house_has_every_room_and_no_other() -> None:
    """And every file that it names is there."""
    said = read("ARCHITECTURE.md")
    table = said.partition("## The rooms\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([\w/]+)`", table, flags=re.MULTILINE))
    tracked = subprocess.run(["git", "ls-files"], cwd=notebooks.ROOT, capture_output=True, text=True, check=True).stdout
    folders = {tuple(name.split("/")[:-1]) for name in tracked.splitlines()}
    inner = {"/".join(parts[:2]) for parts in folders if len(parts) > 1 and parts[0] in ROOMS}
    outer = {parts[0] for parts in folders if parts and parts[0] not in ROOMS and parts[0][0] != "."}
    assert listed == inner | outer
    bare = {path.stem for path in (notebooks.ROOT / "mhalib").glob("*.py") if path.stem[0] != "_"}
    (modules,) = re.findall(r"^\| `mhalib/\*\.py` \| (.*) \|$", table, flags=re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", modules)) <= bare
    for name in re.findall(r"`((?:mhalib|mhalib_classroom|tools|attention|grade)/[\w/]+\.py)`", said):
        places = (name, f"mhalib/{name}", f"mhalib_classroom/{name}")
        assert any(map(exists, places)), name


def test_contributing_can_be_read_in_five_minutes() -> None:
    assert len(read("CONTRIBUTING.md").split()) <= 900


def unknown_commands(shell: str) -> list[str]:
    """Targets of make that the Makefile has not, and files of the repository that are not there."""
    made = [
        target
        for targets in re.findall(r"(?:^|[;&] *)make ((?:[.\w/-]+(?![.\w/=-]) ?)+)", shell, flags=re.M)
        for target in targets.split()
    ]
    files = re.findall(r"(?:python|bash) ([\w./-]+\.\w+|\.ci/\w+)", shell)
    files += re.findall(r"(?<![\w./-])(?:tests|tools|chapters)(?![\w.])(?:/[\w.-]+)*", shell)
    modules = re.findall(r"python -m (tools(?:\.\w+)+)", shell)
    files += [f"{module.replace('.', '/')}.py" for module in modules]
    return [f"make {target}" for target in made if target not in TARGETS] + [
        name for name in files if not (notebooks.ROOT / name).exists()
    ]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_workflow_can_be_read_and_runs_what_there_is(name: str) -> None:
    workflow = yaml.safe_load(read(f".github/workflows/{name}"))
    assert {"name", True, "permissions", "jobs"} <= set(workflow)  # YAML reads the key `on` as a truth value
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    assert all(job["timeout-minutes"] <= 180 for job in workflow["jobs"].values())
    assert unknown_commands("\n".join(step.get("run", "") for step in steps)) == []


@pytest.mark.parametrize(
    ("shell", "unknown"),
    [
        ("make book lint", []),
        ("make bock", ["make bock"]),
        ("make lint && make tset", ["make tset"]),
        ("make release TAG=v0.4.0", []),
        ("python tools/nothing.py --only a", ["tools/nothing.py", "tools/nothing.py"]),
        ("python -m tools.pages.nothing --all", ["tools/pages/nothing.py"]),
        ("python -m tools.pages.build --all", []),
        ("bash .ci/walk", [".ci/walk"]),
        ("python -m pytest tests/libary chapters", ["tests/libary"]),
    ],
)
def test_a_command_that_is_not_there_is_found(shell: str, unknown: list[str]) -> None:
    assert unknown_commands(shell) == unknown


def test_ci_and_the_hooks_run_what_make_lint_runs() -> None:
    assert unknown_commands(read(".ci/run")) == []
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", MAKEFILE, flags=re.MULTILINE)[1]
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines() if "@" not in line]
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    assert [hook["entry"] for hook in hooks[0]["hooks"]] == commands
    assert all(hook["language"] == "system" and hook["pass_filenames"] is False for hook in hooks[0]["hooks"])


def test_dependabot_looks_at_all_that_is_pinned() -> None:
    updates = yaml.safe_load(read(".github/dependabot.yml"))["updates"]
    assert {one["package-ecosystem"] for one in updates} == {"pip", "npm", "github-actions", "docker"}
    assert all(one["cooldown"]["default-days"] >= 7 for one in updates)  # time to find out that one was tampered with
    assert {one["directory"] for one in updates} == {"/"}


def test_the_devcontainer_opens_ready_to_test() -> None:
    container = json.loads(read(".devcontainer/devcontainer.json"))
    assert unknown_commands(container["postCreateCommand"]) == []
    installed = set(container["onCreateCommand"].split())
    assert {"chromium", "bubblewrap", "git", "make"} <= installed
    version = re.search(r"python:(3\.\d+)", container["image"])[1]
    assert version in yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]["book"]["strategy"]["matrix"]["python"]


def test_a_release_is_checked_before_it_is_made() -> None:
    workflow = yaml.safe_load(read(".github/workflows/release.yml"))
    assert workflow[True]["push"]["tags"] == ["v*"]
    jobs = workflow["jobs"]
    assert [jobs[name]["needs"] for name in ("pages", "attest", "release")] == ["build", ["build", "pages"], "attest"]
    signed = [step["with"] for step in jobs["attest"]["steps"] if "attest@" in step["uses"]]
    made = {"subject-path": "dist/*\nbook/*\nread/*\n"}
    assert signed == [made, {"subject-path": "dist/*.whl", "sbom-path": "sbom.json"}]
    runs = [step["run"] for name in ("build", "release") for step in jobs[name]["steps"] if "run" in step]
    words = ("tools.editions.release", "-m build", "twine check --strict", "tools.editions.book_wheel", "gh release")
    places = [next(i for i, run in enumerate(runs) if word in run) for word in words]
    assert places == sorted(places)
    assert " dist/* book/* read/* " in runs[-1]
    *_, made, moved = [step["run"] for step in jobs["pages"]["steps"] if "run" in step]
    assert made.split(" #")[0] == "make offline pdf epub"
    assert f"_build/{offline.NAME}.zip _build/html/_downloads/{offline.NAME}*" in moved


def test_the_package_index_gets_a_release_only_from_a_person_and_without_a_password() -> None:
    text = read(".github/workflows/release.yml")
    jobs = yaml.safe_load(text)["jobs"]
    publishing = [name for name, job in jobs.items() if "gh-action-pypi-publish" in str(job["steps"])]
    assert publishing == ["pypi"]
    assert jobs["pypi"]["environment"]["name"] == "pypi"
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}
    assert jobs["pypi"]["needs"] == "reviewer"
    assert jobs["reviewer"]["needs"] == "release"
    assert "PUBLISH_TO_PYPI" in jobs["reviewer"]["if"]
    asked = "".join(step.get("run", "") for step in jobs["reviewer"]["steps"])
    assert "required_reviewers" in asked
    assert "https://github.com/$GITHUB_REPOSITORY" in asked
    assert re.findall(r"secrets\.\w+", text) == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_runs_others_code_may_change_nothing(name: str) -> None:
    """A job with rights takes an artifact: it checks out nothing, and installs and builds nothing."""
    workflow = yaml.safe_load(read(f".github/workflows/{name}"))
    assert workflow["permissions"] == {"contents": "read"}
    for job, told in workflow["jobs"].items():
        rights = {right for right, kind in told.get("permissions", {}).items() if kind == "write"}
        commands = "\n".join(str(step.get("run", step.get("uses"))) for step in told["steps"])
        if rights:
            assert told["timeout-minutes"] <= 15, job
            assert not re.search(r"checkout@|setup-python|\b(?:pip|pipx|make|python|npm|docker)\b", commands), job
        for step in told["steps"]:
            if "actions/checkout@" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False, job


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_run_on_a_node_that_github_still_has(name: str) -> None:
    """Node 24, by the majors of November 2026. An action is named by its commit, which nobody can move as a tag."""
    lowest = {"checkout": 7, "setup-python": 7, "upload-artifact": 7, "download-artifact": 8}
    lowest |= {"configure-pages": 6, "upload-pages-artifact": 5, "deploy-pages": 5, "attest": 4}
    text = read(f".github/workflows/{name}")
    found = re.findall(r"uses: actions/([\w-]+)@[0-9a-f]{40} # v(\d+)", text)
    assert len(found) == len(re.findall(r"uses: *actions/", text))
    assert re.findall(r"uses: *([\w./-]+)@(?![0-9a-f]{40} # v)", text) == []
    assert [(action, major) for action, major in found if int(major) < lowest[action]] == []


def test_colab_is_tried_with_colab_s_python_and_where_pages_are_published_no_cache_is_taken() -> None:
    """A cache may have been filled by a job of somebody else's."""
    colab, *_ = yaml.safe_load(read(".github/workflows/anywhere.yml"))["jobs"]["colab"]["steps"][1:]
    assert colab["with"] == {"python-version": "3.13"}
    assert all("cache:" not in read(f".github/workflows/{name}.yml") for name in ("publish", "release", "anywhere"))


def test_the_newest_stack_is_tried_each_week_and_says_what_broke() -> None:
    workflow = yaml.safe_load(read(".github/workflows/newest.yml"))
    assert "schedule" in workflow[True]
    job = workflow["jobs"]["book"]
    assert job["continue-on-error"] is True
    install, *others = [step["run"] for step in job["steps"] if "run" in step]
    assert "tools.pages.build --all" in others[0]
    assert "GITHUB_STEP_SUMMARY" in others[-1]
    command = next(line for line in install.splitlines() if line.startswith("sed ")).partition(">")[0]
    done = subprocess.run(["bash", "-c", command], cwd=notebooks.ROOT, capture_output=True, text=True, check=True)
    left, pinned = done.stdout.splitlines(), read("requirements.txt").splitlines()
    changed = {line.partition(" #")[0] for line in left} - {line.partition(" #")[0] for line in pinned}
    gone = {"sphinx", "sphinx-book-theme", "pydata-sphinx-theme", "sphinx-design", "sphinx-exercise"}
    assert changed == gone | {"sphinxcontrib-bibtex", "sphinx-intl", "myst-nb", "myst-parser"}
    assert len(left) == len(pinned) - 1
    assert not any("jupyter-book" in line for line in left)


def test_workflows_test_what_is_promised() -> None:
    tests = yaml.safe_load(read(".github/workflows/test.yml"))
    matrix = tests["jobs"]["library"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert {system.split("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
    gpu = yaml.safe_load(read(".github/workflows/gpu.yml"))
    assert gpu["jobs"]["notebooks"]["steps"][-1]["run"] == "make gpu"
    (recipe,) = re.findall(r"^gpu:.*\n((?:\t.*\n)+)", MAKEFILE, flags=re.MULTILINE)
    assert re.search(r"pytest .*--nbval .*chapters", recipe)
    assert "schedule" in tests[True]  # YAML reads the key `on` as a truth value


def test_the_lowest_versions_that_are_promised_are_tested() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    promised = sum(project["optional-dependencies"].values(), project["dependencies"])
    tested = re.findall(r"^[\w-]+==\S+$", read("tests/lowest.txt"), flags=re.MULTILINE)
    assert tested == [requirement.replace(">=", "==") for requirement in promised]
    matrix = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]["library"]["strategy"]["matrix"]
    lowest, *_, highest = matrix["python"]
    assert matrix["include"] == [{"os": "ubuntu-latest", "python": lowest, "constraints": "-c tests/lowest.txt"}]
    assert project["requires-python"] == f">={lowest}"
    torch = tested[0].removeprefix("torch==")
    assert f"Python {lowest} to {highest}, torch {torch} or later" in read("README.md")


def test_every_system_can_hold_the_files_and_holds_the_same_bytes() -> None:
    names = [part for name in tracked() for part in name.split("/")]
    reserved = re.compile(r"(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?|.*[<>:\"|?*\\].*|.*[ .]")
    assert [name for name in names if reserved.fullmatch(name)] == []  # on Windows
    assert len({name.lower() for name in tracked()}) == len(tracked())  # on Windows and macOS
    assert max(map(len, tracked())) < 120  # of the 260 characters of a path on Windows
    asked = "\n".join(name for name in tracked() if name.endswith((".py", ".ipynb", "postBuild")))
    command = ["git", "check-attr", "--stdin", "eol"]
    told = subprocess.run(command, cwd=notebooks.ROOT, input=asked, capture_output=True, text=True, check=True)
    assert [line for line in told.stdout.splitlines() if not line.endswith(": eol: lf")] == []  # see .gitattributes


@pytest.mark.parametrize("name", [name for name in tracked() if "tests/" not in name])
def test_names_no_machine(name: str) -> None:
    if (notebooks.ROOT / name).suffix in TEXT or name in ("Makefile", ".ci/run"):
        assert re.findall(r"/(?:home|root|Users|tmp|work)/\w+|[A-Z]:\\+Users", read(name)) == []


def test_no_merge_is_left_half_done() -> None:
    places = subprocess.run(
        ["git", "grep", "-nE", r"^\s*\"?(<{7}|>{7}) "], cwd=notebooks.ROOT, capture_output=True, text=True, check=False
    )
    assert places.stdout == ""


def test_is_small() -> None:
    sizes = {name: (notebooks.ROOT / name).stat().st_size for name in tracked()}
    assert max(sizes.values()) < 1_000_000, max(sizes, key=sizes.__getitem__)
    assert sum(sizes.values()) < 18_900_000  # what came last: draws of dropout that play, a copier without its mask


def test_what_waits_for_the_week_is_listed_and_is_run() -> None:
    """The handbook's table has each mark and each file that marks a test as weekly, and a workflow runs all."""
    table = read("handbooks/tools_and_release.md").partition("## What runs once a week")[2].partition("\n## ")[0]
    where = "\n".join(line.split("|")[2] for line in table.splitlines() if line.startswith("|"))
    listed = set(re.findall(r"`(test_\w+\.py)`", where))
    tests = [notebooks.ROOT / name for name in tracked() if re.match(r"tests/\w+/test_\w+\.py$", name)]
    marked = {path.name for path in tests if "mark.weekly" in path.read_text("utf-8")}
    marked -= {"test_repository.py", "test_waiting.py"}
    assert listed == marked | {"test_pages.py", "test_predict.py"}
    job = yaml.safe_load(read(".github/workflows/weekly.yml"))["jobs"]["weekly"]
    assert job["env"] == {"MHALIB_TESTS": "all"}
    assert job["steps"][-1] == {"run": "bash .ci/run"}
    assert set(re.findall(r"the mark `(\w+)`", where)) == set(waiting.WAITING) - {"weekly"}
    look = yaml.safe_load(read(".github/workflows/look.yml"))["jobs"]["all"]
    assert look["env"] == {"MHALIB_LOOK": "all"}
    assert any("tests/book/test_pages.py" in step.get("run", "") for step in look["steps"])
