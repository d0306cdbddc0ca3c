"""`make bench`: the contenders are one layer, and what they took arrives on the page and in the picture."""

from __future__ import annotations

import re

import bench
import pytest
import torch
from matplotlib import pyplot as plt


@pytest.mark.parametrize("masked", bench.MASKS)
@pytest.mark.parametrize("size", bench.QUICK_SIZES)
def test_contenders_give_the_same(size: bench.Size, masked: bool) -> None:
    layer, x, valid_lens = bench.problem(size, masked, torch.device("cpu"), torch.float32)
    functions, _ = bench.contenders(layer, valid_lens)
    assert len(functions) == 7
    bench.check_agreement(functions, x)
    with torch.no_grad():
        torch.testing.assert_close(bench.fused_in_modules(layer, x), bench.fused(layer, x, None))


def test_a_contender_that_computes_something_else_is_named() -> None:
    layer, x, _ = bench.problem((2, 6, 100, 5), False, torch.device("cpu"), torch.float32)
    functions, _ = bench.contenders(layer, None)
    right = functions[bench.D2L]
    functions[bench.D2L] = lambda x: 1.01 * right(x)
    with pytest.raises(AssertionError, match=bench.D2L):
        bench.check_agreement(functions, x)


def test_contenders_are_measured_as_people_call_them() -> None:
    layer, x, _ = bench.problem((3, 16, 32, 4), False, torch.device("cpu"), torch.float32)
    functions, modules = bench.contenders(layer, None)
    assert not any(module.training for module in modules)
    seen = []
    functions[bench.OURS] = lambda x: seen.append(torch.is_grad_enabled()) or layer(x, x, x)[0]
    parameters = list(layer.parameters())
    for passes in bench.PASSES:
        bench.as_call(functions[bench.OURS], x, passes, parameters)()
    assert seen == [False, True]
    assert all(parameter.grad is None for parameter in parameters)


def test_quick_run_rewrites_page_and_picture(tmp_path, capsys) -> None:
    page, plot = tmp_path / "speed.md", tmp_path / "speed.png"
    page.write_text(f"# Before\n\n{bench.BEGIN}\nwhat was here\n{bench.END}\n\nAfter\n", encoding="utf-8")
    for _ in range(2):  # the second run replaces what the first wrote
        bench.main(["--quick", "--device", "cpu", "--page", str(page), "--plot", str(plot)])
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# Before\n\n{bench.BEGIN}\n\n## ")
    assert text.endswith(f"\n\n{bench.END}\n\nAfter\n")
    assert "what was here" not in text
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert len(tables) == 2 + len(bench.PASSES) * len(bench.MASKS)
    assert tables[0].count(" of 8") == len(bench.BARS)
    for name in (bench.FUSED, bench.OURS_WEIGHTS, bench.LOOP):
        assert all(f"\n| {name} |" in one for one in tables[1:-1])
    assert "This was not run on a GPU." in text
    assert tables[1] in capsys.readouterr().out + "\n"
    height, width, _ = plt.imread(plot).shape
    assert min(height, width) > 500
    assert plot.stat().st_size < 100_000


def test_a_bar_that_does_not_hold_is_marked() -> None:
    names = (bench.FUSED, bench.OURS, bench.OURS_WEIGHTS, bench.TORCH_WEIGHTS)
    taken = dict.fromkeys(names, 1.0)
    cases = [
        bench.Case((2, 6, 100, 5), False, "forward", taken | {bench.OURS: 1.054}, dict.fromkeys(names, 100)),
        bench.Case((8, 128, 512, 8), True, "forward", taken | {bench.OURS: 1.056}, dict.fromkeys(names, 100)),
    ]
    rows = bench.verdicts(cases).splitlines()[2:]
    assert rows[0].endswith("| 1.05 | 1 of 2 ✗ | 1.06 at $(8, 128, 512, 8)$, forward, with `valid_lens` |")
    assert all("2 of 2 |" in row for row in rows[1:])


@pytest.mark.parametrize(
    "text",
    [
        "# No markers\n",
        f"{bench.END}\n{bench.BEGIN}\n",
        f"{bench.BEGIN}\n" * 2 + bench.END,
        f"{bench.BEGIN}\n" + f"{bench.END}\n" * 2,
    ],
)
def test_a_page_without_its_markers_is_refused(text: str, tmp_path) -> None:
    page = tmp_path / "speed.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"speed.md needs the lines"):
        bench.rewrite(page, "new")
    assert page.read_text(encoding="utf-8") == text


def test_the_page_of_the_book_can_be_rewritten() -> None:
    text = bench.PAGE.read_text(encoding="utf-8")
    assert text.index(bench.BEGIN) < text.index(bench.END)
    assert bench.PLOT.name in text
    assert bench.PLOT.stat().st_size < 100_000
