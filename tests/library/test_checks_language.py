"""What checkers say in French: all sentences of chapters 1 to 10, and neither points nor findings depend on it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mhalib_classroom
from mhalib_classroom import _language, checks
from mhalib_classroom.checks import EXERCISES, _report
from mhalib_classroom.grade import _feedback
from mhalib_classroom.grade._table import Row

TRANSLATED = [exercise for exercise in EXERCISES.values() if exercise.chapter <= 10]
MADE_OF_PARTS = re.compile("the fold is .*, the masks are repeated .*, the way back is .*")
FOLDER = Path(_language.__file__).parent


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_language, "_chosen", [])
    monkeypatch.delenv("MHALIB_LANGUAGE", raising=False)


@pytest.fixture
def french() -> None:
    mhalib_classroom.language("fr")


def sentences_of(exercise: checks.Exercise) -> list[str]:
    return [exercise.title, exercise.verified, *exercise.parts, *(one.message for one in exercise.mistakes)]


def a_wrong_average(weights, values):
    return values.mean(0).expand(len(weights), -1)


def test_a_student_reads_french_and_the_finding_stays_as_it_is() -> None:
    english = EXERCISES["weighted_average"].examine(a_wrong_average)
    mhalib_classroom.language("fr")
    assert EXERCISES["weighted_average"].examine(a_wrong_average) == english
    with pytest.raises(checks.CheckFailed) as refused:
        checks.weighted_average(a_wrong_average)
    said = str(refused.value)
    assert "c’est la moyenne de toutes les valeurs" in said
    assert "\n    attendu   " in said
    assert "de forme (" in said
    assert english.mistake is not None


@pytest.mark.usefixtures("french")
def test_success_and_the_report_are_in_french(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks.weighted_average(lambda weights, values: weights @ values)
    assert capsys.readouterr().out.startswith("weighted_average: juste. Vérifié\N{NO-BREAK SPACE}: quatre entrées")
    monkeypatch.setattr(_report, "_found", None)
    checks.keep_going()
    checks.weighted_average(a_wrong_average)
    capsys.readouterr()
    checks.report()
    line, total = capsys.readouterr().out.splitlines()
    assert line.split() == ["weighted_average", "pas", "encore", "0", "sur", "1"]
    assert total == "juste\N{NO-BREAK SPACE}: 0 sur 1\N{NO-BREAK SPACE}; points\N{NO-BREAK SPACE}: 0 sur 1"


@pytest.mark.usefixtures("french")
def test_the_sentences_of_chapters_1_to_8_are_translated() -> None:
    """Who mends an English sentence need not know French: a student reads the new one. But it must not drift far."""
    said = {one for exercise in TRANSLATED for one in sentences_of(exercise)}
    left = [one for one in said if _language.say(one) == one]
    assert len(left) <= 0.1 * len(said), left


@pytest.mark.usefixtures("french")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda weights, values: 2 * (weights @ values), "Chaque nombre vaut 2 fois le bon"),
        (lambda weights, values: (weights @ values).flip(0), "Le résultat est renversé le long de l’axe -2"),
        (lambda weights, values: weights @ values + 1, "Chaque nombre est trop grand de 1"),
        (lambda weights, values: (weights @ values).clamp(min=0), "C’est le bon résultat, avec 0"),
        (lambda weights, values: (weights @ values).sum(0), "C’est la somme du bon résultat sur l’axe -2"),
        (lambda weights, values: (weights @ values).numpy(), "enveloppez-le dans torch.from_numpy"),
        (lambda weights, values: None, "le résultat vaut None. Avez-vous oublié `return`"),
        (lambda weights, values: 1 / 0, "votre code a levé ZeroDivisionError: division by zero"),
        ("weights @ values", "remettez la fonction elle-même, et non 'weights @ values'"),
    ],
)  # fmt: skip
def test_what_no_mistake_explains_is_told_in_french(wrong: object, told: str) -> None:
    said = _language.say(EXERCISES["weighted_average"].examine(wrong).message)
    assert told in said
    assert not re.search(r"\b(the|yours|must|number|shape)\b", said.replace("weights @ values", ""))


@pytest.mark.usefixtures("french")
def test_two_mistakes_are_named_in_french() -> None:
    exercise = EXERCISES["attend"]
    both = {"hidden": "never", "returned": lambda output, weights, scores: (weights, output)}
    said = _language.say(exercise.examine(lambda *given: exercise.switches(*given, **both)).message)
    assert said.startswith("deux choses\N{NO-BREAK SPACE}: le masque n’a aucun effet.")
    assert " Et vous renvoyez les poids en premier." in said


@pytest.mark.usefixtures("french")
def test_what_has_no_translation_stays_english_sentence_by_sentence() -> None:
    left = "this is said nowhere else. The result is not this"
    assert _language.say(left) == left
    assert _language.say("the result is NaN. Nobody has translated this") == (
        "le résultat vaut NaN. Nobody has translated this"
    )
    assert _language.say("a student of mine is NaN") == "a student of mine is NaN"


def test_a_fuzzy_entry_does_not_count() -> None:
    catalogue = '#, fuzzy\nmsgid "right."\nmsgstr "juste."\n\nmsgid "right"\nmsgstr ""\n"ju"\n"ste"\n'
    sentences = _language.Sentences(catalogue)
    assert sentences.gettext("right.") == "right."
    assert sentences.gettext("right") == "juste"


def test_the_environment_chooses_where_nobody_did(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, name in (("fr", "fr"), ("fr_CA.UTF-8", "fr"), ("tlh", "en"), ("../fr", "en"), ("", "en")):
        monkeypatch.setenv("MHALIB_LANGUAGE", value)
        assert _language.spoken() == name
    monkeypatch.setenv("MHALIB_LANGUAGE", "fr")
    mhalib_classroom.language("en")
    assert _language.say("right.") == "right."
    with pytest.raises(ValueError, match="language='tlh': checkers speak en and fr"):
        mhalib_classroom.language("tlh")


def test_a_students_text_is_never_read_for_long() -> None:
    """A form has gaps, and a student's text may repeat what stands between them."""
    hostile = "the result must be a, and yours is b: " * 40
    assert _language.sentences("fr").gettext(hostile).startswith("the result")


