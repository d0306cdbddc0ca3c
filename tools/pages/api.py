"""The pages of the API: an entry for each public name of mhalib, from its docstring, with the chapter that builds it.

A page of the book asks for the entries of a module with

    ```{api} mhalib.attention
    ```

and gets them in the order of `CHAPTERS` below. sphinx.ext.autodoc makes an entry, sphinx.ext.napoleon its sections.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

import mhalib
from mhalib.attention.heads import HeadsOfLayer
from tools import ROOT
from tools.notebooks import address, notebooks
from tools.pages.api_examples import example_of

EXERCISES = "mhalib_classroom.checks"
CHAPTERS = {  # module -> page that builds or first explains -> names; `name=word`, where the page has a word for it
    "mhalib.attention": {
        "03_why_more_than_one_head": "MultiHeadAttention",
        "01_weighted_average": "attend",
        "02_masks": "masked_softmax causal_mask padding_mask",
        "04_reshape_trick": "split_heads merge_heads transpose_qkv transpose_output HeadSlices=columns",
        "10_three_uses": "register=layer KINDS=layer make_attention=layer kind_of=layer",
        "11_positions": (
            "LearnedPositions SinusoidalPositions RotaryPositions rotate sinusoidal_positions Positions=positions "
            "make_positions=positions POSITIONS=positions ROTARY=positions"
        ),
        "12_all_targets_at_once": "KeyValueCache Cache=cache",
        "29_token_by_token": "QuantisedCache",
        "33_serving": "WindowCache",
        "37_what_comes_next": "StateCache=state",
        "14_small_gpt": (
            "Band=mask SymbolicMask=mask Strided=mask GlobalTokens=mask AnyOf=mask AllOf=mask num_pairs=mask"
        ),
    },
    "mhalib.variants": {
        "22_sharing_keys_and_values": "group_heads align_heads exchange_pairs LatentAttention",
        "23_heads_that_talk": "TalkingHeads CollaborativeAttention compress OverlappingAttention",
        "24_looking_at_fewer_words": ("EntmaxAttention entmax SpanAttention SparseAttention attend_in_windows"),
        "25_each_word_chooses_its_heads": "MixtureOfHeads",
        "26_heads_composed_anew": "ComposedAttention Composition DifferentialAttention GatedAttention",
        "31_training_that_holds": "QKNormAttention",
        "37_what_comes_next": "DeltaAttention delta_rule delta_weights=delta",
        "36_few_keys": "MixtureOfBlocks NativeSparseAttention IndexedAttention",
        "which_attention": (
            "SinkAttention=sinks SigmoidAttention=sigmoid SoftpickAttention=softpick SoftCapAttention=capping "
            "TensorProductAttention=products MultiTokenAttention=neighbours CrossLayerAttention=layers"
        ),
        "11_positions": "RelativeAttention=distances distance_buckets=distances",
        "how_we_know": "check_variant VariantError=check_variant CHECKS=checks HandsOn=head",
    },
    "mhalib.shapes": {"09_shape_checks": "check_shape ledger Ledger=ledger Step=step"},
    "mhalib.reference": {
        "01_weighted_average": "attend_loops=loop",
        "02_masks": "to_torch from_torch=to_torch D2LMultiHeadAttention to_d2l=D2L from_d2l=D2L",
        "06_the_whole_layer": "multi_head_attention_loops",
        "10_three_uses": "HarvardMultiHeadAttention to_harvard from_harvard=to_harvard",
        "notation": "to_arrays from_arrays Arrays=arrays deviations times",
        "which_attention": "kinds",
    },
    "mhalib.models": {
        "07_per_head_heatmaps": "SentenceReader=Reader",
        "10_three_uses": (
            "EncoderLayer DecoderLayer SkipConnection FeedForward Transformer Description=norm Model=model "
            "Weights=weights recomposed=layer"
        ),
        "12_all_targets_at_once": "DecoderCache=cache",
        "13_translator": "MODELS=Transformer",
        "14_small_gpt": "GPT",
        "16_seeing_with_heads": "ViT patches",
        "17_two_modalities": "Captioner PictureReader CLIP=PictureReader",
        "18_what_heads_look_at": "BERT",
        "35_open_a_model_you_know": "MixtureFeedForward=mixture",
    },
    "mhalib.costs": {
        "06_the_whole_layer": (
            "Sizes=sizes parameters=weights pair_flops=scores flops=operations score_bytes=scores "
            "measured=weights Costs=weights"
        ),
        "29_token_by_token": "cache_bytes",
        "instruments": "variant_costs variant_parts Parts=parts parts_of=parts counted_parts=parts chosen_flops",
    },
    "mhalib.train": {"03_why_more_than_one_head": "fit", "13_translator": "History=history"},
    "mhalib.decoding": {
        "13_translator": "greedy beam_search",
        "29_token_by_token": "sample",
        "33_serving": "speculate Speculation=speculate look_up accepted=drafts probabilities",
    },
    "mhalib.evaluation": {
        "13_translator": "exact_match token_accuracy=exact Pairs=sentences",
        "19_are_heads_different": "next_token_accuracy",
        "20_which_heads_matter": "token_loss",
    },
    "mhalib.saved": {
        "13_translator": "load about names=stored read=stored write=stored FOLDER=stored HASHES=stored KEY=stored",
        "20_which_heads_matter": "About",
    },
    "mhalib.moments": {
        "14_small_gpt": "load=moments names=moments write=moments FOLDER=moments SCALE=moments SMALLEST=moments"
    },
    "mhalib.live": {"instruments": "described=instruments scripts=instruments"},
    "mhalib.pretrained": {
        "18_what_heads_look_at": (
            "load_maps about_maps About=about_maps Reading=load_maps marked stacked SENTENCES=sentences "
            "read_maps=load_maps write_maps=load_maps ERROR=load_maps MINILM=MiniLM"
        ),
        "35_open_a_model_you_know": (
            "load Pretrained=load memory Memory=memory pieces supported FAMILIES=families DECODERS=families "
            "ENCODER_DECODERS=families PairReading=load PICTURES=families PREPARATION=folder Preparation=load "
            "UNREAD=refused FILES=folder INDEX=folder Pin=commit PINS=commit fetch WHEELS "
            "CACHE=MHALIB_CACHE"
        ),
    },
    "mhalib.parallel": {
        "32_many_devices": (
            "places mesh split ulysses ring zigzag expert_parallel weights_held numbers_sent "
            "Place=places PLANS=places Plan=places Sent=numbers_sent"
        )
    },
    "mhalib.processes": {"32_many_devices": "share rank start=share"},
    "mhalib.devices": {"03_why_more_than_one_head": "best_device"},
    "mhalib.measures": {
        "00_take_a_model_apart": "switched_off",
        "07_per_head_heatmaps": "head_entropy",
        "12_all_targets_at_once": "heads_of",
        "13_translator": "Head gated maximum_at",
        "14_small_gpt": "attention_to induction_score",
        "18_what_heads_look_at": "real_cells head_roles HeadRole=role confidence=head_roles rarest_tokens",
        "19_are_heads_different": "head_map head_similarity js_distance diagonal_dominance",
        "20_which_heads_matter": (
            "head_importance head_means HardConcreteGate layers_of=heads_of prune_heads removed_heads=removed "
            "frozen=switched_off mixed=switched_off head_outputs=head_means patched=switched_off rows=switched_off "
            "without_future=switched_off without_positions=switched_off"
        ),
        "21_which_measure_is_right": "head_card HeadCard=card stored_card",
        "35_open_a_model_you_know": "induction_targets",
    },
    "mhalib.plots": {
        "03_why_more_than_one_head": "head_heatmap",
        "02_masks": "HIDDEN_STYLE=hatched",
        "04_reshape_trick": "number_grid",
        "07_per_head_heatmaps": "head_heatmaps COLOUR_MAP=colour",
        "18_what_heads_look_at": "head_wall score_grid MARK_STYLE=marked DPI=figure",
        "32_many_devices": "OWNER_COLOURS",
        "21_which_measure_is_right": "head_card",
    },
    "mhalib.style": {
        "07_per_head_heatmaps": (
            "use head_colour=colour head_map=colour HEADS=colour TINTS=colour head_stops=colour stops=colour "
            "PAPER=colour ON_PALE=colour ON_DARK=colour INK=colour MUTED=colour LINE=scale FRAME=scale WIDEST=scale "
            "QUERY=colour KEY=colour VALUE=colour "
            "as_svg=picture"
        ),
    },
    "mhalib.tables": {"28_counting": "number_table NumberTable=number_table"},
    "mhalib.drawings": {
        "01_weighted_average": "layer_drawing PARTS=parts",
        "10_three_uses": "comes_with",
        "which_attention": "changed_steps=steps",
    },
    "mhalib.overlays": {"16_seeing_with_heads": "attention_on_picture VEIL=colour"},
    "mhalib.widgets": {
        "01_weighted_average": "AttentionPlayground WorkedExample",
        "04_reshape_trick": "ReshapeStepper",
        "09_shape_checks": "MistakeHunt",
        "28_counting": "Roofline ModelCalculator",
        "29_token_by_token": "CostCalculator",
        "21_which_measure_is_right": "SortableTable",
        "instruments": (
            "HeadExplorer HeadWall Instrument=instruments page_script=instruments script_file=instruments "
            "scripts=instruments source=instruments style_sheet=instruments joinable=instruments LiveModel=instruments "
            "weights_script=instruments live_names=instruments"
        ),
    },
    "mhalib.data": {
        "03_why_more_than_one_head": (
            "meetings Meetings=meetings NAMES ACTIONS=meetings SETTINGS=meetings MEETING_VOCABULARY MEETING_LENGTH"
        ),
        "07_per_head_heatmaps": (
            "sentences Sentences=sentences read_sentences QUESTIONS VOCABULARY WORD_IDS=VOCABULARY MAX_WORDS "
            "DETERMINERS=VOCABULARY ADJECTIVES=VOCABULARY NOUNS=VOCABULARY ADVERBS=VOCABULARY VERBS=VOCABULARY"
        ),
        "12_all_targets_at_once": "PADDING=padding IGNORED=padding copies=copier Copies=copier COPIED=copier",
        "13_translator": (
            "translations Translations=translations translate read_english spoken ENGLISH FRENCH BEGIN END LEMMAS "
            "Vocabulary=ENGLISH"
        ),
        "14_small_gpt": "repeats Repeats=repeats",
        "16_seeing_with_heads": "digits Digits=digits shifted",
        "17_two_modalities": (
            "sums Sums=sums CAPTION_WORDS pairs Pairs=pairs PICTURE_QUESTIONS QUESTION_WORDS ANSWERS "
            "read_question=question"
        ),
        "18_what_heads_look_at": "RELATIONS",
    },
    "mhalib.results": {"03_why_more_than_one_head": "read Results=results"},
    "mhalib.bench": {
        "28_counting": "measure_machine Machine=machine",
        "30_never_write_the_scores": "time_ratios peak_bytes",
        "speed": "median_seconds=median seconds_by_round=round",
    },
    "mhalib.roofline": {
        "28_counting": (
            "step_costs StepCost=steps latent_step_costs MACHINES=chips CHIPS Chip=chip PHASES=phases STEPS=steps "
            "KERNELS=kernel FUSED=fused"
        ),
        "instruments": "LATENT_STEPS=latent counted_step_costs=steps",
    },
    "mhalib.serving": {
        "28_counting": (
            "serving_costs ServingCosts=costs MODELS LanguageModel=models PRECISIONS=precision Precision=precision"
        ),
        "which_attention": "ATTENTIONS=attention",
    },
    "mhalib_classroom.checks": {
        "teaching": (
            "EXERCISES=exercises Exercise=checker Mistake=mistake Finding=mistake CheckFailed=mistake report "
            "keep_going=report"
        )
    },
    "mhalib_classroom.grade": {
        "grading": (
            "grade_class bubblewrap no_sandbox=bubblewrap Limits=sandbox Row=grades Deadlines=late deadlines=late"
        ),
        "sandbox": "runc=launcher crun=launcher",
    },
}


def entries() -> dict[str, tuple[str, str]]:
    """Full name -> page that builds it, and the word that the page has for it."""
    found = {}
    for module, pages in CHAPTERS.items():
        for page, names in pages.items():
            for one in names.split():
                name, _, word = one.partition("=")
                found[f"{module}.{name}"] = (page, word or name)
    return found


PAGE_OF = entries()


def exercises() -> dict[str, int]:
    """The exercises' checkers, which have one table instead of entries: name -> number of the chapter."""
    return {name: one.chapter for name, one in importlib.import_module(EXERCISES).EXERCISES.items()}


