#!/bin/sh
# gannet export to ONNX: every network by onnxruntime, where python3 has it, to 1e-4 of the largest logit; else only the structure of the
# files, by a decoder of our own: messages, sizes of tensors, and that every value is made before it is read.
set -u
. "$GN_SOURCE/tests/train/common.sh"
probe=$GN_BUILD/tests/train/onnx_probe
checker=$GN_SOURCE/tests/train/onnx_check
has_runtime=$(python3 -c 'import onnxruntime' 2>/dev/null && echo 1)

# sides that are not the default one: vgg16's last maps are of side 3, and its adaptive pooling wants 7
for model in $("$probe"); do
	case $model in
	lenet) side=28 ;;
	resnet18 | resnet20) side=32 ;;
	vgg16) side=96 ;;
	*) side=64 ;;
	esac
	mkdir "$dir/$model"
	check "$model: written" timeout -k 5 300 "$probe" "$model" $side "$dir/$model"
	for file in plain folded; do
		check "$model: $file.onnx is well formed" timeout -k 5 300 python3 "$checker" structure "$dir/$model/$file.onnx"
	done
	if [ "$has_runtime" ]; then
		check "$model: onnxruntime answers alike" timeout -k 5 300 python3 "$checker" run "$dir/$model"
	else
		skip "$model: onnxruntime answers alike" 'python3 has no onnxruntime: pip install onnxruntime'
	fi
	case $model in
	resnet50)
		expect 0 '^operators Add,BatchNormalization,Conv,Flatten,Gemm,GlobalAveragePool,MaxPool,Relu$' "$model: its operators" \
			python3 "$checker" structure "$dir/$model/plain.onnx"
		expect 0 '^operators Add,Cast,Conv,Flatten,Gemm,GlobalAveragePool,MaxPool,Mul,Relu,Sub$' "$model: batch norm is folded" \
			python3 "$checker" structure "$dir/$model/folded.onnx"
		;;
	mobilenet_v2)
		expect 0 '^operators Add,BatchNormalization,Clip,Conv,Flatten,Gemm,GlobalAveragePool$' "$model: its operators" \
			python3 "$checker" structure "$dir/$model/plain.onnx"
		;;
	lenet)
		head -c 1000 "$dir/$model/plain.onnx" >"$dir/short.onnx"
		expect 1 'extends beyond' 'a file that is cut is found' python3 "$checker" structure "$dir/short.onnx"
		python3 -c 'import sys; f = open(sys.argv[1], "r+b"); f.write(bytes(4))' "$dir/$model/logits.f32"
		if [ "$has_runtime" ]; then
			expect 1 'differs by' 'another logit is found' python3 "$checker" run "$dir/$model"
		else
			skip 'another logit is found' 'python3 has no onnxruntime: pip install onnxruntime'
		fi
		;;
	esac
	rm -r "${dir:?}/$model"
done

check 'digits are packed' pack_digits
check 'a network of three channels' "$gannet" train --data "$dir/train" --model resnet20 --batch 16 --steps 4 --ema 0.9 --threads 1 \
	--loader-threads 1 --checkpoint "$dir/run"
for how in '' ' --fold-batch-norm' ' --pixel-input' ' --ema'; do
	# shellcheck disable=SC2086 # options are words
	check "exported$how" "$gannet" export --checkpoint "$dir/run" --out "$dir/net${how#* --}.onnx"$how
	check 'well formed' python3 "$checker" structure "$dir/net${how#* --}.onnx"
done
expect 0 "^input input 1 \['batch', 3, 32, 32\]" 'the input is float' python3 "$checker" structure "$dir/net.onnx"
expect 0 "^output logits 1 \['batch', 10\]" 'so are logits' python3 "$checker" structure "$dir/net.onnx"
expect 0 "^input input 2 \['batch', 3, 32, 32\]" 'or pixels' python3 "$checker" structure "$dir/netpixel-input.onnx"
expect 0 '^model resnet20' 'the network is in the metadata' python3 "$checker" structure "$dir/net.onnx"
expect 0 '^preprocessing {.*"center_crop": 32' 'and the preprocessing' python3 "$checker" structure "$dir/net.onnx"
expect 0 '^class_names \["0", "1"' 'and the classes' python3 "$checker" structure "$dir/net.onnx"
expect 1 'differ' 'the average is another network' cmp "$dir/net.onnx" "$dir/netema.onnx"
check 'the same checkpoint gives the same bytes' sh -c '"$1" export --checkpoint "$2/run" --out "$2/again.onnx" && cmp "$2/again.onnx" "$2/net.onnx"' \
	sh "$gannet" "$dir"
expect 1 'exists already' 'no file is replaced' "$gannet" export --checkpoint "$dir/run" --out "$dir/net.onnx"
expect 2 'give FILE.safetensors or FILE.onnx' 'nor of another format' "$gannet" export --checkpoint "$dir/run" --out "$dir/w.pt"
expect 3 'net.onnx is an ONNX file: gannet reads safetensors, which gannet export --out FILE.safetensors writes' 'which is not read again' \
	"$gannet" train --data "$dir/train" --model resnet20 --steps 1 --init "$dir/net.onnx"
expect 2 'fold-batch-norm is of ONNX files' 'safetensors are not folded' "$gannet" export --checkpoint "$dir/run" --fold-batch-norm \
	--out "$dir/w.safetensors"
expect 2 'pixel-input is of ONNX files' 'and have no input' "$gannet" export --checkpoint "$dir/run" --pixel-input --out "$dir/w.safetensors"
expect 1 'No space left|File too large|cannot write' 'a full disk' sh -c 'ulimit -f 100; trap "" XFSZ
	exec "$1" export --checkpoint "$2/run" --out "$2/full.onnx"' sh "$gannet" "$dir"
check 'leaves nothing' sh -c '! ls "$1" | grep -q full' sh "$dir"
finish
