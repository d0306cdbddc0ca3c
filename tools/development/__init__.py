"""For whoever changes the book: what a reader sees, what a change touches, checks of links and scripts."""