def public_names(module: str) -> set[str]:
    """What `__all__` lists; of a module without it, its functions, classes and constants with no underscore in front.

    The exercises' checkers are left out.
    """
    here = importlib.import_module(module)
    if hasattr(here, "__all__"):
        return set(here.__all__) - (set(exercises()) if module == EXERCISES else set())
    found = set()
    for one in ast.parse(inspect.getsource(here)).body:
        if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
            found.add(one.name)
        elif isinstance(one, (ast.Assign, ast.AnnAssign)):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def literal(text: str, module: str) -> str:
    """The docstring as reStructuredText: `name` is a link if the name has an entry, or else code, and | is itself."""

    def role(match: re.Match[str]) -> str:
        said = match[1]
        if said is None:
            return "\\|"
        full = said if said.startswith("mhalib.") else f"{module}.{said}"
        return f":py:obj:`{said} <{full}>`" if full in PAGE_OF else f"``{said}``"

    return re.sub(
        r"``.+?``|(?<![`:\w])`([^`]+)`(?![`_\w])|\|", lambda one: one[0] if one[0][:2] == "``" else role(one), text
    )


def is_function(value: object) -> bool:
    """Also one that remembers what it returned."""
    return inspect.isroutine(inspect.unwrap(value))  # type: ignore[arg-type]


