"""Quizzes, quizzes/TOPIC.md, as pages, for Moodle, as QTI 2.1, and as an exam.

    python -m tools.teaching.quizzes                    writes all into _build/html/_downloads/quizzes
    python -m tools.teaching.quizzes exam --chapters 3 4 5 --questions 8 --seed 7 --out exam

A file holds five questions, and a teacher can change it in any editor:

    # The reshape trick

    ## The row of a head

    *With* h = 8, 12; b = 2, 1

    {= h} heads are folded into the batch. In which row is head 0 of example {= b}?

    - [x] {= b * h}
      Each example has h rows.
    - [ ] {= b}
      An example has h rows, not one.

Each answer has its reason: why it is right, or what is wrong. `*With*` gives variants, the first values together, then
the second; `{= expression:format}` is Python, with `mhalib`, `costs`, `roofline`, `parallel`, `torch` and `math`.
"""

from __future__ import annotations

import argparse
import itertools
import random
from pathlib import Path

from mhalib._write import write_whole
from tools import ROOT
from tools.teaching.quiz_files import categories, moodle, page, paper, write_qti
from tools.teaching.quiz_text import BOOK, SOURCES, Question, Quiz, chapters, quizzes

FOLDER = "_downloads/quizzes"
__all__ = ["FOLDER", "SOURCES", "chapters", "exam", "quizzes", "write"]


def write(folder: Path) -> list[Quiz]:
    """Write pages, Moodle's XML and QTI of all quizzes, and all for Moodle in one file, into a built book."""
    made = [quiz for quiz in quizzes() if (folder / f"chapters/{chapters()[quiz.topic]}.html").exists()]
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for quiz in made:
        stem = folder / FOLDER / chapters()[quiz.topic]
        write_whole(stem.with_suffix(".html"), page(quiz))
        write_whole(stem.with_suffix(".xml"), moodle(categories(quiz)))
        write_qti(stem.with_suffix(".zip"), itertools.chain(*quiz.questions))
    write_whole(folder / FOLDER / "all.xml", moodle(group for quiz in made for group in categories(quiz)))
    write_qti(folder / FOLDER / "all.zip", (one for quiz in made for one in itertools.chain(*quiz.questions)))
    return made


def exam(numbers: list[int], count: int, seed: int) -> list[Question]:
    """So many different questions from these chapters, of each the variant that the seed draws.

    Raises:
        ValueError: the chapters have no quiz, or fewer questions.
    """
    pool = [variants for quiz in quizzes() if int(chapters()[quiz.topic][:2]) in numbers for variants in quiz.questions]
    if len(pool) < count:
        raise ValueError(f"--questions {count}: chapters {numbers} have {len(pool)}")
    rng = random.Random(seed)
    return [rng.choice(variants) for variants in rng.sample(pool, count)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("book", "exam"), default="book")
    every = [int(stem[:2]) for stem in chapters().values()]
    parser.add_argument("--chapters", type=int, nargs="+", default=every, help="of the exam")
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="another seed is another exam, of the same kind")
    parser.add_argument("--out", type=Path, default=ROOT / "exam")
    asked = parser.parse_args(arguments)
    if asked.what == "book":
        made = write(ROOT / "_build/html")
        count = sum(len(variants) for quiz in made for variants in quiz.questions)
        print(f"{len(made)} quizzes, {count} questions with all variants, in {FOLDER}")
        return
    try:
        drawn = exam(asked.chapters, asked.questions, asked.seed)
    except ValueError as error:
        parser.error(str(error))
    asked.out.mkdir(parents=True, exist_ok=True)
    write_whole(asked.out / "exam.html", paper(drawn, BOOK))
    write_whole(asked.out / "exam.xml", moodle([(f"$course$/top/{BOOK}, exam {asked.seed}", drawn)]))
    write_qti(asked.out / "exam.zip", drawn)
    print(f"{len(drawn)} questions: {asked.out}/exam.html, exam.xml for Moodle, exam.zip as QTI 2.1")


if __name__ == "__main__":
    main()