@pytest.mark.usefixtures("french")
def test_feedback_is_in_french_and_the_rows_are_not_changed() -> None:
    finding = EXERCISES["weighted_average"].examine(a_wrong_average)
    row = Row("Ada", "01.ipynb", 1, "weighted_average", 0, 1, finding.kind, finding.mistake, finding.message, "")
    page = _feedback.page("Ada", [row])
    assert '<html lang="fr">' in page
    assert "la moyenne de valeurs que renvoie une tête (weighted_average)" in page
    assert "c’est la moyenne de toutes les valeurs" in page
    assert "Points en tout\N{NO-BREAK SPACE}: 0 sur 1." in page
    assert row.diagnosis == finding.message


def test_what_is_translated_is_still_what_the_checkers_say() -> None:
    """What no checker says any more is removed from `fr.po`, or mended: a student reads English there."""
    files = [*(FOLDER / "checks").glob("*.py"), *(FOLDER / "grade").glob("*.py")]
    code = "NoneType" + "".join(part for path in files for part in _constants(path))
    said = {one for exercise in EXERCISES.values() for one in sentences_of(exercise)}
    known = [one for one in _language.sentences("fr").known if one not in said and not MADE_OF_PARTS.match(one)]
    gone = [one for one in known if not all(word in code for word in _words(one))]
    assert len(gone) <= 0.1 * len(known), gone


def _words(english: str) -> list[str]:
    return re.findall(r"[A-Za-z]{3,}", re.sub(r"\{\w+\}", " ", english))


def _constants(path: Path) -> list[str]:
    found = [
        node.value for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Constant)
    ]
    return [value for value in found if isinstance(value, str)]


def test_another_process_speaks_it_by_the_variable() -> None:
    """As the grader's own processes do, and a notebook that a student starts."""
    code = "from mhalib_classroom import checks\nchecks.weighted_average(lambda weights, values: weights @ values)\n"
    environment = {**os.environ, "MHALIB_LANGUAGE": "fr", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stdout.startswith("weighted_average: juste.")
