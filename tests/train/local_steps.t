#!/bin/bash
# Post-local SGD: local steps, averages, what is saved, and how many bytes travel.
set -u
# shellcheck source=tests/train/digits.sh
. "$GN_SOURCE/tests/train/digits.sh"

for n in 2 3 4; do
	check "$n ranks, averages every 8 steps" lenet "learn$n" $n --local-steps 8 --epochs 2 --val "$scratch/val"
	check 'they learn the digits' sh -c '"$1" "$2" eval top1 | tail -1 | awk "{ exit !(\$1 >= 0.88) }"' sh "$jsonl" "$scratch/learn$n.jsonl"
done

check 'summed in every step' lenet summed 2 --steps 20 --log-every 1
check 'averages from an epoch that never comes' lenet never 2 --steps 20 --log-every 1 --local-steps 4 --local-from 9
check 'are the same, bit by bit' same summed never

# A checkpoint is of all ranks.
for run in whole part; do
	check "16 steps, $run" lenet $run 3 --steps 16 --local-steps 6 --checkpoint "$scratch/$run" --checkpoint-every 16
done
check 'the same each time' same whole part
check 'go on to 30' lenet whole 3 --steps 30 --local-steps 6 --checkpoint "$scratch/whole" --checkpoint-every 16 --resume auto
check 'never stopped' lenet never-stopped 3 --steps 30 --local-steps 6 --checkpoint "$scratch/never-stopped" --checkpoint-every 16
check 'the same bits' same whole never-stopped

# Bytes: the tail in each step, parameters and momentum every 10th; 431,168 numbers in all.
check 'bytes over TCP' lenet bytes 2 --steps 40 --log-every 10 --local-steps 10 --transport tcp --algo ring
check 'are those of the formula' awk -v sent="$("$jsonl" "$scratch/bytes.jsonl" step sent_bytes | tail -1)" \
	-v n="$("$jsonl" "$scratch/bytes.jsonl" start parameters)" 'BEGIN {
		wanted = 2 * 4 * n / 10 + 16 * 4; print sent, wanted; exit !(sent > 0.97 * wanted && sent < 1.03 * wanted) }'
expect 2 'give --local-steps' '--local-from alone is refused' "$gannet" train --data "$scratch/train" --model lenet --local-from 2
expect 2 'cannot be combined: the moving average' 'and a moving average' "$gannet" train --data "$scratch/train" --model lenet \
	--local-steps 2 --ema 0.9
finish
