"""Pack notebooks and exercises into a wheel of their own, so that `mhalib open 5` and `mhalib exercises` need no clone.

    python -m tools.editions.book_wheel [--out dist]

`mhalib_book-0.4.0-py3-none-any.whl` holds them without outputs. It asks for no other package: pip would look for
`mhalib` by its name, and as long as nobody has published that, anybody could. So both wheels are installed together:
`pip install mhalib-0.4.0-py3-none-any.whl mhalib_book-0.4.0-py3-none-any.whl`. The same files give the same wheel.
Needs the standard library only.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import mhalib
from tools import ROOT

NAME = "mhalib_book"
LONG_AGO = (1980, 1, 1, 0, 0, 0)
METADATA = """\
Metadata-Version: 2.4
Name: mhalib-book
Version: {version}
Summary: Notebooks and exercises of the book Attention, Head by Head, for the package mhalib of the same version
License-Expression: CC-BY-4.0 AND MIT
Requires-Python: >=3.10
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: tools.editions.book_wheel\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def without_outputs(path: Path) -> bytes:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def contents(version: str) -> Iterator[tuple[str, bytes]]:
    """Every file of the wheel but its record, by its name there."""
    yield (
        f"{NAME}/__init__.py",
        b'"""The notebooks and exercises of the book; `mhalib open` and `mhalib exercises` find them."""\n',
    )
    for name in ("_toc.yml", "LICENSE", "LICENSE-text"):
        yield f"{NAME}/{name}", (ROOT / name).read_bytes()
    for path in sorted([*ROOT.glob("chapters/*.ipynb"), *ROOT.glob("exercises/*.ipynb")]):
        yield f"{NAME}/{path.relative_to(ROOT).as_posix()}", without_outputs(path)
    yield f"{NAME}-{version}.dist-info/METADATA", METADATA.format(version=version).encode()
    yield f"{NAME}-{version}.dist-info/WHEEL", WHEEL.encode()


def build(out: Path, version: str = mhalib.__version__) -> Path:
    """Write the wheel into a folder. Returns the file."""
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{NAME}-{version}-py3-none-any.whl"
    record, lines = f"{NAME}-{version}.dist-info/RECORD", []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:

        def add(name: str, data: bytes) -> None:
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            packed.writestr(entry, data)

        for name, data in contents(version):
            add(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
        add(record, "".join([*lines, f"{record},,\n"]).encode())
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="default: dist")
    wheel = build(parser.parse_args().out)
    print(f"{wheel.name}: {wheel.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
