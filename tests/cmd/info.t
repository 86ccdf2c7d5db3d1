#!/bin/sh
# gannet info on what it does not know: what that is, and what info takes.
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

is() { # KIND FILE
	expect 3 "$2 is $1: info tells about a folder that gannet pack made" "$1" timeout 20 "$gannet" info "$2"
}
: >empty && is 'an empty file' empty
echo 'hello' >note && is 'text' note
echo '{"a": 1}' >some.json && is 'JSON' some.json
printf '\001\002\003\004' >odd && is 'of a kind unknown here' odd
cp "$GN_SOURCE/data/digits/digits-val.tar.xz" . && is 'compressed by xz' digits-val.tar.xz
tar -cf plain.tar note && is 'a tar archive' plain.tar
gzip -k note && is 'compressed by gzip' note.gz
is 'a program or library' "$gannet"
tar -xf digits-val.tar.xz
is 'a JPEG image' "$(find . -name '*.jpg' | head -n 1)"
mkdir void && is 'a folder without gannet-dataset.json or a checkpoint' void
mkfifo pipe && is 'no file' pipe
check 'a checkpoint is made' sh -c '"$1" pack --out two --synthetic 2 --classes 2 --size 8x8 &&
	timeout 60 "$1" train --data two --model lenet --batch 2 --steps 1 --checkpoint run &&
	"$1" export --checkpoint run --out model.safetensors' sh "$gannet"
is 'a safetensors file' model.safetensors
expect 0 '^shard ' 'a shard is told about' "$gannet" info two/shard-00000.h5
head -c 2000 two/shard-00000.h5 >cut.h5
expect 3 'cut.h5.*(cut short|damaged)' 'one cut short is called so' "$gannet" info cut.h5
expect 0 '^floor at 20.0 GB/s and 100.0 GFLOP/s: [0-9.]+ ms' 'a plan of resnet18, with its floor' \
	"$gannet" info --plan resnet18 --batch 4 --image-size 64 --gb-per-s 20 --gflop-per-s 100
check 'ResNet-50 computes 4.089 GMAC an image and 3 times that in training, less the gradient of images' sh -c '
	"$1" info --plan resnet50 --batch 1 --gb-per-s 20 --gflop-per-s 100 --json >plan.json &&
	"$1" info --plan resnet50 --batch 1 --gb-per-s 20 --gflop-per-s 100 --json --inference >rest.json &&
	grep -q "\"flops\": 817[0-9]\{7\}," rest.json && grep -q "\"flops\": 242[0-9]\{8\}," plan.json' sh "$gannet"
check 'no layout is changed on the way in training' sh -c '! grep -q reorder plan.json'
expect 2 'either a PATH or' 'neither path nor plan' "$gannet" info
expect 2 'either a PATH or' 'both' "$gannet" info --plan lenet two
expect 2 'larger images|smaller than' 'images too small for it' "$gannet" info --plan lenet --image-size 10
expect 3 'nowhere' 'nothing there' "$gannet" info nowhere
finish