def path_of(value: object, module: str, name: str) -> Path:
    """The file that defines a public name."""
    if inspect.isclass(value) or is_function(value):
        return Path(inspect.getsourcefile(inspect.unwrap(value)) or "")  # type: ignore[arg-type]
    return Path(sys.modules[home_of_data(module, name)].__file__ or "")


def home_of_data(module: str, name: str) -> str:
    """The module below `module` that says in a docstring what a constant is, or `module`."""
    value = getattr(importlib.import_module(module), name)
    for below in sorted(sys.modules):
        is_here = f"{below}.".startswith(f"{module}.") and getattr(sys.modules[below], name, None) is value
        if is_here and ("", name) in ModuleAnalyzer.for_module(below).find_attr_docs():
            return below
    return module


def where(full: str) -> str:
    """The last line of an entry: the chapter, the file, and the short name if there is one."""
    module, _, name = full.rpartition(".")
    page, _ = PAGE_OF[full]
    value = getattr(importlib.import_module(module), name)
    file = path_of(value, module, name).relative_to(ROOT).as_posix()
    now = address.here()
    link = f"`{file} <{now.url}/blob/{now.revision}/{file}>`__" if now else f"``{file}``"
    number = f"Chapter {int(page[:2])}: " if page[:2].isdigit() else "Page: "
    short = "" if module == "mhalib" or mhalib._HOMES.get(name) != module[7:] else f" · also ``mhalib.{name}``"
    return f"{number}:doc:`/chapters/{page}` · {link}{short}"


