"""What a course hands out and what is tried of it: exercises, courses, whole terms, mutants of solutions."""
