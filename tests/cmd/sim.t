#!/bin/bash
# The machine files and commands of src/man/sim.md work, and its table has every field.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
page=$GN_SOURCE/src/man/sim.md
cd "$GN_SOURCE" || exit 1
PATH=$GN_BUILD:$PATH
commands=0
while read -r command; do
	commands=$((commands + 1))
	# shellcheck disable=SC2086 # words
	expect 0 'hierarchical' "$command" timeout -k 5 300 ${command%%#*}
done < <(sed -n 's/^    \(gannet sim .*\)/\1/p' "$page")
check "the page has commands" test "$commands" -ge 3
shown() { # FILE: the page shows what is in it
	python3 -c 'import sys; sys.exit(open(sys.argv[2]).read().strip() not in open(sys.argv[1]).read().replace("\n    ", "\n"))' "$page" "$1"
}
for name in rail-optimised three-level; do check "the page shows $name" shown "src/man/sim-$name.json"; done
fields() {
	local key
	for key in $(sed -n '/^static const struct {/,/^};/p' src/cmd/sim_machine.c | grep -o 'FIELD([a-z_]*' | sed 's/FIELD(//;/^name$/d'); do
		grep -q "^|.*\`$key\`" "$page" || { echo "no $key"; return 1; }
		count=$((${count:-0} + 1))
	done
	((count > 15))
}
check "its table has every field" fields
expect 1 'unevenly on nodes' "a pipeline that would take minutes to simulate is refused" timeout -k 5 300 gannet sim --nodes 400 --ranks-per-node 3 --pipeline 2 \
	--compute-ms 100
finish
