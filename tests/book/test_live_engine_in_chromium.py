"""The engine of live models in Chromium, against PyTorch in float64; `test_live_engine.py` has it in node."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import torch
from playwright.sync_api import Page

from mhalib import saved, switched_off
from mhalib.live import described
from mhalib.measures import heads_of, mixed

pytestmark = [
    pytest.mark.browser,
    pytest.mark.instrument("mhalib/widgets/live_", "mhalib/live/", "mhalib/models/", "mhalib/weights/"),
]

INPUTS = {
    "repeater": [[5, 9, 2, 7, 5, 9, 2]],
    "translator": [[5, 9, 12, 33, 4, 60, 7], [1, 9, 12, 33, 4]],
    "reader": [[1, 17, 23, 41, 3, 11]],
    "talker": [[5, 9, 2, 7, 5, 9, 2]],
    "copier": [[6, 15, 22, 20, 2], [21, 6, 15]],
}
TALKING = [("decoder self", 0), ("decoder self", 1)]
RUN = """
async ({ file, told, inputs, deeds }) => {
  const { Engine } = await import("/live/engine.js");
  const model = new Engine(Uint8Array.from(atob(file), (letter) => letter.charCodeAt(0)), told);
  if (model.kind === "SentenceReader") return { logits: [...model.answer(inputs[0], { deeds })], written: [] };
  const [source, target] = inputs.length === 2 ? inputs : [null, inputs[0]];
  const memory = source ? model.encode(source, { deeds }) : undefined;
  const logits = source ? model.decode(target, memory, { deeds }) : model.read(target, { deeds });
  return { logits: [...logits], written: model.write(target, 5, { deeds, memory }) };
}
"""


@pytest.mark.parametrize("num_off", [0, 3])
@pytest.mark.parametrize("name", saved.names())
def test_logits_are_pytorchs_and_so_is_what_it_writes(modules: Page, name: str, num_off: int) -> None:
    model = saved.load(name).double()
    off = heads_of(model)[1::2][:num_off]
    *source, target = INPUTS[name]

    def logits_after(tokens: list[int]) -> torch.Tensor:
        with torch.no_grad(), switched_off(model, off):
            logits, _ = model(*(torch.tensor([ids]) for ids in [*source, tokens]))
        return logits[0]

    written: list[int] = []
    while name != "reader" and len(written) < 5:
        written.append(int(logits_after(target + written)[-1].argmax()))
    file = base64.b64encode((saved.FOLDER / f"{name}.safetensors").read_bytes()).decode()
    deeds = {"heads": {" ".join(map(str, head)): {"gate": 0} for head in off}}
    asked: dict[str, Any] = {"file": file, "told": described(model), "inputs": INPUTS[name], "deeds": deeds}
    answer = modules.evaluate(RUN, asked)
    found = torch.tensor(answer["logits"], dtype=torch.float64)
    torch.testing.assert_close(found, logits_after(target).flatten(), rtol=0, atol=1e-9)
    assert answer["written"] == written


def test_heads_talk_as_they_are_told_in_both(modules: Page) -> None:
    model, tokens = saved.load("talker").double(), INPUTS["talker"][0]
    torch.manual_seed(0)
    given = {(kind, layer): {"scores": torch.randn(8, 8), "weights": torch.randn(8, 8)} for kind, layer in TALKING}
    with torch.no_grad(), mixed(model, given):
        logits, _ = model(torch.tensor([tokens]))
    mix = {f"{kind} {i}": {k: one.flatten().tolist() for k, one in of.items()} for (kind, i), of in given.items()}
    file = base64.b64encode((saved.FOLDER / "talker.safetensors").read_bytes()).decode()
    asked: dict[str, Any] = {"file": file, "told": described(model), "inputs": [tokens], "deeds": {"mix": mix}}
    found = torch.tensor(modules.evaluate(RUN, asked)["logits"], dtype=torch.float64)
    torch.testing.assert_close(found, logits[0].flatten(), rtol=0, atol=1e-9)
