"""A class of four in the real sandbox, for each commit: test_grade.py has the hostile ones, and waits."""

from test_grade import HONEST, grade, hand_in, in_the_function, sandboxed  # noqa: F401


def test_each_gets_what_the_notebook_deserves_and_nobody_anothers(sandboxed, tmp_path):  # noqa: F811
    secret = tmp_path / "solutions.txt"
    secret.write_text("weights @ values", encoding="ascii")
    work = {
        "honest": HONEST,
        "mistaken": in_the_function("return weights @ values / values.shape[0]"),
        "spying": in_the_function(f"return open({str(secret)!r}).read()"),
        "endless": in_the_function("while True: pass"),
    }
    rows = grade(hand_in(tmp_path / "class", work), tmp_path / "grades.csv", chapters=[1])
    of = {(row.student, row.exercise): row for row in rows}
    assert of["mistaken", "weighted_average"].mistake == "divided by the number of values"
    assert "No such file" in of["spying", "weighted_average"].diagnosis
    assert {who for who in work if of[who, "weighted_average"].points} == {"honest"}
    assert {who for who in work if of[who, "scores"].points} == set(work)
