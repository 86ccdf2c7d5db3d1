EXTRA_DIST += tests/cmd/jsonl tests/cmd/tap.sh
SHELL_TESTS += tests/cmd/install.t tests/cmd/selftest.t