def example(full: str) -> str:
    """How a chapter uses a name, as reStructuredText; empty where none does."""
    found = example_of(full, PAGE_OF[full][0])
    if found is None:
        return ""
    code = textwrap.indent(found.code, "   ")
    return f"As :doc:`/chapters/{found.page}` uses it:\n\n.. code-block:: python\n\n{code}\n"


def data_entry(module: str, name: str) -> str:
    """The entry of a constant; autodoc would look for its docstring in the wrong file."""
    full, value = f"{module}.{name}", getattr(importlib.import_module(module), name)
    docs = ModuleAnalyzer.for_module(home_of_data(module, name)).find_attr_docs().get(("", name), [])
    shown = f"   :value: {value!r}\n" if isinstance(value, (int, float, str)) else ""
    said = textwrap.indent("\n\n".join((literal("\n".join(docs), module), where(full), example(full))), "   ")
    return f".. py:data:: {name}\n{shown}\n{said}\n"


def entry(module: str, name: str) -> str:
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value):
        inherited = "   :inherited-members: Module\n" if HeadsOfLayer in value.__bases__ else ""  # it has no entry
        return f".. autoclass:: {module}.{name}\n   :members:\n{inherited}   :member-order: bysource\n"
    return f".. autofunction:: {module}.{name}\n" if is_function(value) else data_entry(module, name)


