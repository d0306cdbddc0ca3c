"""Building the pages: Sphinx, its extensions, formulas, figures, and the finishing of the theme's HTML."""
