# Two emulated machines (tests/rdma/cluster) for a test. Source it after tests/train/common.sh, with GN_CLUSTER_* set.
# shellcheck shell=bash disable=SC2154
lab=$dir/lab # on both machines and this one

cluster() { "$GN_SOURCE/tests/rdma/cluster" "$1" "$lab" "${@:2}"; }
# guests_up WHAT: the test ends here without them, skipping WHAT where they cannot be had
guests_up() {
	trap 'cluster down; rm -rf "$dir"' EXIT
	mkdir "$lab"
	cluster up 2>"$dir/up"
	case $? in
	0) return ;;
	77)
		skip "$1 between two guests" "$(tail -n 1 "$dir/up")"
		finish
		exit
		;;
	esac
	check 'two guests come up' sh -c "cat '$dir/up'; exit 1"
	finish
	exit 1
}
