#!/bin/bash
# Training that stays on GPUs, one rank and several: against the host's, in buckets or not, resumed, growing, and with a rank that dies.
# Without a GPU the whole program runs on one that is emulated.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
export OMP_NUM_THREADS=1
program=$GN_BUILD/tests/gpu/gannet_emulated kind="an emulated GPU" nccl=1 comm=ucx
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
	program=$gannet kind="a GPU"
	(($(nvidia-smi -L | grep -c '^GPU') > 1)) || nccl= # which wants one for each rank
fi
data=$scratch/data
photos=$scratch/photos # larger than what is made of them
"$program" pack --synthetic 24 --classes 4 --size 16x16 --out "$data" >"$scratch/log" 2>&1 || cat "$scratch/log" >&2
"$program" pack --synthetic 24 --classes 4 --size 150x90 --out "$photos" >"$scratch/log" 2>&1 || cat "$scratch/log" >&2

# train NAME RANKS DEVICE OPTIONS...: its log in NAME.jsonl, what it says in NAME.out; several ranks on GPUs sum by $comm
train() {
	local name=$1 ranks=$2 device=$3 started=()
	shift 3
	rm -f "$scratch/$name.jsonl"
	((ranks == 1)) || started=("$gannet" launch -n "$ranks" --)
	timeout -k 5 300 "${started[@]}" "$program" train --data "$data" --model resnet20 --side 16 --batch 2 --steps 4 --lr 0.02 \
		--log-every 1 --device "$device" --comm "$([[ $device == cuda ]] && echo $comm || echo auto)" --log "$scratch/$name.jsonl" "$@" \
		>"$scratch/$name.out" 2>&1
}
sha() { grep -o '"params_sha256": *"[0-9a-f]*"' "$scratch/$1.jsonl"; }
losses() { grep '"event": "step"' "$scratch/$1.jsonl" | grep -o "\"$2\": [^,]*" | grep -o '[^ ]*$'; }
val_loss() { grep '"event": "eval"' "$scratch/$1.jsonl" | grep -o '"loss": [^,}]*' | grep -o '[^ ]*$'; }
# near FILE FILE TOLERANCE: as many numbers, at least one, and no two further apart
near() {
	paste "$1" "$2" | awk -v t="$3" '{ d = $1 - $2; if (NF != 2 || d > t || -d > t) bad = 1; n++; print; }
		END { exit !n || bad }'
}
# follows A B KEY TOLERANCE: in every step
follows() { near <(losses "$1" "$3") <(losses "$2" "$3") "$4"; }
tell() { cat "$scratch/$1.out"; }
# alike A B: the same bits; a GPU measures which of its ways are fast, and two runs may choose otherwise
alike() {
	if [[ $kind == "a GPU" ]]; then
		near <(tail -n 1 <(losses "$1" loss)) <(tail -n 1 <(losses "$2" loss)) 2e-2
	else
		[[ $(sha "$1") && $(sha "$1") == "$(sha "$2")" ]]
	fi
}

# stays NAME RANKS: as on the host, loss and gradient norm of every step, and BN statistics by what the validation says
stays() {
	train "$1-host" "$2" host --val "$data" && train "$1" "$2" cuda --val "$data" || { tell "$1-host"; tell "$1"; return 1; }
	grep -q 'trained on' "$scratch/$1.out" || { echo "it did not stay there"; tell "$1"; return 1; }
	follows "$1" "$1-host" loss 1e-3 && follows "$1" "$1-host" grad_norm 1e-2 || return 1
	near <(val_loss "$1") <(val_loss "$1-host") 2e-2
}
if train alone 1 host --steps 1 || ! grep -q 'this build has no oneDNN' "$scratch/alone.out"; then
	host=1
	check "one rank on $kind learns what the host does" stays one 1
	check "two ranks do" stays two 2
	check "three ranks do" stays three 3
	also() { # NAME RANKS: with gradients clipped, and a moving average that is evaluated, too
		train "$1-host" "$2" host --val "$data" --clip 2 --ema 0.9 --optimizer lars && train "$1" "$2" cuda --val "$data" --clip 2 --ema 0.9 \
			--optimizer lars || { tell "$1-host"; tell "$1"; return 1; }
		grep -q 'trained on .* as .*graph' "$scratch/$1.out" || { echo "it did not stay there"; tell "$1"; return 1; }
		follows "$1" "$1-host" loss 1e-3 && follows "$1" "$1-host" grad_norm 1e-2 || return 1
		# both evaluations of the run's end
		near <(val_loss "$1") <(val_loss "$1-host") 2e-2 && [[ $(val_loss "$1" | wc -l) == 2 ]]
	}
	check "one does with --clip and --ema" also one-also 1
	check "so do two" also two-also 2
