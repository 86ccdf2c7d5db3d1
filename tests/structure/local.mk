SHELL_TESTS += tests/structure/structure.t
EXTRA_DIST += tests/structure/exceptions
