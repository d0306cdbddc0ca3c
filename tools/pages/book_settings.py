"""What Sphinx is told of the book: `_config.yml`, in the format of Jupyter Book 1, read without Jupyter Book.

A test holds the settings made here against those that Jupyter Book makes. Its own extension is left out: it declares
two settings of its PDF and does nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

CONFIG, TOC = "_config.yml", "_toc.yml"
NOT_LOADED = {"jupyter_book"}
THEME = "html_theme_options"
NAMES = {  # a key of _config.yml, and what Sphinx, an extension or the theme calls it
    "title": "html_title",
    "author": "author",
    "copyright": "copyright",
    "logo": "html_logo",
    "only_build_toc_files": "external_toc_exclude_missing",
    "exclude_patterns": "exclude_patterns",
    "repository.url": f"{THEME}.repository_url",
    "repository.branch": f"{THEME}.repository_branch",
    "parse.myst_enable_extensions": "myst_enable_extensions",
    "launch_buttons.notebook_interface": f"{THEME}.launch_buttons.notebook_interface",
    "execute.execute_notebooks": "nb_execution_mode",
    "html.baseurl": "html_baseurl",
    "html.favicon": "html_favicon",
    "html.home_page_in_navbar": f"{THEME}.home_page_in_toc",
    "html.extra_footer": f"{THEME}.extra_footer",
}
ALWAYS_EXCLUDED = ("_build", "Thumbs.db", ".DS_Store", "**.ipynb_checkpoints")


def settings(root: Path) -> dict[str, Any]:
    """The settings of the book in a folder; the folders of its own extensions are put on the path of modules.

    Raises:
        ValueError: `_config.yml` has a key that is not known here, or does not list its extensions.
    """
    config = yaml.safe_load((root / CONFIG).read_text(encoding="utf-8"))
    sphinx = config.pop("sphinx", None) or {}
    own = sphinx.get("config") or {}
    if "extensions" not in own:
        raise ValueError(f"{CONFIG}: sphinx.config.extensions is missing: list the extensions of the book")
    if unknown := sphinx.keys() - {"config", "local_extensions"}:
        raise ValueError(f"{CONFIG}: sphinx.{min(unknown)} is not known: add it to tools/pages/book_settings.py")
    for folder in dict.fromkeys((sphinx.get("local_extensions") or {}).values()):
        if str(root / folder) not in sys.path:
            sys.path.append(str(root / folder))
    told = defaults() | {"external_toc_path": str(root / TOC)}
    for key, value in flat(config).items():
        if key not in NAMES:
            raise ValueError(f"{CONFIG}: {key} is not known: add it to NAMES in tools/pages/book_settings.py")
        put(told, NAMES[key], value)
    told["exclude_patterns"] = sorted({*ALWAYS_EXCLUDED, *told.get("exclude_patterns", ())})
    told |= own
    told["extensions"] = [name for name in own["extensions"] if name not in NOT_LOADED]
    return told


def defaults() -> dict[str, Any]:
    """What Jupyter Book says where `_config.yml` says nothing, and Sphinx by itself would say otherwise."""
    return {
        "html_theme": "sphinx_book_theme",
        THEME: {"search_bar_text": "Search this book..."},
        "html_sourcelink_suffix": "",
        "numfig": True,
        "pygments_style": "sphinx",
        "suppress_warnings": ["myst.domains"],
        "myst_url_schemes": ["mailto", "http", "https"],
    }


def flat(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    """`{"html": {"favicon": x}}` as `{"html.favicon": x}`."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found


def put(told: dict[str, Any], name: str, value: Any) -> None:
    """Set the setting of a dotted name."""
    *folders, last = name.split(".")
    for folder in folders:
        told = told.setdefault(folder, {})
    told[last] = value
