#!/bin/bash
# What a run says at its start of compressed gradients and local steps: bytes, also after a resume; and warnings of what changes nothing.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
export UCX_WARN_UNUSED_ENV_VARS=n GANNET_LOG=info OMP_NUM_THREADS=1

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-val.tar.xz"
lenet() { # RANKS OPTION...: 1,000 images, 5 steps an epoch of 2 ranks
	launch "$1" "$gannet" train --data "$scratch/train" --model lenet --lr 0.001 --schedule constant --batch 100 --threads 1 \
		--loader-threads 1 --log "$scratch/log.jsonl" "${@:2}"
}
lacks() { # STATUS PATTERN NAME COMMAND...
	"${@:4}" >"$scratch/out" 2>&1
	local rc=$?
	check "$3" sh -c 'test "$1" = "$2" && ! grep -E "$3" "$4"' sh $rc "$1" "$2" "$scratch/out"
}

# dgc:0.01 of 431,080 parameters, 8 bytes each: 1/4 in the first epoch, 1/16 in the second, 1/100 after the fourth.
dgc() { lenet 2 --compress dgc:0.01 --checkpoint "$scratch/dgc" --resume auto --epochs "$1"; }
expect 0 'dgc:0.01: a rank sends 0.86[0-9]* MB a step, .*in this epoch, less in the next ones' 'dgc, first epoch' dgc 1
expect 0 'dgc:0.01: a rank sends 0.21[0-9]* MB a step, .*in this epoch, less in the next ones' 'dgc, resumed in the second' dgc 4
expect 0 'dgc:0.01: a rank sends 0.034[0-9]* MB a step, .*by formula\)$' 'dgc, resumed after the warm-up' dgc 5
check 'the log has the same' awk -v sent="$(sed -n 's/.*"event": "resume".*"sent_bytes": \([0-9]*\).*/\1/p' "$scratch/log.jsonl" | tail -1)" \
	'BEGIN { print sent; exit !(sent > 34000 && sent < 36000) }'

expect 0 'WARN .*--compress topk:0.5 saves nothing: of 2 ranks' 'topk of half of all' lenet 2 --steps 1 --compress topk:0.5
expect 0 'WARN .*--compress dgc:0.5 saves nothing: of 2 ranks' 'dgc of half of all' lenet 2 --steps 1 --compress dgc:0.5
lacks 0 'saves nothing' 'topk of less saves' lenet 2 --steps 1 --compress topk:0.49
lacks 0 'saves nothing' 'dgc warms up without a warning' lenet 2 --steps 1 --compress dgc:0.01

expect 0 'local steps: ranks average .* every 4 steps; a rank sends 0.86[0-9]* MB a step then, summing gradients 1.72[0-9]* MB' \
	'local steps say what they do' lenet 2 --steps 1 --local-steps 4
expect 0 'local steps after the first 2 epochs: ranks average' 'and from when on' lenet 2 --steps 1 --local-steps 4 --local-from 2
expect 0 'WARN .*--local-steps 4 does nothing: one rank' 'local steps of one rank' lenet 1 --steps 1 --local-steps 4
expect 0 'WARN .*--shard optimizer does nothing: one rank' 'shards of one rank' lenet 1 --steps 1 --shard optimizer
expect 0 'WARN .*--local-steps 4 does nothing: --local-from 3 is not within the run' 'local steps after the end' lenet 2 --steps 1 \
	--local-steps 4 --local-from 3
expect 0 'WARN .*--compress int8 does nothing: one rank' 'compression of one rank' lenet 1 --steps 1 --compress int8
lacks 0 'does nothing|saves nothing' 'auto of one rank is what it says' lenet 1 --steps 1 --compress auto
expect 1 'not finite at step .*powersgd and topk need more often, or compress less' 'a divergence with compression names it' \
	lenet 2 --steps 300 --compress powersgd:2 --lr 1000
finish