else
	host=
	skip "what ranks on $kind learn, beside the host" "this build has no host's arithmetic"
fi

# without batch norm the same images are the same step, whoever looks at them
divided() {
	train whole-batch 1 cuda --model lenet --side 28 --batch 8 --lr 0.01 --steps 3 &&
		train half-batches 2 cuda --model lenet --side 28 --batch 4 --lr 0.01 --steps 3 || { tell whole-batch; tell half-batches; return 1; }
	# the second rank of those that are emulated has no graphs
	grep -qE 'a step as (one graph|[0-9]+ graphs?) of' "$scratch/whole-batch.out" && grep -qE 'a step as [0-9]+ graphs? of' "$scratch/half-batches.out" ||
		{ tell whole-batch; tell half-batches; return 1; }
	follows whole-batch half-batches loss 1e-3 && follows whole-batch half-batches grad_norm 1e-3
}
check "two ranks with half a batch each do what one does" divided

# the sum of two has one value, however it travels
cut_up() {
	train small 2 cuda --bucket 16K && train behind 2 cuda --bucket 16K --no-overlap && train whole 2 cuda --bucket 1G ||
		{ tell small; tell behind; tell whole; return 1; }
	alike small behind && alike small whole
}
check "in small buckets, behind backward or in one, the bits are the same" cut_up

# where UCX reaches GPU memory nothing is staged; so it does what is emulated
direct() {
	GANNET_EMULATED_DIRECT=1 train direct 2 cuda --bucket 16K || { tell direct; return 1; }
	[[ $kind == "a GPU" ]] || grep -q 'GPU memory: ucx, messages in GPU memory' "$scratch/direct.out" || { tell direct; return 1; }
	alike small direct
}
check "so are those of sums straight from GPU memory" direct

by_nccl() { # HOW: --comm
	local comm=$1
	train "by-$1" 2 cuda --bucket 16K || { tell "by-$1"; return 1; }
	if [[ $1 == nccl ]]; then grep -q 'GPU memory: nccl 2' "$scratch/by-$1.out"; else grep -q 'memory by .*the fastest of: nccl .* ucx' "$scratch/by-$1.out"; fi ||
		{ tell "by-$1"; return 1; }
	alike small "by-$1"
}
if [[ $nccl ]]; then
	check "and of those by NCCL" by_nccl nccl
	check "and by what was measured to be faster" by_nccl auto
else
	skip "sums by NCCL" "one GPU for two ranks"
fi
refused() { # CODE PATTERN COMMAND...
	local code=$1 pattern=$2
	shift 2
	"$@"
	[[ $? == "$code" ]] && grep -Eq -e "$pattern" "$scratch/refused.out" || { tell refused; return 1; }
}
no_nccl() {
	refused 2 '--comm nccl: .*NCCL requires GPU memory' train refused 1 host --comm nccl
}
check "where the host sums, --comm nccl is refused" no_nccl
# rank 1 sees no GPU
cat >"$scratch/mixed" <<MIXED
#!/bin/bash
((PMIX_RANK == 0)) || export CUDA_VISIBLE_DEVICES= GANNET_EMULATED_GPUS=0
exec "$program" "\$@"
MIXED
chmod +x "$scratch/mixed"
mixed() {
	local program=$scratch/mixed
	refused 2 '--comm nccl: .* because not every rank computes on a GPU: use --comm ucx or auto' train refused 2 auto --comm nccl &&
		train mixed 2 auto && train mixed-host 2 host && ! grep -q "between the ranks' sums" "$scratch/mixed.out" &&
		follows mixed mixed-host loss 1e-3 && return
	tell mixed
	return 1
}
[[ ! $host ]] || check "a rank without a GPU: all update on the host, and --comm nccl is refused" mixed

resumed() {
	train all 2 cuda --schedule constant --checkpoint "$scratch/all" &&
		train first 2 cuda --schedule constant --steps 2 --checkpoint "$scratch/parts" &&
		train rest 2 cuda --schedule constant --resume auto --checkpoint "$scratch/parts" || { tell all; tell first; tell rest; return 1; }
	alike all rest
}
check "two steps and two more are four" resumed

