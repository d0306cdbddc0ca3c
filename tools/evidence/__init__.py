"""Numbers that pages state: benches, other frameworks, experiments from many seeds, records of test runs."""
