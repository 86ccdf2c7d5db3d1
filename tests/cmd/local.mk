EXTRA_DIST += tests/cmd/install.t
SHELL_TESTS += tests/cmd/selftest.t