# A checkpoint's state is copied beside the next step, whose update waits: the bits of a run that ends there, where streams are late, too.
copied() { # SEED RANKS MS
	local file base
	export GANNET_EMULATED_SEED=$1 GANNET_EMULATED_LATE_DOWN_MS=$3
	rm -rf "$scratch/each" "$scratch/two"
	train each "$2" cuda --schedule constant --ema 0.9 --val "$data" --eval-steps 3 --checkpoint "$scratch/each" --checkpoint-every 1 --keep 9 &&
		train two "$2" cuda --schedule constant --ema 0.9 --steps 2 --checkpoint "$scratch/two"
	base=$?
	unset GANNET_EMULATED_SEED GANNET_EMULATED_LATE_DOWN_MS
	((base == 0)) || { tell each; tell two; return 1; }
	for file in "$scratch"/two/step-00000002/*.safetensors; do
		cmp "$file" "$scratch/each/step-00000002/${file##*/}" || return 1
	done
}
if [[ $kind == "a GPU" ]]; then
	skip "checkpoints beside steps, bit by bit" "two runs on a GPU may choose otherwise"
else
	check "checkpoints beside steps have the bits of a run that ends there" copied 1 2 0
	check "where copies take longer than steps, too" copied 0 1 200
fi

# 24 images: 4 of them by two ranks, then three steps of 6, which leave 2
other_batch() {
	train apart 2 cuda --schedule constant --steps 1 --checkpoint "$scratch/apart" &&
		train apart 3 cuda --schedule constant --steps 0 --epochs 2 --resume auto --checkpoint "$scratch/apart" || { tell apart; return 1; }
	[[ $(losses apart epoch | tr '\n' ' ') == "0.4167 0.6667 1.0000 1.2500 1.5000 1.7500 2.0000 " ]] || { losses apart epoch; return 1; }
}
check "resumed in the middle of an epoch with another global batch" other_batch

# what eval says of a checkpoint, on the GPU and on the host
said() { grep -o '"loss": [^,]*' "$scratch/eval.$1" | grep -o '[^ ]*$'; }
evaluates() {
	local where
	for where in cuda host; do
		timeout -k 5 300 "$program" eval --data "$data" --checkpoint "$scratch/all" --device $where >"$scratch/eval.$where" 2>&1 ||
			{ cat "$scratch/eval.$where"; return 1; }
	done
	near <(said cuda) <(said host) 2e-2
}
[[ ! $host ]] || check "eval on it says what the host does" evaluates

gathers() { # NAME RANKS
	train "$1-host" "$2" host --accumulate 2 && train "$1" "$2" cuda --accumulate 2 || { tell "$1-host"; tell "$1"; return 1; }
	grep -qE "trained on .* a step's last batch as .*graph" "$scratch/$1.out" || { echo "it did not stay there"; tell "$1"; return 1; }
	follows "$1" "$1-host" loss 1e-3 && follows "$1" "$1-host" grad_norm 1e-2
}
[[ ! $host ]] || check "one rank with --accumulate learns what the host does" gathers gathers-one 1
[[ ! $host ]] || check "so do two" gathers gathers-two 2

joins() { # NAME RANKS GROUPS OPTIONS...: statistics of several ranks
	local name=$1 ranks=$2 groups=$3
	shift 3
	train "$name-host" "$ranks" host --sync-bn "$groups" --val "$data" "$@" && train "$name" "$ranks" cuda --sync-bn "$groups" --val "$data" "$@" ||
		{ tell "$name-host"; tell "$name"; return 1; }
	grep -qE "a step.* as [0-9]+ graphs of [0-9]+ nodes between the ranks' sums" "$scratch/$name.out" &&
		grep -q "GPU memory: $comm" "$scratch/$name.out" || { tell "$name"; return 1; }
	follows "$name" "$name-host" loss 1e-3 && follows "$name" "$name-host" grad_norm 1e-2 && near <(val_loss "$name") <(val_loss "$name-host") 2e-2
}
[[ ! $host ]] || check "two ranks with --sync-bn stay, too" joins sync 2 all
[[ ! $host ]] || check "so they do with --accumulate" joins sync-gathers 2 all --accumulate 2
[[ ! $host || ! $nccl ]] || comm=nccl check "and by NCCL" joins sync-nccl 2 all

