"""The roofline in the browser, with no kernel: it counts what Python counts, and says what bounds each step."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable

import pytest
from accessibility import serious_findings
from playwright.sync_api import Page, expect

from mhalib.bench import Machine
from mhalib.roofline import LATENT_STEPS, MACHINES, PHASES, STEPS
from mhalib.widgets import Roofline
from mhalib.widgets.roofline import BOUNDS, SETTINGS_OF, in_time

pytestmark = [
    pytest.mark.browser,
    pytest.mark.instrument("mhalib/widgets/roofline", "mhalib/roofline.py", "mhalib/costs.py", "mhalib/variants/"),
]

MINE = Machine("this machine", 72e9, 11e9, 4)
SIZES = {"num_hiddens": 96, "num_heads": 12, "num_tokens": 50, "batch_size": 5}


def shown_rows(page: Page) -> list[tuple[str, int, int, str, str]]:
    """Name, FLOPs, bytes, what bounds the step, and its least time."""
    return [
        (
            str(row.get_attribute("data-step")),
            int(str(row.get_attribute("data-flops"))),
            int(str(row.get_attribute("data-moved"))),
            row.locator("td").nth(3).inner_text(),
            row.locator("td").nth(4).inner_text(),
        )
        for row in page.locator("tr[data-step]").all()
    ]


def expected(roof: Roofline) -> list[tuple[str, int, int, str, str]]:
    machine = roof.limits()
    return [(*one, machine.bound(*one[1:]), in_time(machine.seconds(*one[1:]))) for one in roof.costs()]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("variant", SETTINGS_OF)
def test_counts_what_python_counts(show: Callable, phase: str, variant: str) -> None:
    for machine, kernel, causal in zip(
        (MINE, "NVIDIA H100 SXM") * 2, ("stored", "stored", "fused", "fused"), (False, True) * 2, strict=True
    ):
        how = {"phase": phase, "kernel": kernel, "causal": causal}
        roof = Roofline(machine, 96, 12, variant=variant, num_tokens=50, batch_size=5, **how)
        shown = show(roof)
        assert shown_rows(shown.page) == expected(roof)
        assert shown.errors == []


@pytest.mark.parametrize("variant", ["multi-head", "latent"])
def test_counts_stay_exact_beyond_doubles(show: Callable, variant: str) -> None:
    sizes = {"num_hiddens": 65_536, "num_heads": 1024, "num_tokens": 10_000_000, "batch_size": 999_999}
    kernel = "fused" if variant == "latent" else "stored"
    roof = Roofline(**sizes, phase="training", variant=variant, kernel=kernel, causal=True)
    assert shown_rows(show(roof).page) == expected(roof)


def test_every_control_changes_what_it_says(show: Callable) -> None:
    page = show(Roofline(MINE, **SIZES)).page
    now: dict[str, object] = dict(SIZES)
    for name, value in {"num_hiddens": 192, "num_heads": 8, "num_tokens": 7, "batch_size": 2}.items():
        page.locator(f"input[data-name={name}]").fill(str(value))
        now[name] = value
        assert shown_rows(page) == expected(Roofline(MINE, **now)), name
    expect(page.locator("input[data-name=num_kv_heads]")).to_be_hidden()
    for name, value in {"variant": "grouped", "phase": "decoding"}.items():
        page.locator(f"select[data-name={name}]").select_option(value)
        now[name] = value
    page.locator("input[data-name=num_kv_heads]").fill("4")
    assert shown_rows(page) == expected(Roofline(MINE, **now, num_kv_heads=4))
    for machine in MACHINES:
        page.locator("select[data-name=machine]").select_option(machine)
        assert shown_rows(page) == expected(Roofline(machine, **now, num_kv_heads=4))
    for name in ("latent_size", "rotary_size"):
        expect(page.locator(f"input[data-name={name}]")).to_be_hidden()
    page.locator("select[data-name=phase]").select_option("prefill")
    for name, value, made in (("kernel", "fused", "fused"), ("causal", "1", True)):
        page.locator(f"select[data-name={name}]").select_option(value)
        now |= {"phase": "prefill", name: made}
        assert shown_rows(page) == expected(Roofline(machine, **now, num_kv_heads=4)), name
    for name, value in (("kernel", "stored"), ("causal", "0")):
        page.locator(f"select[data-name={name}]").select_option(value)
        del now[name]
    page.locator("select[data-name=variant]").select_option("latent")
    expect(page.locator("input[data-name=num_kv_heads]")).to_be_hidden()
    now |= {"variant": "latent", "latent_size": 32, "rotary_size": 4}  # of d = 8, with which the page began
    for name, value in {"latent_size": 11, "rotary_size": 0}.items():
        page.locator(f"input[data-name={name}]").fill(str(value))
        now[name] = value
        for phase in PHASES:
            page.locator("select[data-name=phase]").select_option(phase)
            now["phase"] = phase
            assert shown_rows(page) == expected(Roofline(machine, **now)), (phase, name)
    page.locator("input[data-name=rotary_size]").fill("3")
    expect(page.get_by_role("status")).to_have_text("r = 3 is odd: rotary positions turn pairs.")
    expect(page.locator("tr[data-step]").first).to_be_hidden()
    page.locator("input[data-name=rotary_size]").fill("4")
    expect(page.locator(".mhalib caption")).to_have_text(
        re.compile("^Apple M1 Max: 10.4 TFLOP/s, 400 GB/s, numbers of 2 bytes")
    )


def test_the_roof_has_its_ridge_where_both_limits_meet(show: Callable) -> None:
    """Every step has a dot: below the ridge on the slope, above it on the flat part."""
    roof = Roofline(num_hiddens=4096, num_heads=32, num_tokens=2048)
    page = show(roof).page
    left, ridge, right = [
        tuple(map(float, point.split(","))) for point in str(page.locator("polyline").get_attribute("points")).split()
    ]
    assert left[1] > ridge[1] == right[1]
    dots = {
        name: tuple(float(str(dot.get_attribute(part))) for part in ("cx", "cy"))
        for dot in page.locator("circle").all()
        for name in str(dot.get_attribute("data-steps")).split()
    }
    assert set(dots) == set(STEPS)
    slope = (ridge[1] - left[1]) / (ridge[0] - left[0])
    for step in roof.costs():
        at, down = dots[step.name]
        if roof.limits().bound(*step[1:]) == "arithmetic":
            assert at > ridge[0]
            assert down == ridge[1]
        elif step.flops:
            assert at < ridge[0]
            assert down == pytest.approx(left[1] + slope * (at - left[0]), abs=0.1)
    assert "Bound by memory: scores, softmax, average." in str(page.locator("svg").get_attribute("aria-label"))


def test_caption_and_axes_say_what_the_machine_can_do(show: Callable) -> None:
    page = show(Roofline("NVIDIA A100 80 GB")).page
    expect(page.locator(".mhalib caption")).to_have_text(
        "NVIDIA A100 80 GB: 312 TFLOP/s, 2.04 TB/s, numbers of 2 bytes. Ridge: 153 FLOPs for each byte."
    )
    ends = [tuple(map(float, one.split(","))) for one in str(page.locator("polyline").get_attribute("points")).split()]
    texts = {str(one.text_content()): one for one in page.locator("svg text").all()}
    places = {name: [float(str(one.get_attribute(part))) for part in ("x", "y")] for name, one in texts.items()}
    heights = [places[f"{share} %"][1] for share in ("0.01", "0.1", "1", "10", "100")]
    assert heights[-1] == pytest.approx(ends[1][1], abs=5)  # the flat part is all of the peak
    powers = [places[power][0] for power in ("0.1", "1", "10", "100", "1,000", "10,000")]
    assert powers[0] == ends[0][0]
    assert powers[-1] == ends[2][0]
    ridge = MACHINES["NVIDIA A100 80 GB"].ridge
    assert ends[1][0] == pytest.approx(powers[3] + math.log10(ridge / 100) * (powers[4] - powers[3]), abs=0.1)
    each = {round(one - other, 6) for one, other in itertools.pairwise(heights)}
    assert len(each) == 1  # a power of ten for each line
    left = ends[1][1] + (math.log10(ridge) + 1) * each.pop()  # at 0.1 FLOPs for each byte
    assert ends[0][1] == pytest.approx(left, abs=0.1)


def test_fields_take_what_python_takes(show: Callable) -> None:
    page = show(Roofline()).page
    for name, most in BOUNDS.items():
        field = page.locator(f"input[data-name={name}]")
        assert field.get_attribute("max") == str(most)
        assert field.get_attribute("min") == ("0" if name == "rotary_size" else "1")
    page.locator("input[data-name=num_tokens]").fill("10000001")
    expect(page.get_by_role("status")).to_have_text(re.compile("^Not a whole number from 1 to 10,000,000"))


def test_a_step_is_chosen_by_keys_and_by_a_click(show: Callable) -> None:
    page = show(Roofline()).page
    said = page.get_by_role("status")
    expect(said).to_have_text(
        re.compile("^In stored attention, the step scores is bound by memory and takes .* at least, .* of the layer")
    )
    page.get_by_label("step to speak of").focus()
    page.keyboard.press("Home")
    expect(said).to_have_text(re.compile("^In stored attention, the step W_q is bound by arithmetic"))
    expect(page.locator("tr[aria-current]")).to_have_attribute("data-step", "W_q")
    page.locator("circle[data-steps=softmax]").click()
    expect(said).to_have_text(re.compile("^In stored attention, the step softmax is bound by memory"))
    expect(page.locator("tr[aria-current]")).to_have_attribute("data-step", "softmax")


def test_a_variant_has_its_own_steps_to_speak_of(show: Callable) -> None:
    page = show(Roofline(step="W_k")).page
    chooser, said = page.get_by_label("step to speak of"), page.get_by_role("status")
    assert chooser.locator("option").all_inner_texts() == list(STEPS)
    expect(said).to_have_text(re.compile("^In stored attention, the step W_k is bound by"))
    page.locator("select[data-name=variant]").select_option("latent")
    assert chooser.locator("option").all_inner_texts() == list(LATENT_STEPS)
    expect(said).to_have_text(re.compile("^In stored attention, the step scores is bound by"))  # it has no W_k
    expect(chooser).to_have_value("scores")
    expect(page.locator("tr[aria-current]")).to_have_attribute("data-step", "scores")
    expect(page.locator(".mhalib caption")).to_have_text(
        re.compile("Each head has keys and values of its own, made from")
    )
    chooser.select_option("W_up_v")
    expect(said).to_have_text(re.compile("^In stored attention, the step W_up_v is bound by"))
    page.locator("select[data-name=phase]").select_option("decoding")
    expect(said).to_have_text(re.compile("^In stored attention, the step W_up_v is bound by"))
    assert page.locator("tr[data-step] th").all_inner_texts() == [
        one.name for one in Roofline(variant="latent", phase="decoding").costs()
    ]
    expect(page.locator(".mhalib caption")).to_have_text(re.compile("Absorbed: the latents are keys and values of all"))
    page.locator("input[data-name=rotary_size]").fill("0")
    assert "W_rotary" not in chooser.locator("option").all_inner_texts()
    page.locator("select[data-name=variant]").select_option("multi-head")
    expect(page.locator(".mhalib caption")).to_have_text(re.compile("FLOPs for each byte\\.$"))


def test_a_fused_kernel_is_a_step_and_turns_the_verdict(show: Callable) -> None:
    page = show(Roofline("NVIDIA H100 SXM", num_tokens=8192)).page
    said, kernel = page.get_by_role("status"), page.get_by_label("kernel")
    expect(said).to_have_text(re.compile("^In stored attention, the step scores is bound by memory"))
    assert "Bound by memory: scores, softmax, average." in str(page.locator("svg").get_attribute("aria-label"))
    kernel.focus()
    page.keyboard.press("ArrowDown")
    expect(said).to_have_text(re.compile("^In fused attention, the step fused is bound by arithmetic"))
    expect(page.locator("tr[aria-current]")).to_have_attribute("data-step", "fused")
    assert page.locator("tr[data-step] th").all_inner_texts() == ["W_q", "W_k", "W_v", "fused", "W_o"]
    assert "Bound by memory: none." in str(page.locator("svg").get_attribute("aria-label"))
    page.get_by_label("pairs").focus()
    page.keyboard.press("ArrowDown")
    roof = Roofline("NVIDIA H100 SXM", num_tokens=8192, kernel="fused", causal=True)
    assert shown_rows(page) == expected(roof)
    caption = show(roof, java_script_enabled=False).page.locator("caption").inner_text()
    assert caption.startswith("Steps of multi-head attention, prefill, fused, causal, on NVIDIA H100 SXM, at")


def test_a_click_on_a_dot_of_several_steps_speaks_of_the_first(show: Callable) -> None:
    page = show(Roofline()).page
    several = page.locator("circle[data-steps*=' ']").first
    first = str(several.get_attribute("data-steps")).split()[0]
    several.click()
    expect(page.get_by_role("status")).to_have_text(re.compile(f"^In stored attention, the step {first} is bound by"))


@pytest.mark.parametrize("variant", ["multi-head", "latent"])
def test_shares_are_those_of_the_layers_least_time(show: Callable, variant: str) -> None:
    roof = Roofline(variant=variant, step="softmax")
    page = show(roof).page
    seconds = {one.name: roof.limits().seconds(*one[1:]) for one in roof.costs()}
    total = sum(seconds.values())
    waiting = sum(seconds[one.name] for one in roof.costs() if roof.limits().bound(*one[1:]) == "memory")

    assert not 0.45 < waiting / total < 0.55  # or a share could be taken for what remains

    def percent(part: float) -> str:
        return f"{100 * part / total:.{1 if part / total < 0.0995 else 0}f} %"

    for row in page.locator("tr[data-step]").all():
        name = str(row.get_attribute("data-step"))
        assert row.locator("td").nth(5).inner_text() == percent(seconds[name])
    own = (
        f"takes {in_time(seconds['softmax'])} at least, {percent(seconds['softmax'])} of the layer's {in_time(total)}."
    )
    expect(page.get_by_role("status")).to_have_text(
        f"In stored attention, the step softmax is bound by memory and {own} "
        f"Steps bound by memory take {percent(waiting)}."
    )
    for step, row in zip(roof.costs(), page.locator("tr[data-step]").all(), strict=True):
        shown = float(row.locator("td").nth(2).inner_text().replace(",", ""))
        assert shown == pytest.approx(step.intensity, rel=5e-3)


def test_explains_what_does_not_divide(show: Callable) -> None:
    page = show(Roofline(MINE, **SIZES, variant="grouped")).page
    page.locator("input[data-name=num_kv_heads]").fill("5")
    expect(page.get_by_role("status")).to_have_text("h = 12 is not divisible by g = 5: some heads would have no keys.")
    expect(page.locator("tr[data-step]").first).to_be_hidden()
    expect(page.locator("svg")).to_be_hidden()
    page.locator("select[data-name=variant]").select_option("multi-query")
    expect(page.locator("tr[data-step]").first).to_be_visible()
    page.locator("input[data-name=num_hiddens]").fill("100")
    expect(page.get_by_role("status")).to_have_text(re.compile("D = 100 is not divisible by h = 12"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_and_is_accessible(show: Callable, width: int, scheme: str) -> None:
    shown = show(Roofline(MINE), width=width, color_scheme=scheme)
    for variant, kernel in (("grouped", "fused"), ("latent", "stored")):
        shown.page.locator("select[data-name=variant]").select_option(variant)
        shown.page.locator("select[data-name=kernel]").select_option(kernel)
        for phase in PHASES:
            shown.page.locator("select[data-name=phase]").select_option(phase)
            assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
        assert serious_findings(shown.page) == []
    assert len(shown.hosts) == 1


@pytest.mark.parametrize("width", [350, 390])
@pytest.mark.parametrize(("variant", "kernel"), [("multi-head", "stored"), ("grouped", "fused"), ("latent", "stored")])
def test_on_a_phone_the_table_is_as_wide_as_the_page(show: Callable, variant: str, kernel: str, width: int) -> None:
    page = show(Roofline("NVIDIA H100 SXM", variant=variant, kernel=kernel), width=width).page
    frame = page.get_by_role("region", name="steps")
    for phase in PHASES:
        page.locator("select[data-name=phase]").select_option(phase)
        assert frame.evaluate("frame => frame.scrollWidth - frame.clientWidth") == 0
        edge = frame.evaluate("frame => frame.getBoundingClientRect().right")
        cells = page.locator(".mhalib :is(caption, th, td)").evaluate_all(
            """(all) => all.map((one) => [
                one.innerText, one.getBoundingClientRect().right, one.scrollWidth - one.clientWidth,
            ])"""
        )
        assert [text for text, right, over in cells if right > edge or over > 1] == []
        assert len(cells) > 20


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    ("machine", "kernel"),
    [("NVIDIA T4", "stored"), ("NVIDIA H100 SXM", "stored"), ("NVIDIA H100 SXM", "fused"), ("Apple M1 Max", "fused")],
)
@pytest.mark.parametrize("variant", ["multi-head", "grouped", "latent"])
def test_labels_of_dots_do_not_touch(show: Callable, machine: str, kernel: str, phase: str, variant: str) -> None:
    page = show(Roofline(machine, phase=phase, variant=variant, kernel=kernel)).page
    boxes = page.locator("svg text").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect()).map((b) => [b.left, b.top, b.right, b.bottom])"
    )
    for i, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[i + 1 :]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] + 4 or other[3] <= top + 4
            assert apart, (i, boxes[i], other)


@pytest.mark.parametrize("variant", ["multi-head", "latent"])
def test_dots_have_the_names_beside_them(show: Callable, variant: str) -> None:
    """Every step is named once, and of a label with many names each line belongs to dots in the order of dots."""
    page = show(Roofline("NVIDIA H100 SXM", variant=variant)).page
    roof = Roofline("NVIDIA H100 SXM", variant=variant)
    lines = [
        line for line in page.locator("svg text").all_text_contents() if line.split(", ")[0] in STEPS + LATENT_STEPS
    ]
    named = [name for line in lines for name in line.split(", ")]
    assert sorted(named) == sorted(one.name for one in roof.costs())
    intensity = {one.name: one.intensity for one in roof.costs()}
    least = [min(intensity[name] for name in line.split(", ")) for line in lines]
    assert least == sorted(least)
    assert all(len(line.split(", ")) <= 4 for line in lines)


@pytest.mark.parametrize("variant", ["multi-head", "latent"])
def test_on_a_phone_without_javascript_nothing_is_cut(show: Callable, variant: str) -> None:
    page = show(Roofline(variant=variant, phase="training"), width=390, java_script_enabled=False).page
    box = page.locator("table").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390


def test_without_javascript_the_numbers_stand_in_a_table(show: Callable) -> None:
    roof = Roofline(MINE, **SIZES)
    text = show(roof, java_script_enabled=False).page.locator("table").inner_text()
    for _, flops, moved, bound, seconds in expected(roof):
        assert all(part in text for part in (f"{flops:,}", f"{moved:,}", bound, seconds))
