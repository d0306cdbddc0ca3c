"""Says loudly which real weights could not be had."""

import real_weights


def pytest_terminal_summary(terminalreporter):
    for name, why in real_weights.missing.items():
        terminalreporter.section(f"NOT TESTED: {name} could not be had", sep="!", red=True)
        terminalreporter.line(why)
