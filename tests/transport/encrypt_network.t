#!/bin/bash
# --encrypt-network: nothing of what nodes send each other can be read on the way, and nothing that was changed there is taken.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
PATH=$PATH:/usr/sbin:/sbin
if ((UID != 0)) || ! unshare --net --uts true 2>/dev/null; then
	echo '1..0 # SKIP namespaces need root'
	exit 0
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/gannet-encrypt.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP
cd "$dir" || exit 1
export GANNET_LOG=warn UCX_WARN_UNUSED_ENV_VARS=n
cat >node <<'END'
#!/bin/sh
hostname "node$PMIX_RANK" && exec "$@"
END
cat >captured <<'END'
#!/bin/bash
# captured FILE COMMAND...: with all packets of lo in FILE
ip link set lo up && rm -f "$1.ready" && mkfifo "$1.ready" || exit 1
python3 "$GN_SOURCE/tests/transport/capture" "$1" "$1.ready" >/dev/null 2>&1 &
read -r _ <"$1.ready"
timeout -k 5 300 "${@:2}"
code=$?
kill -TERM $!
wait $!
exit $code
END
chmod +x node captured
# nodes FILE COMMAND...: on two nodes, with what they send in FILE
nodes() {
	unshare --net ./captured "$1" "$gannet" launch -n 2 -- unshare --uts ./node "${@:2}"
}
holds() { [[ -s $1 ]] && grep -qaF "$2" "$1"; }
lacks() { [[ -s $1 ]] && (($(stat -c %s "$1") > ${3:-10000})) && ! grep -qaF "$2" "$1"; }

# a tree that is staged
mkdir src && yes PLANTED-PATTERN-0123456789 | head -c 3000000 >src/text
# stage_tree NAME OPTION...
# shellcheck disable=SC2016 # for the shells of the nodes
stage_tree() { nodes "$1" bash -c '"$0" stage --from src --to "$1/$(hostname)" "${@:2}"' "$gannet" "$1.to" "${@:2}"; }
check 'a tree is staged' stage_tree plain
check 'and can be read on the way' holds plain PLANTED-PATTERN
check 'the same with --encrypt-network' stage_tree sealed --encrypt-network
check 'arrives' cmp src/text sealed.to/node1/text
check 'and cannot be read' lacks sealed PLANTED-PATTERN 2900000

# training
"$gannet" pack --out train --synthetic 64 --classes 4 --size 28x28 2>/dev/null
train() { # NAME OPTION...
	nodes "$1" "$gannet" train --data train --model lenet --lr 0.01 --batch 8 --threads 1 --loader-threads 1 --steps 6 --transport tcp --init planted.safetensors \
		--log "$1.jsonl" "${@:2}"
}
final() { "$GN_SOURCE/tests/cmd/jsonl" "$1.jsonl" end params_sha256 | tail -1; }
"$gannet" train --data train --model lenet --batch 8 --steps 1 --threads 1 --checkpoint first 2>/dev/null
plant() { # small numbers, whose bytes are text
	perl -e 'undef $/; open my $f, "<:raw", "first/latest/model.safetensors" or die; my $b = <$f>; my $n = unpack "Q<", $b;
		my ($from, $to) = substr($b, 8, $n) =~ /"fc1.weight":.*?"data_offsets": ?\[(\d+), ?(\d+)\]/ or die;
		substr($b, 8 + $n + $from, $to - $from) = "ABC<" x (($to - $from) / 4); open my $o, ">:raw", "planted.safetensors"; print $o $b'
}
check 'weights with a pattern' plant
pattern=ABC\<ABC\<ABC\<ABC\<ABC\<ABC\<
check 'training starts with them' train open
check 'which can be read on the way' holds open "$pattern"
check 'with --encrypt-network' train hidden --encrypt-network
check 'they cannot' lacks hidden "$pattern" 100000
check 'the parameters are the same' test "$(final hidden)" = "$(final open)"
check 'GN_ENCRYPT_NETWORK=1 does it, too' env GN_ENCRYPT_NETWORK=1 bash -c "$(declare -f nodes train); gannet=$gannet; train variable"
check 'for what it says' lacks variable "$pattern" 100000
check 'the same' test "$(final variable)" = "$(final open)"
check 'a progress thread' train thread --encrypt-network --progress thread
check 'is the same' test "$(final thread)" = "$(final open)"
check 'parameter servers' train servers --encrypt-network --update async --servers 1
mixed() {
	cat >some <<'END'
#!/bin/sh
[ "$PMIX_RANK" = 0 ] && exec "$@" --encrypt-network
exec "$@"
END
	nodes mixed sh some "$gannet" bench allreduce --transport tcp -b 1M -e 1M
}
expect 2 'give all ranks the same' 'some ranks with it' mixed

# The rest of a message that was given up after a loss is nobody's forgery.
given_up() { # 1: encrypted
	GN_ENCRYPT_NETWORK=$1 timeout -k 5 300 "$gannet" launch -n 4 --keep-going --grace 8 -- unshare --uts ./node "$GN_BUILD/tests/transport/loss_probe" tcp given-up 3 >out 2>&1
	cat out
	[[ $(grep -c 'gave up' out) == 2 ]] && grep -q '3 of 4 ranks succeeded' out
}
check 'a message that its sender gives up after a loss ends no other rank' given_up 1
check 'and without encryption its data are not read any more' given_up 0

# One byte of one in 20 large packets is changed; the kernel makes the checksum right.
cat >changed <<'END'
#!/bin/sh
ip link set lo up && nft add table inet t && nft add chain inet t o '{ type filter hook output priority 0; }' || exit 77
nft add rule inet t o ip protocol tcp meta length '>' 20000 numgen inc mod 20 == 10 @th,8000,8 set 0x55 || exit 77
exec timeout -k 5 300 "$@"
END
chmod +x changed
if unshare --net ./changed true 2>/dev/null; then
	changed() {
		unshare --net "./${network:-changed}" "$gannet" launch -n 2 -- unshare --uts ./node "$gannet" train --data train --model lenet --lr 0.01 --batch 8 --threads 1 \
			--loader-threads 1 --steps 60 --transport tcp "$@"
	}
	expect 4 'a message from rank [01] on node[01] fails its authentication' 'a byte that was changed on the way ends the run, named' \
		changed --encrypt-network
	# without it the same changes reach what ranks send each other: the run breaks, or comes to other parameters
	printf '#!/bin/sh\nip link set lo up && exec timeout -k 5 300 "$@"\n' >unchanged && chmod +x unchanged
	changed --log plain.jsonl >/dev/null 2>&1
	network=unchanged
	check 'a run without changes' changed --log whole.jsonl
	check 'as nothing else does' test -n "$(final whole)" -a "$(final plain)" != "$(final whole)"
else
	skip 'a byte that was changed on the way ends the run' 'no nft'
fi
finish
