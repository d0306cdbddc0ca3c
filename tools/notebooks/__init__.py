"""Executing the notebooks, what their outputs state, and rehearsals of other machines."""
