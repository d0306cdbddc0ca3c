"""Instruments: ipywidgets in JupyterLab and Colab, and alive without a kernel on a static page.

Needs `anywidget`: pip install anywidget.
"""

try:
    import anywidget as _anywidget  # noqa: F401
except ImportError as error:  # not a dependency of the package: layers and plots do without
    raise ImportError("mhalib.widgets needs anywidget: pip install anywidget") from error

from ._instrument import Instrument, joinable, page_script, script_file, scripts, source, style_sheet
from .attention_playground import AttentionPlayground
from .cost_calculator import CostCalculator
from .head_explorer import HeadExplorer
from .head_wall import HeadWall
from .live_model import LiveModel, live_names, weights_script
from .mistake_hunt import MistakeHunt
from .model_calculator import ModelCalculator
from .reshape_stepper import ReshapeStepper
from .roofline import Roofline
from .sortable_table import SortableTable
from .worked_example import WorkedExample


def __getattr__(name: str) -> object:
    if name == "STYLE":
        raise AttributeError(
            "mhalib.widgets.STYLE is style_sheet() now, or style_sheet('HeadExplorer') of one instrument"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AttentionPlayground",
    "CostCalculator",
    "HeadExplorer",
    "HeadWall",
    "Instrument",
    "LiveModel",
    "MistakeHunt",
    "ModelCalculator",
    "ReshapeStepper",
    "Roofline",
    "SortableTable",
    "WorkedExample",
    "joinable",
    "live_names",
    "page_script",
    "script_file",
    "scripts",
    "source",
    "style_sheet",
    "weights_script",
]
