# shellcheck shell=bash
# For tests of several ranks: source it. Gives gannet, probe, scratch (removed at the end) and helpers.
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
# shellcheck disable=SC2034
probe=$GN_BUILD/tests/transport/rank_probe
scratch=$(mktemp -d /tmp/gn-transport.XXXXXX)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$scratch"' EXIT
# By this file ranks know each other that meet over MASTER_ADDR.
(umask 077 && head -c 32 /dev/urandom >"$scratch/secret")
export GANNET_SECRET_FILE=$scratch/secret
# What started this test (Slurm, mpirun) must not speak for what it starts.
for variable in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT AZ_BATCH_MASTER_NODE $(compgen -e | grep -E '^(SLURM_|PMIX_|PMI_|OMPI_)'); do
	unset "$variable"
done

# launch N COMMAND...: under gannet launch, with a watchdog
launch() { timeout -k 5 300 "$gannet" launch -n "$1" -- "${@:2}"; }

# A port that nothing listens on just now, and that the system gives to nobody who does not ask for it: its own begin at 32768.
# tests/transport/faults has those from 20000 on.
free_port() {
	perl -MIO::Socket::INET -e 'for (1 .. 100) { my $port = 10000 + int rand 10000;
		IO::Socket::INET->new(Listen => 1, LocalAddr => "0.0.0.0", LocalPort => $port) and print($port), exit } exit 1'
}
