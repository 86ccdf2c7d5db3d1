#!/bin/bash
# Allreduce, training and a lost rank over real verbs: two guests with soft RoCE (tests/rdma/cluster), by the environment bootstrap.
# What the adapters count is read outside of gannet, too. There are two in each guest; all but a few tests use the first.
# Every run shows the basics; with GN_LONG in the environment (tests/long) also what takes minutes on emulated processors.
set -u
# shellcheck source=tests/train/common.sh
. "$GN_SOURCE/tests/train/common.sh"
: "${dir:?}" "${gannet:?}" "${jsonl:?}"
# For a host with more to do than the guests; each command ends long before.
export GN_CLUSTER_SECONDS=150 GN_CLUSTER_LIFE=1150
rails=1
# shellcheck source=tests/rdma/guests.sh
. "$GN_SOURCE/tests/rdma/guests.sh"
guests_up RDMA

# The guests have home directories of their own.
(umask 077 && head -c 32 /dev/urandom >"$dir/secret")

# rank RANK COMMAND...: in its guest; leaves out.RANK, err.RANK
rank() {
	cluster run $(($1 + 1)) env RANK="$1" WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 \
		GANNET_SECRET_FILE="$dir/secret" GANNET_RAILS=$rails UCX_WARN_UNUSED_ENV_VARS=n "${@:2}" >"$dir/out.$1" 2>"$dir/err.$1"
}
# both COMMAND...: in both guests; prints all, ends with rank 0's code, or rank 1's when that is 0
both() {
	local code other
	rank 1 "$@" &
	rank 0 "$@"
	code=$?
	wait $!
	other=$?
	cat "$dir"/{out,err}.[01]
	return $((code ? code : other))
}
counters=/sys/class/infiniband/rxe0/ports/1/hw_counters
packets() { cluster run "$1" cat $counters/sent_pkts $counters/rcvd_pkts | paste -sd' '; } # GUEST

