#!/bin/bash
# libgannet's loader by gannet_torch.data with numpy: order, pixels, states, memory, forks and what is refused. tests/frameworks/loader: with PyTorch.
set -u
. "$GN_SOURCE/tests/train/common.sh"
export PYTHONDONTWRITEBYTECODE=1 GANNET_LIBRARY="$GN_BUILD/libgannet.so.0" PYTHONPATH="$GN_SOURCE/src/bindings/torch" GANNET_LOG=error
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
for file in __init__ _library data; do
	check "$file.py compiles" python3 -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$PYTHONPATH/gannet_torch/$file.py"
done
python=python3
"$python" -c "import numpy" 2>/dev/null || python=/usr/bin/python3 # of the packages, behind another one in PATH
if ! "$python" -c "import numpy" 2>/dev/null; then
	skip 'batches in numpy' 'no numpy for python3: apt-get install python3-numpy'
	finish
	exit
fi
if [ "${GN_SANITIZED:-}" ]; then
	skip 'batches in numpy' 'python3 is not built with the sanitizer'
	finish
	exit
fi
check 'photographs' "$gannet" pack --out "$dir/photos" --synthetic 90 --classes 5 --size 90x70 --shard-bytes 60K
key=$dir/key
head -c 32 /dev/urandom >"$key" && chmod 600 "$key"
check 'the same, encrypted' "$gannet" pack --out "$dir/secret" --synthetic 90 --classes 5 --size 90x70 --encrypt "$key"
check 'the same on two disks' "$gannet" stage --from "$dir/photos" --to "$dir/disk1/photos:$dir/disk2/photos"
train() { # RANKS NAME OPTION...
	"$gannet" launch -n "$1" -- "$gannet" train --data "$dir/photos" --model lenet --side 64 --channels 3 --batch $((12 / $1)) --epochs 2 --lr 0 --seed 7 \
		--threads 1 --loader-threads 1 --log-samples "$dir/samples-$2" "${@:3}"
}
for ranks in 1 2 3; do check "what gannet train reads on $ranks" train $ranks $ranks; done
check "what it reads of balanced classes" train 1 balanced --sampling balanced
for name in order pixels formats states epochs soft balanced memory reuse ends shared forks shards refusals encrypted disks staged; do
	check "$name" timeout -k 5 300 "$python" "$GN_SOURCE/tests/lib/loader.py" "$dir" $name
done
finish
