"""Train one of the models that come with the package, and store it in mhalib/weights.

    python tools/train.py NAME

A recipe returns the trained model and what its file says of it. The chapters show how such a model is trained; here
training takes as long as it likes. The file's sha256 goes into mhalib/weights/sha256.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from mhalib import saved
from mhalib.models import Model

RECIPES: dict[str, Callable[[], tuple[Model, saved.About]]] = {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(RECIPES))
    name = parser.parse_args().name
    model, about = RECIPES[name]()
    path, hashes = saved.FOLDER / f"{name}.safetensors", saved.FOLDER / "sha256.json"
    known = json.loads(hashes.read_text(encoding="utf-8")) if hashes.exists() else {}
    known[name] = saved.write(model, path, about)
    hashes.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {about.metric[0]} {about.metric[1]:.4f}")


if __name__ == "__main__":
    main()
