EXTRA_DIST += tests/cmd/jsonl tests/cmd/tap.sh
SHELL_TESTS += tests/cmd/harness.t tests/cmd/info.t tests/cmd/install.t tests/cmd/pages.t tests/cmd/selftest.t tests/cmd/sim.t tests/cmd/version.t tests/cmd/cli_text.t
SLOW_TESTS += tests/cmd/selftest_networks.t tests/cmd/configure.t tests/cmd/first_day.t