# what the loader leaves to a GPU; a pixel rounded to a byte would be 1e-3 of a loss
crops() {
	local limit=1e-5
	[[ $kind == "an emulated GPU" ]] || limit=1e-3
	train crops-host 2 host --data "$photos" --augment crop-flip --lr 1e-4 --val "$photos" &&
		train crops 2 cuda --data "$photos" --augment crop-flip --lr 1e-4 --val "$photos" || { tell crops-host; tell crops; return 1; }
	follows crops crops-host loss "$limit" && near <(val_loss crops) <(val_loss crops-host) "$limit"
}
[[ ! $host ]] || check "photographs are cropped and resized as on the host" crops

# Images that take much longer to be decoded than to be learned from: each step's line has the share of the time that it waited.
waits() { # RANKS
	train "waits-$1" "$1" cuda --model lenet --side 28 --data "$scratch/large" --batch 6 --steps 6 --loader-threads 1 &&
		(($(sed -n 's/.* step [2-6] .* data \([0-9]*\) %.*/\1/p' "$scratch/waits-$1.out" | sort -n | tail -n 1) >= 1)) && return
	tell "waits-$1"
	return 1
}
if [[ ${GN_SANITIZED:-} ]]; then
	skip "ranks that wait for their loaders" "a GPU that is emulated under AddressSanitizer is slower"
else
	"$program" pack --synthetic 12 --classes 4 --size 3000x2000 --out "$scratch/large" >"$scratch/log" 2>&1 || cat "$scratch/log" >&2
	check "one rank that waits for its loader says so" waits 1
	check "so do two" waits 2
fi

grows() {
	train grows 2 cuda --lr 1e-4 --steps 0 --epochs 2 --resize-schedule 0:8,1:16 && train grows-host 2 host --lr 1e-4 --steps 0 --epochs 2 \
		--resize-schedule 0:8,1:16 || { tell grows; tell grows-host; return 1; }
	follows grows grows-host loss 2e-3
}
[[ ! $host ]] || check "images grow" grows

skips() { # a learning rate from which nothing finite comes
	train skips 2 cuda --model lenet --side 28 --lr 1e6 --warmup-epochs 0 --steps 30 --schedule constant
	grep -qE 'updates nothing: a gradient is not finite' "$scratch/skips.out" && grep -q 'in a row' "$scratch/skips.out"
	local found=$?
	((found == 0)) || tell skips
	return "$found"
}
check "gradients that are not finite are left out on all ranks, and end the run" skips

in_half() { # with bounds of its own, which emulated arithmetic does not need excuses for
	local said='within all bounds'
	[[ $kind == "an emulated GPU" ]] || said+='|no larger than'
	timeout -k 5 300 "$program" selftest --device cuda --precision fp16 --brief --golden "$GN_SOURCE/tests/golden/resnet18-b4-s64-c10.json" \
		>"$scratch/half.out" 2>&1 && grep -qE "$said" "$scratch/half.out" && return
	cat "$scratch/half.out"
	return 1
}
check "resnet18 in fp16 is the reference's" in_half

# its losses are those of the host, and of several ranks gradients are summed on the GPUs
benched() { # COMM
	local where
	for where in host "cuda --comm $1"; do
		# shellcheck disable=SC2086 # three words
		timeout -k 5 300 "$gannet" launch -n 2 -- "$program" bench train --device $where --model resnet20 --side 16 --batch 2 --iters 3 --warmup 1 \
			--json >"$scratch/bench-${where%% *}" 2>"$scratch/bench.err" || { cat "$scratch/bench.err"; return 1; }
	done
	near <(grep -o '"losses": \[[^]]*' "$scratch/bench-cuda" | grep -o '[0-9.]*' | head -n 4) \
		<(grep -o '"losses": \[[^]]*' "$scratch/bench-host" | grep -o '[0-9.]*' | head -n 4) 1e-3 && grep -q "between the ranks' sums" "$scratch/bench-cuda"
}
[[ ! $host ]] || check "bench train of two ranks does so" benched "$comm"
[[ ! $host || ! $nccl ]] || check "so it does by NCCL" benched nccl

any_order() {
	train order 1 cuda --any-order && train order-again 1 cuda --any-order || { tell order; tell order-again; return 1; }
	[[ $(sha order) && $(sha order) != "$(sha order-again)" ]]
}
if [[ $kind == "a GPU" ]]; then
	skip "engines of cuDNN that do not repeat themselves" "which it chooses is measured"
