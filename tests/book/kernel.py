"""A kernel's part, played in the page: a model that an instrument hears, and that notes what the instrument saves."""

from __future__ import annotations

from mhalib.widgets import source


def with_kernel(script: str, actions: str) -> str:
    """JavaScript of a function of a state: it draws the instrument `script` from it and does what `actions` say.

    They find `model`, `el`, `saved` (the state at each saving), `heard` (listeners by event), `said()` (what the
    instrument's voice says) and `stop()`.
    """
    return f"""(state) => {{
    {source(script)}
    const heard = {{}}, saved = [];
    const model = {{
        get: (name) => state[name],
        set: (name, value) => {{ state[name] = value; (heard[`change:${{name}}`] || []).forEach((each) => each()); }},
        save_changes: () => saved.push({{ ...state }}),
        on: (event, each) => {{ (heard[event] ||= []).push(each); }},
        off: (event, each) => {{ heard[event] = heard[event].filter((one) => one !== each); }},
    }};
    const el = document.createElement("div");
    const stop = {script}({{ model, el }});
    document.querySelector("main").replaceChildren(el);
    const said = () => el.querySelector("[role=status]").textContent;
    {actions}
}}"""
