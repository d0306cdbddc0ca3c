"""`make bench`: the contenders are one layer, and what they took arrives on the page and in the picture."""

from __future__ import annotations

import re

import pytest
import torch

from tools.evidence import bench, bench_case, bench_page


@pytest.mark.parametrize("mask", bench.MASKS)
@pytest.mark.parametrize("size", bench.QUICK_SIZES)
def test_contenders_give_the_same(size: bench.Size, mask: str) -> None:
    layer, x, valid_lens = bench.problem(size, mask, torch.device("cpu"), torch.float32)
    assert (valid_lens is None) == ("valid_lens" not in mask)
    functions, _ = bench.contenders(layer, mask, valid_lens)
    assert len(functions) == 8
    bench.check_agreement(functions, x)
    with torch.no_grad():
        torch.testing.assert_close(bench.fused_in_modules(layer, x), bench.fused(layer, x, None))


def test_a_contender_that_computes_something_else_is_named() -> None:
    layer, x, _ = bench.problem((2, 6, 100, 5), "no mask", torch.device("cpu"), torch.float32)
    functions, _ = bench.contenders(layer, "no mask", None)
    right = functions[bench.D2L]
    functions[bench.D2L] = lambda x: 1.01 * right(x)
    with pytest.raises(AssertionError, match=bench.D2L):
        bench.check_agreement(functions, x)


def test_contenders_are_measured_as_people_call_them() -> None:
    layer, x, _ = bench.problem((3, 16, 32, 4), "no mask", torch.device("cpu"), torch.float32)
    functions, modules = bench.contenders(layer, "no mask", None)
    assert not any(module.training for module in modules)
    seen = []
    functions[bench.OURS] = lambda x: seen.append(torch.is_grad_enabled()) or layer(x, x, x)[0]
    parameters = list(layer.parameters())
    for passes in bench.PASSES:
        bench.as_call(functions[bench.OURS], x, passes, parameters)()
    assert seen == [False, True]
    assert all(parameter.grad is None for parameter in parameters)


