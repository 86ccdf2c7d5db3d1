SHELL_TESTS += tests/cmd/selftest.t
EXTRA_DIST += tests/cmd/jsonl tests/cmd/tap.sh