def table_of_exercises() -> str:
    pages = {int(path.stem[:2]): path.stem for path in notebooks.CHAPTERS.glob("[0-9][0-9]_*.ipynb")}
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 25 75", "", "   * - chapter", "     - checkers"]
    for number, page in sorted(pages.items()):
        names = ", ".join(f"``{name}``" for name, chapter in exercises().items() if chapter == number)
        lines += [f"   * - {number}: :doc:`/chapters/{page}`", f"     - {names}"]
    return "\n".join(lines)


def text_of(module: str) -> str:
    """What stands in a page for one module, as MyST."""
    about = literal(inspect.getdoc(importlib.import_module(module)) or "", module)
    names = [one.partition("=")[0] for page in CHAPTERS[module].values() for one in page.split()]
    parts = [about, f".. py:currentmodule:: {module}", *(entry(module, name) for name in names)]
    if module == EXERCISES:
        parts.append(table_of_exercises())
    return "```{eval-rst}\n" + "\n\n".join(parts) + "\n```\n"


def show_entries(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = re.sub(r"^```\{api\} ([\w.]+)\n```$", lambda match: text_of(match[1]), source[0], flags=re.MULTILINE)


def before_napoleon(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """A class's lines `field: what it holds` get a heading, for our docstrings have none; "D." would begin a list."""
    paragraphs = re.split(r"\n{2,}(?! )", "\n".join(lines))
    for i, paragraph in enumerate(paragraphs):
        if what == "class" and re.match(r"[a-z]\w*(, \w+)*: ", paragraph):
            paragraphs[i] = "Fields:\n" + re.sub("^", "    ", paragraph, flags=re.MULTILINE)
    text = re.sub(r"^( +\w+(?:, \w+)*: )(\w)\.(?=\s|$)", r"\1\2\\.", "\n\n".join(paragraphs), flags=re.MULTILINE)
    lines[:] = text.splitlines()


def after_napoleon(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Names as code or links, and the last line. napoleon takes `shape: what it is` for a type."""
    module = max((one for one in CHAPTERS if name.startswith(f"{one}.")), key=len, default="")
    text = re.sub(r"\A(.*?)\s*^:type: (.*)\Z", r"\2: \1", "\n".join(lines), flags=re.DOTALL | re.MULTILINE)
    text = re.sub("^(Sources?):", r"**\1:**", literal(text, module), flags=re.MULTILINE)
    lines[:] = text.splitlines()
    if name in PAGE_OF:
        lines += ["", where(name), "", *example(name).splitlines(), ""]


def skip(app: Sphinx, what: str, name: str, value: object, skipped: bool, options: object) -> bool | None:
    """What NamedTuple says of its own fields is "Alias for field number 0"."""
    return True if type(value).__name__ == "_tuplegetter" else None


def in_lines(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Sphinx makes a long signature a list of definitions without terms, which readers of the screen stumble over."""

    def lines(match: re.Match[str]) -> str:
        opened = match[0].replace("<dl>", '<span class="sig-lines">').replace("<dd>", '<span class="sig-line">')
        return opened.replace("</dl>", "</span>").replace("</dd>", "</span>")

    if "body" in context:
        context["body"] = re.sub(r'<dt class="sig .*?</dt>', lines, context["body"], flags=re.DOTALL)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", show_entries)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", before_napoleon, priority=400)
    app.connect("autodoc-process-docstring", after_napoleon, priority=900)
    app.connect("html-page-context", in_lines)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
