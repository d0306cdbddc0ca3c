"""Make the attention maps that come with the package, mhalib/pretrained/minilm_maps.*

    python -m tools.evidence.pretrained_maps [FOLDER]

FOLDER holds config.json, model.safetensors and tokenizer.json of sentence-transformers/all-MiniLM-L6-v2; without it
they come from the Hugging Face hub, at the pinned commit. In either case the weights must have the pinned sha256.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mhalib import pretrained
from mhalib.pretrained import MINILM, PINS, SENTENCES
from mhalib.pretrained.maps import FOLDER


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=MINILM)
    pin = PINS[MINILM]
    encoder = pretrained.load(parser.parse_args().folder, sha256=pin.sha256)
    about = pretrained.About(MINILM, pin.revision, encoder.sha256, "python -m tools.evidence.pretrained_maps")
    readings = [encoder(text) for text in SENTENCES]
    path = Path(FOLDER) / "minilm_maps.json"
    pretrained.write_maps(path, readings, about)
    stored = pretrained.load_maps()
    error = max((one.weights - two.weights).abs().max().item() for one, two in zip(readings, stored, strict=True))
    size = path.stat().st_size + path.with_suffix(".npz").stat().st_size
    print(f"{len(stored)} texts, {size / 1000:.0f} kB, largest error {error:.2e}")


if __name__ == "__main__":
    main()