# rows TRANSPORT: three sizes, none wrong, by that transport
rows() {
	both "$gannet" bench allreduce --json --transport "$1" --warmup 1 --iters 2 --min-bytes 8 --max-bytes 512K --factor 256 \
		>"$dir/rows.$1" || { cat "$dir/rows.$1"; return 1; }
	perl -MJSON::PP -ne '
		BEGIN { $transport = shift }
		next unless /^\{/;
		my $r = decode_json($_);
		die "wrong row: $_" unless $r->{transport} =~ /^$transport/ && $r->{nodes} == 2 && $r->{bytes} == 8 * 256 ** $rows
			&& !$r->{in_place}{wrong} && !$r->{out_of_place}{wrong};
		$rows++;
		END { die "$rows rows" if $rows != 3 }' "$1" "$dir/rows.$1"
}

# The least that one rank of two sends in rows(): 2 x 3 timed, 1 checked. All of it fits into packets of 4096 bytes.
least=$(((2 * 3 + 1) * (512 * 1024 + 2048 + 8) / 4096))
by_adapter() { # FUNCTION...: both guests' adapters sent and received what it takes
	local before after
	before="$(packets 1) $(packets 2)"
	"$@" || return
	after="$(packets 1) $(packets 2)"
	echo "packets sent and received, before: $before, after: $after"
	paste -d' ' <(tr ' ' '\n' <<<"$before") <(tr ' ' '\n' <<<"$after") |
		awk -v least="$least" 'NF != 2 || $2 - $1 < least { bad = 1 } END { exit bad || NR != 4 }'
}
not_by_adapter() {
	local before after
	before="$(packets 1) $(packets 2)"
	"$@" || return
	after="$(packets 1) $(packets 2)"
	echo "packets sent and received, before: $before, after: $after"
	[[ $before == "$after" && $before =~ ^[0-9]+(\ [0-9]+){3}$ ]]
}
check "allreduce over rc, right, through the adapters" by_adapter rows rc
check "allreduce over ud, right, through the adapters" by_adapter rows ud
every_way() { # TRANSPORT [NAME=VALUE]
	both env "${@:2}" "$GN_BUILD/tests/transport/coll_probe" "$1" && [[ $(cat "$dir"/out.[01] | grep -c ': 0 wrong$') == 2 ]]
}
if [[ ${GN_LONG:-} ]]; then
	check "every collective, by every algorithm, in every type, over rc" by_adapter every_way rc
	check "and over ud" by_adapter every_way ud
else
	skip "every collective, by every algorithm, in every type, over rc and ud" "takes minutes: tests/long rdma"
fi
# long check NAME COMMAND...: only in tests/long, as far as it goes beyond what every run shows
long() {
	if [[ ${GN_LONG:-} ]]; then "$@"; else skip "$2" "takes minutes: tests/long rdma"; fi
}
# groups_over TRANSPORT ROUNDS SEED: random groups of four ranks, two in each guest
groups_over() {
	local guest code=0 pids=()
	echo "seed $3"
	for guest in 2 1; do
		# shellcheck disable=SC2016 # for the shell in the guest. By number: wait -n forgets one of two that end at once.
		cluster run $guest env WORLD_SIZE=4 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 GANNET_SECRET_FILE="$dir/secret" GANNET_RAILS=1 \
			UCX_WARN_UNUSED_ENV_VARS=n bash -c 'for l in 0 1; do
				RANK=$(($0 * 2 - 2 + l)) LOCAL_RANK=$l "$@" & pids+=($!); done; wait "${pids[0]}" && wait "${pids[1]}"' $guest \
			"$GN_BUILD/tests/transport/group_probe" "$@" >"$dir/groups.$guest" 2>&1 &
		pids+=($!)
	done
	wait "${pids[0]}" || code=$?
	wait "${pids[1]}" || code=$?
	cat "$dir"/groups.[12]
	return $code
}
long check "random groups over rc, sums right" groups_over rc 2 $((RANDOM + 1))
long check "random groups whose ranks in a guest share memory" groups_over auto 2 $((RANDOM + 1))
# one rank on one processor, which the kernel needs for soft RDMA
check "who waits leaves the only processor to the kernel" grep -q 'using rxe0 at .*; blocking wait (CPUs oversubscribed)' "$dir/rows.rc"
check "allreduce over tcp, right, not through the adapters" not_by_adapter rows tcp
expect 1 "rc did not carry the traffic: the ranks of guest1 sent [0-9]+ bytes to other nodes over RDMA" "rc that was tcp is found out" \
	both env UCX_TLS=tcp,self "$gannet" bench allreduce --transport rc --min-bytes 64K --max-bytes 64K --iters 1
expect 1 "tcp did not carry the traffic" "tcp that was rc is found out" \
	both env UCX_TLS=rc,ud,self "$gannet" bench allreduce --transport tcp --min-bytes 64K --max-bytes 64K --iters 1
# Of so many endpoints UCX leaves rc for ud. A rank of two opens one.
rc_within() { both env UCX_RC_MAX_NUM_EPS="$1" "$gannet" bench allreduce --json --transport rc --min-bytes 64K --max-bytes 64K --iters 1; }
still_rc() { rc_within 1 && grep -q '"transport": "rc"' "$dir/out.0"; }
long check "UCX is told of the connections that are opened, not of the ranks" still_rc
expect 1 "rank 0 on guest1 was to reach rank 1 on guest2 by rc, but UCX selected ud_verbs/rxe0:1: remove what prevents rc" \
	"rc that UCX made ud ends at start, and is named" rc_within 0

# --- two rails ---
both_adapters() { cat /sys/class/infiniband/rxe[01]/ports/1/hw_counters/{sent,rcvd}_pkts | paste -sd' '; }
of_both() { cluster run "$1" bash -c "$(declare -f both_adapters); both_adapters"; } # GUEST
# One row, whose messages are all cut in two: what the adapters of a guest have sent, and received, is the same to a third
# (packets of a busy host are sent again), and together at least what it takes. The row says so, and so does the line at start.
two_rails() {
	local before after rails=0 least=$((5 * 512 * 1024 / 4096))
	before="$(of_both 1) $(of_both 2)"
	both "$gannet" bench allreduce --json --transport rc --warmup 1 --iters 3 --min-bytes 512K --max-bytes 512K --place in \
		>"$dir/rows.two" || { cat "$dir/rows.two"; return 1; }
	after="$(of_both 1) $(of_both 2)"
	cat "$dir/rows.two"
	# of settings that mean nothing to rc
	! grep "invalid configuration" "$dir/rows.two" || return 1
	echo "packets sent by rxe0, rxe1, received by rxe0, rxe1 before: $before, after: $after"
	grep -q "using rxe0 at .*, rxe1 at " "$dir/rows.two" &&
		grep -qE '"bytes": 524288, .*"transport": "rc[^"]*", .*"rails": 2, .*"wrong": 0' "$dir/rows.two" &&
		paste -d' ' <(tr ' ' '\n' <<<"$before") <(tr ' ' '\n' <<<"$after") | awk -v least="$least" '
			NF != 2 { bad = 1 }
			{ sent = $2 - $1 }
			NR % 2 { one = sent; next }
			one < 0.67 * sent || sent < 0.67 * one || one + sent < least { bad = 1 }
			END { exit bad || NR != 8 }'
}
check "allreduce by two rails over rc, right, half of the packets through each adapter" two_rails

# Emulated, oneDNN's code for wider registers only takes longer to be made.
trainer() { # TRANSPORT STEPS NAME
	echo env ONEDNN_MAX_CPU_ISA=SSE41 GANNET_LOG=warn "$gannet" train --data "$dir/train" --model lenet --lr 0.01 --batch 2 \
		--threads 1 --loader-threads 1 --transport "$1" --steps "$2" --log-every 1 --log "$lab/$3.jsonl"
}
train() { # TRANSPORT
	# shellcheck disable=SC2046 # words
	both $(trainer "$1" 20 "$1") && [[ $("$jsonl" "$lab/$1.jsonl" step step | wc -l) == 20 ]]
}
check 'digits are packed' "$gannet" pack --out "$dir/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
check "20 steps of lenet over rc, through the adapters" by_adapter train rc
check "20 steps of lenet over tcp" train tcp
check "losses agree within 1e-5" same_losses "$lab/rc.jsonl" "$lab/tcp.jsonl" 1e-5

# The report of ib-vs-eth.sbatch from these very measurements.
compare() {
	local fabric
	mkdir "$dir/report"
	for fabric in rc tcp; do
		grep '^{' "$dir/rows.$fabric" >"$dir/report/$fabric.bench.jsonl" &&
			cp "$lab/$fabric.jsonl" "$dir/report/$fabric.train.jsonl" || return 1
	done
	GANNET_OUT=$dir/report GANNET_DATA=$dir/train GANNET_START=false bash "$GN_SOURCE/slurm/jobs/ib-vs-eth.sbatch" || return 1
	cat "$dir/report/report.md"
	[[ -s $dir/report/report.svg && $(grep -cE '^\| (8 B|2 KiB|512 KiB) \|( [0-9.e-]+ \|){5}$' "$dir/report/report.md") == 3 &&
		$(grep -cE '^\| (rc|tcp) \|( [0-9.]+ \|){7}$' "$dir/report/report.md") == 2 ]] &&
		grep -q '^Crossover: ' "$dir/report/report.md"
}
long check "ib-vs-eth.sbatch compares rc with tcp" compare

# doomed RANK COMMAND...: that rank is killed once its adapter has sent some of it; code and output are the other's
doomed() {
	local code
	# shellcheck disable=SC2016 # for the shell in the guest
	rank "$1" bash -c 'read -r before <"$0"
		"$@" & until read -r now <"$0" && ((now > before + 500)); do kill -0 $! || exit 99; sleep 0.05; done
		kill -9 $!; wait $!' $counters/sent_pkts "${@:2}" &
	rank $((1 - $1)) "${@:2}"
	code=$?
	wait $!
	[[ $? == 137 ]] || echo "rank $1 was not killed"
	cat "$dir"/err.[01]
	return $code
}
# shellcheck disable=SC2046 # words
expect 4 "rank 1 on guest2" "a killed rank 1 ends the training on the other, which names it" doomed 1 $(trainer rc 100000 killed)
expect 4 "rank 0 on guest1" "a killed rank 0 ends the bench on the other, which names it" \
	doomed 0 "$gannet" bench allreduce --transport rc --min-bytes 64K --max-bytes 64K --iters 100000

nccl() {
	GN_CLUSTER_SECONDS=400 cluster run 1 env UCX_TLS=rc,ud,self UCX_WARN_UNUSED_ENV_VARS=n "$GN_BUILD/tests/transport/plugin/conform" --version 11 --limit 60 \
		--connections 100 "$@" "$GN_BUILD/libnccl-net-gannet.so"
}
if [[ ${GN_LONG:-} ]]; then
	check "the NCCL plugin over rc, in all that conform asks" nccl
else
	check "the NCCL plugin over rc, in what every connection needs" nccl --only handle,transfer
	skip "the NCCL plugin over rc, in all that conform asks" "takes minutes: tests/long"
fi

# --- an adapter that is not there ---
# shellcheck disable=SC2016 # for the shell in the guest
adapters() { cluster run 2 bash -c 'for n in 0 1; do rdma link "$0" "rxe$n" "${@//N/$n}" || exit; done' "$@"; } # del; add type rxe netdev ethN
# shellcheck disable=SC2120 # a check passes some
small() { both "$gannet" bench allreduce --min-bytes 1K --max-bytes 1K --iters 1 "$@"; }
quiet_ethernet() {
	adapters del || return
	small >"$dir/quiet" && grep -E 'WARN.*use different transports, or leave faster devices unused: tcp on guest1, guest2; guest1: rxe0 at .* is up and unused' "$dir/err.0" &&
		! grep -q WARN "$dir/err.1" && expect_code 1 small --transport-strict >"$dir/strict" &&
		[[ $(cat "$dir"/err.[01] | grep -c -- '--transport-strict: .*guest1: rxe0') == 2 ]]
	local code=$?
	cat "$dir/quiet" "$dir/strict"
	adapters add type rxe netdev ethN
	return $code
}
expect_code() { local wanted=$1; shift; "$@"; [[ $? == "$wanted" ]]; }
long check "tcp since one guest has lost its adapters: a warning that names hosts, an error with --transport-strict" quiet_ethernet

# --- the end of a cable, and of the cluster ---
# no_way GUEST: what it sends by its second adapter from now on leaves for a machine that is not there. (With that device down,
# rxe tries again at once and without end what it cannot send, and the kernel of a guest, with its one processor, hangs.)
# shellcheck disable=SC2016 # for the shell in the guest
no_way() {
	cluster run "$1" bash -c 'for address in fd78::$0 10.78.0.$0; do
		ip neighbour replace $address lladdr 02:00:00:00:00:99 dev eth1 nud permanent || exit; done' "$((3 - $1))"
}

# cut_while GUEST COMMAND...: the cable of its second adapter, once that has sent some of what COMMAND is about, until both ranks
# have ended. Prints all; the code is rank 0's.
cut_while() {
	local rails=0 code first second
	rank 1 "${@:2}" &
	second=$!
	rank 0 "${@:2}" &
	first=$!
	# shellcheck disable=SC2016 # for the shell in the guest
	cluster run "$1" bash -c 'read -r before <"$0"
		until read -r now <"$0" && ((now > before + 500)); do sleep 0.05; done' /sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts ||
		echo "nothing was sent by rxe1"
	no_way "$1" && no_way "$((3 - $1))" || echo "not cut"
	wait $first
	code=$?
	wait $second
	[[ $? == "$code" ]] || echo "rank 1 ended with another code"
	cat "$dir"/{out,err}.[01]
	return $code
}
# The design promises a diagnosis, not another way. The limit is 5 s, by the ranks' own clocks.
one_rail_cut() {
	expect_code 4 cut_while 2 "$gannet" bench allreduce --transport rc --min-bytes 512K --max-bytes 512K --iters 100000 \
		>"$dir/cut" || { cat "$dir/cut"; return 1; }
	cat "$dir/cut"
	! grep -qE "nothing was sent|not cut|another code|WRONG" "$dir/cut" &&
		grep -qE "$diagnosis" "$dir/err.0" && grep -qE "$diagnosis" "$dir/err.1"
}
# Of the allreduce, or of the messages that measure a link's rate before it.
waited='([5-9]|[1-9][0-9]+)\.[0-9]'
diagnosis="(has stalled; .*, for $waited s \(.*rank [01] for rank [01] by rxe1:1"
diagnosis+="|waits (for a message of|to send a message to) rank [01].*, tag .*, for $waited s;.* rank [01] by rxe1:1"
diagnosis+="|waits (for a message of|to send a message to) rank [01] by rxe1:1, tag .*, for $waited s;"
# one still sends such a message, and the other waits in what comes next
diagnosis+="|has stalled; rank [01].* is in a message, [^;]*, for $waited s, waiting for rank [01] by rxe1:1;)"
check "one of two rails cut amid an allreduce: both ranks end and name it" one_rail_cut
left_out() {
	local rails=0
	both "$gannet" bench allreduce --transport rc --min-bytes 512K --max-bytes 512K --iters 1 >"$dir/left" || { cat "$dir/left"; return 1; }
	cat "$dir/left"
	grep -q "WARN.*rail rxe1:1 does not connect guest2 to the other nodes and is not used between them" \
		"$dir/err.0" && grep -q "using rxe0 at [^,]*;" "$dir/err.0"
}
long check "where it does not reach from the start it is left out, and named" left_out

read -r first <"$lab/guest1.pid"
read -r second <"$lab/guest2.pid"
check "the cluster goes down" cluster down
nothing_left() {
	find "$lab" -mindepth 1 -not -name '*.jsonl*' >"$dir/remains"
	cat "$dir/remains"
	! kill -0 -- "-$first" && ! kill -0 -- "-$second" && [[ ! -s $dir/remains ]]
}
check "and leaves no process and no pipe" nothing_left
finish
