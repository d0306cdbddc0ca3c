"""The calculator's numbers are those of `mhalib.serving`, and what does not fit is refused by name."""

import re

import pytest

pytest.importorskip("anywidget")

from mhalib.roofline import CHIPS
from mhalib.serving import MODELS, serving_costs
from mhalib.widgets import ModelCalculator
from mhalib.widgets.model_calculator import DEFAULTS, ROWS, in_cells

FIRST = {"model": "Qwen3-8B", "machine": "AMD MI300X", "precision": "8 bits", "kernel": "stored", "num_tokens": 1000}


def test_both_choices_are_served_and_the_second_takes_what_it_does_not_name_from_the_first():
    calculator = ModelCalculator(FIRST, {"batch_size": 7, "num_chips": 2})
    how = {"precision": "8 bits", "kernel": "stored"}
    model, chip = MODELS["Qwen3-8B"], CHIPS["AMD MI300X"]
    assert calculator.costs(1) == serving_costs(model, chip, 1000, 1, **how)
    assert calculator.costs(2) == serving_costs(model, chip, 1000, 7, num_chips=2, **how)
    assert calculator.chosen(1) == {**DEFAULTS, **FIRST}


def test_each_row_has_its_number_and_its_formula():
    calculator = ModelCalculator(FIRST)
    _, header, rows = calculator.table()
    costs = calculator.costs(1)
    assert header[2] == "Qwen3-8B, 1 × AMD MI300X, 8 bits, stored, 1 × 1,000 tokens"
    assert header[3].endswith("64 × 1,000 tokens")
    assert [tuple(row[:2]) for row in rows] == list(ROWS)
    assert len(calculator.numbers(1)) == len(ROWS)
    assert calculator.numbers(1)[:5] == (8_190_735_360, 1_509_949_440, 8_190_735_360, 73_728, 73_728_000)
    assert calculator.numbers(1)[7] == costs.first_token
    assert calculator.numbers(1)[11] == costs.tokens_per_second == 1 / costs.step
    assert in_cells(calculator.numbers(1))[4:6] == ["73.7 MB", "4.30 %"]
    assert in_cells([1.0] * 5 + [1.2, *[1.0] * 6])[5] == "120 %, too much"


def test_what_a_cell_stores_is_the_numbers_and_not_the_script():
    data, _ = ModelCalculator(FIRST)._repr_mimebundle_()
    assert data["text/html"] == ModelCalculator(FIRST)._repr_mimebundle_()[0]["text/html"]
    assert "function" not in data["text/html"]
    assert "73.7 MB" in data["text/html"]


def test_the_same_model_is_served_with_another_attention():
    calculator = ModelCalculator({"model": "Qwen3-8B"}, {"attention": "one key for all heads"})
    assert calculator.costs(1) == serving_costs(MODELS["Qwen3-8B"], CHIPS["NVIDIA H100 SXM"], 8192)
    assert calculator.costs(2).cache_bytes == calculator.costs(1).cache_bytes // 8
    assert calculator.table()[1][3].startswith("Qwen3-8B, one key for all heads, 1 × ")


def test_a_trait_set_later_is_checked_too():
    calculator = ModelCalculator()
    for name, value in [
        ("model_1", "GPT-5"),
        ("attention_1", "most"),
        ("machine_2", "abacus"),
        ("batch_size_1", 0),
        ("num_tokens_2", 10**9),
    ]:
        with pytest.raises(ValueError, match=f"{name[:-2]}={value!r}"):
            setattr(calculator, name, value)
    fused = calculator.costs(2)
    calculator.kernel_2 = "stored"
    assert calculator.costs(2).first_token > fused.first_token


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ((["LLaMA-3 8B"],), TypeError, "first must be a Mapping"),
        (({"models": "x"},), ValueError, "a name in first='models' must be one of"),
        (({}, {"model": "GPT-5"}), ValueError, "model='GPT-5' must be one of"),
        (({"precision": "int8"},), ValueError, "precision='int8' must be one of"),
        (({"kernel": None},), ValueError, "kernel=None must be one of"),
        (({"num_chips": 1.5},), TypeError, "num_chips must be an integer"),
        (({"num_chips": 10**5},), ValueError, "num_chips=100000 must be at most 10000"),
    ],
)
def test_what_does_not_fit_is_refused(given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        ModelCalculator(*given)