else
	check "--any-order alone allows engines that do not repeat themselves" any_order
fi

# batch norms of fp16 within convolutions, or not, as measured: seeds of the times choose otherwise, and each chooses the same again
within() { sed -n 's/.* of [0-9]* batch norms \([0-9]*\) forward and \([0-9]*\) backward within convolutions.*/\1 \2/p' "$scratch/$1.out"; }
chooses() {
	local seed name
	for seed in 1 1 2 3; do
		name=chooses-$seed
		[[ ! -e $scratch/$name.out ]] || name=chooses-again
		GANNET_EMULATED_TIMES=$seed train $name 1 cuda --lr 1e-3 --precision fp16 || { tell $name; return 1; }
	done
	[[ $kind == "a GPU" ]] || for name in chooses-1 chooses-2 chooses-3; do within $name; done | tee /dev/stderr | awk '
		{ forward[$1]; backward[$2]; some += $1 > 0 && $2 > 0 }
		END { exit some < 3 || length(forward) < 2 || length(backward) < 2 }' || return 1
	alike chooses-1 chooses-again
}
check "what seeds of the times choose in fp16 differs, and is the same again" chooses
near_host() {
	local name
	train chooses-host 1 host --lr 1e-3 || { tell chooses-host; return 1; }
	for name in chooses-1 chooses-2 chooses-3; do
		follows $name chooses-host loss 1e-2 && follows $name chooses-host grad_norm 0.4 || return 1
	done
}
[[ ! $host ]] || check "and follows the host's fp32, whatever was chosen" near_host

# Its JSON says how a step runs: the graph, the engine of each convolution's passes, and with --profile the GPU's time in each operator.
profiled() {
	timeout -k 5 300 "$program" bench train --device cuda --precision fp16 --model resnet20 --side 16 --batch 2 --iters 2 --warmup 2 \
		--profile --json >"$scratch/profiled" 2>"$scratch/bench.err" || { cat "$scratch/bench.err"; return 1; }
	python3 - "$scratch/profiled" <<'PY'
import json, sys
row = json.load(open(sys.argv[1]))
graph, engines, profile = row["graph"], row["engines"], row["profile"]
assert graph["graphs"] == 1 and graph["nodes"] > 100 and graph["obstacle"] == "", graph
convs = [o for o in profile["operators"] if o["kind"] == "convolution"]
assert len(convs) == 21 and all(o["forward"]["ms"] > 0 < o["backward"]["ms"] for o in convs), convs
passes = {o["name"]: [e["pass"] for e in engines if e["name"] == o["name"]] for o in convs}
# the first one has no gradient of its input
assert sorted(map(len, passes.values())) == [2] + [3] * 20, passes
assert all(e["ms"] > 0 and e["engine"] >= 0 for e in engines), engines
PY
}
check "bench train says how a step runs, and what each operator takes" profiled

# more than any GPU has
too_large() {
	timeout -k 5 300 "$program" bench train --device cuda --model resnet50 --batch 2048 --iters 1 >"$scratch/large.out" 2>&1
	local code=$?
	cat "$scratch/large.out"
	((code == 1)) && grep -qE 'resnet50 with batch 2048 and images of side 224 needs [0-9]+ MiB, and [0-9]+ of .* [1-9][0-9]* MiB are free: a batch of about [1-9][0-9]* fits' \
		"$scratch/large.out"
}
check "a batch that memory cannot hold is refused, with one that fits" too_large

dies() { # --comm
	local comm=$1 name=dies-$1
	train "$name" 2 cuda --steps 100000 --schedule constant --lr 1e-4 &
	local run=$! victim command
	await_line 3 '"event": "step"' "$scratch/$name.jsonl" || { kill "$run"; tell "$name"; return 1; }
	for victim in /proc/[0-9]*; do # one of the ranks
		mapfile -d '' -n 4 command <"$victim/cmdline"
		[[ ${command[*]} != "$program train --data $data" ]] || break
	done 2>/dev/null
	kill -9 "${victim#/proc/}"
	wait "$run" && return 1
	grep -E 'rank [01] on .* is lost: its connection closed' "$scratch/$name.out" && return 0
	tell "$name"
	return 1
}
check "a rank that dies is named by the other" dies ucx
[[ ! $nccl ]] || check "so is one whose sums are NCCL's, which is aborted" dies nccl
finish