def test_causal_takes_the_kernel_without_a_matrix(monkeypatch) -> None:
    layer, x, _ = bench.problem((3, 16, 32, 4), "causal", torch.device("cpu"), torch.float32)
    functions, _ = bench.contenders(layer, "causal", None)
    seen = []
    kernel = torch.nn.functional.scaled_dot_product_attention

    def watched(*args, **kwargs):
        seen.append((kwargs["attn_mask"], kwargs["is_causal"]))
        return kernel(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    for name in (bench.FUSED, bench.OURS):
        functions[name](x)
    assert seen == [(None, True)] * 2


def test_who_stores_scores_is_left_out_where_they_would_not_fit(monkeypatch) -> None:
    monkeypatch.setattr(bench, "KEEPS_SCORES_UP_TO", 15)
    case = bench.measure((3, 16, 32, 4), "no mask", "forward", torch.device("cpu"), False, 0.0)
    assert tuple(case.seconds) == bench.NEVER_STORE
    assert "torch" not in bench_page.times([case])


def test_one_token_is_measured_with_a_full_cache(monkeypatch) -> None:
    lengths = []
    new_cache = bench.MultiHeadAttention.new_cache

    def remembered(layer, max_tokens):
        lengths.append(new_cache(layer, max_tokens))
        return lengths[-1]

    monkeypatch.setattr(bench, "VARIANTS", {"multi-head": "multi-head"})
    monkeypatch.setattr(bench.MultiHeadAttention, "new_cache", remembered)
    kinds = bench.variants((3, 16, 32, 4), torch.device("cpu"), 8, 3)
    assert [len(taken["multi-head"]) for taken in kinds.values()] == [3, 3, 3]
    assert [len(cache) for cache in lengths] == [8 + 4]  # one round goes before


def test_quick_run_rewrites_page_and_picture(tmp_path, capsys) -> None:
    page, plot = tmp_path / "speed.md", tmp_path / "speed.svg"
    page.write_text(f"# Before\n\n{bench_page.BEGIN}\nwhat was here\n{bench_page.END}\n\nAfter\n", encoding="utf-8")
    for _ in range(2):  # the second run replaces what the first wrote
        bench.main(["--quick", "--device", "cpu", "--page", str(page), "--plot", str(plot)])
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# Before\n\n{bench_page.BEGIN}\n\n## ")
    assert text.endswith(f"\n\n{bench_page.END}\n\nAfter\n")
    assert "what was here" not in text
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    bars, shares, variants, *each, overhead = tables
    assert len(each) == 2 * len(bench.PASSES) * len(bench.MASKS)
    assert bars.count(" of 6 |") == 3
    assert bars.count(" of 12 |") == 2
    assert shares.count("%") == 5 * 2 * 2
    assert all(f"\n| {name} |" in variants for name in bench.VARIANTS)
    for name in (bench.FUSED, bench.OURS_WEIGHTS, bench.LOOP):
        assert all(f"\n| {name} |" in one for one in each)
    assert "µs" in overhead
    assert text.count(":::{dropdown} ") == len(bench.PASSES) * len(bench.MASKS)  # ``` takes no ` in a title
    assert "this was not run on a GPU." in text
    assert bars in capsys.readouterr().out
    drawn = plot.read_text(encoding="utf-8")
    assert drawn.startswith("<svg")
    assert all(f">{name}<" in drawn for name in (bench.OURS, bench.LOOP, *bench.PASSES))
    assert plot.stat().st_size < 100_000


def _case(size, mask, ours, rounds=(0.9, 1.0, 1.1)):
    names = (bench.FUSED, bench.AGAIN, bench.OURS, bench.OURS_WEIGHTS, bench.TORCH_WEIGHTS)
    seconds = {name: [1.0] * 3 for name in names} | {bench.OURS: [ours * each for each in rounds]}
    return bench_case.Case(size, mask, "forward", seconds, dict.fromkeys(names, 100))


def test_a_limit_that_does_not_hold_is_counted() -> None:
    cases = [_case((2, 6, 100, 5), "no mask", 3.0), _case((8, 128, 512, 8), "no mask", 1.024)]
    cases += [_case((8, 128, 512, 8), "causal", 1.026)]
    rows = bench_page.verdicts(cases).splitlines()[2:]
    assert rows[0] == (
        "| time: ours, against fused kernel, bare | 1.02 | 1.03 (0.97–1.08) | (8, 128, 512, 8), forward, causal "
        "| 1 of 2 | 3.00 (2.85–3.15) |"
    )
    assert all("2 of 2 |" in row or "3 of 3 |" in row for row in rows[1:])


def test_ratios_are_taken_round_by_round() -> None:
    """A slow round that hits both must not move the ratio."""
    seconds = {bench.FUSED: [1.0, 10.0, 1.0], bench.OURS: [2.0, 20.0, 2.0]}
    case = bench_case.Case((1, 1, 1, 1), "no mask", "forward", seconds, {})
    assert case.ratios(bench.OURS) == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "text",
    [
        "# No markers\n",
        f"{bench_page.END}\n{bench_page.BEGIN}\n",
        f"{bench_page.BEGIN}\n" * 2 + bench_page.END,
        f"{bench_page.BEGIN}\n" + f"{bench_page.END}\n" * 2,
    ],
)
def test_a_page_without_its_markers_is_refused(text: str, tmp_path) -> None:
    page = tmp_path / "speed.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"speed.md needs the lines"):
        bench_page.rewrite(page, "new")
    assert page.read_text(encoding="utf-8") == text


def test_the_page_of_the_book_can_be_rewritten() -> None:
    text = bench_page.PAGE.read_text(encoding="utf-8")
    assert text.index(bench_page.BEGIN) < text.index(bench_page.END)
    assert bench_page.PLOT.name in text
    assert bench_page.PLOT.stat().st_size < 100_000


def test_what_other_devices_measured_stays(tmp_path) -> None:
    page = tmp_path / "speed.md"
    page.write_text(f"{bench_page.BEGIN}\n\n## 4 CPU cores, torch 2\n\nold\n\n{bench_page.END}\n", encoding="utf-8")
    with_gpu = bench_page.beside_others(page, ["## A GPU, torch 3\n\nnew\n\n### Times\n\n1"])
    assert with_gpu == "## 4 CPU cores, torch 2\n\nold\n\n## A GPU, torch 3\n\nnew\n\n### Times\n\n1"
    bench_page.rewrite(page, with_gpu)
    anew = bench_page.beside_others(page, ["## 2 CPU cores, torch 4\n\nanew"])
    assert anew == "## 2 CPU cores, torch 4\n\nanew\n\n## A GPU, torch 3\n\nnew\n\n### Times\n\n1"
    page.write_text(f"{bench_page.BEGIN}\n\n{bench_page.NO_GPU}\n\n{bench_page.END}\n", encoding="utf-8")
    assert bench_page.beside_others(page, ["## A GPU, torch 3"]) == "## A GPU, torch 3"
