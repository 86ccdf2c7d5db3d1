#!/bin/sh
# gannet info on what it does not know: what that is, and what info takes.
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

is() { # KIND FILE
	expect 3 "$2 is $1: info describes a folder written by gannet pack" "$1" timeout -k 5 300 "$gannet" info "$2"
}
: >empty && is 'an empty file' empty
echo 'hello' >note && is 'text' note
echo '{"a": 1}' >some.json && is 'JSON' some.json
printf '\001\002\003\004' >odd && is 'of unknown type' odd
cp "$GN_SOURCE/data/digits/digits-val.tar.xz" . && is 'compressed by xz' digits-val.tar.xz
tar -cf plain.tar note && is 'a tar archive' plain.tar
gzip -k note && is 'compressed by gzip' note.gz
is 'a program or library' "$gannet"
tar -xf digits-val.tar.xz
is 'a JPEG image' "$(find . -name '*.jpg' | head -n 1)"
mkdir void && is 'a folder without gannet-dataset.json or a checkpoint' void
mkfifo pipe && is 'no file' pipe
check 'a checkpoint is made' sh -c '"$1" pack --out two --synthetic 2 --classes 2 --size 8x8 &&
	timeout -k 5 300 "$1" train --data two --model lenet --batch 2 --steps 1 --checkpoint run &&
	"$1" export --checkpoint run --out model.safetensors' sh "$gannet"
is 'a safetensors file' model.safetensors
expect 0 '^shard ' 'a shard is told about' "$gannet" info two/shard-00000.h5
head -c 2000 two/shard-00000.h5 >cut.h5
expect 3 'cut.h5.*(truncated|damaged)' 'one cut short is called so' "$gannet" info cut.h5
expect 0 '^floor at 20.0 GB/s and 100.0 GFLOP/s: [0-9.]+ ms' 'a plan of resnet18, with its floor' \
	"$gannet" info --plan resnet18 --batch 4 --image-size 64 --gb-per-s 20 --gflop-per-s 100
check 'ResNet-50 computes 4.089 GMAC an image and 3 times that in training, less the gradient of images' sh -c '
	"$1" info --plan resnet50 --batch 1 --gb-per-s 20 --gflop-per-s 100 --json >plan.json &&
	"$1" info --plan resnet50 --batch 1 --gb-per-s 20 --gflop-per-s 100 --json --inference >rest.json &&
	grep -q "\"flops\": 817[0-9]\{7\}," rest.json && grep -q "\"flops\": 242[0-9]\{8\}," plan.json' sh "$gannet"
check 'no layout is changed on the way in training' sh -c '! grep -q reorder plan.json'
if grep -q avx512_bf16 /proc/cpuinfo; then
	# AMX wants layouts of its own, and scratch memory.
	export ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
	check 'in bf16 it moves 0.5 to 0.6 of the bytes, in less than 0.6 of the memory, and changes no layout' sh -c '
		"$1" info --plan resnet50 --batch 16 --gb-per-s 20 --gflop-per-s 100 --json >wide.json &&
		"$1" info --plan resnet50 --batch 16 --gb-per-s 20 --gflop-per-s 100 --json --precision bf16 >narrow.json &&
		! grep -q reorder narrow.json && for key in bytes arena_bytes; do
			a=$(sed -n "s/.*, \"$key\": \([0-9]*\),.*/\1/p" wide.json)
			b=$(sed -n "s/.*, \"$key\": \([0-9]*\),.*/\1/p" narrow.json)
			test "$b" -lt $((a * 6 / 10)) && test "$b" -gt $((a * 4 / 10)) || exit 1
		done' sh "$gannet"
else
	expect 1 'no instructions for bfloat16' 'a plan in bf16 is refused here' "$gannet" info --plan resnet50 --precision bf16
fi
# meshes: times by the roofline, so that they are the same everywhere
of_mesh() { "$gannet" info --plan vgg16 --image-size 64 --classes 10 --gb-per-s 20 --gflop-per-s 100 --link-gbit 0.1 "$@"; }
expect 0 '^  data 1: node1.2. -> node1.3.$' 'the mesh, pipelines within nodes' \
	of_mesh --parallel data=2,pipeline=2 --nodes 2 --ranks-per-node 2
expect 0 '^step [0-9.]+ ms, [0-9.]+ images/s; bubble [0-9.]+ %, sums [0-9.]+ ms by [a-z-]+, [0-9.]+ MB a step between nodes' 'and its step' \
	of_mesh --parallel pipeline=2 --nodes 4
check 'bytes, cuts and memory of a pipeline as its formulas have them' sh -c '
	"$1" info --plan vgg16 --image-size 64 --classes 10 --gb-per-s 20 --gflop-per-s 100 --link-gbit 0.1 --batch 32 --micro-batches 4 \
		--nodes 4 --parallel pipeline=2 --cut features.17 --json >mesh.json &&
	"$1" info --plan vgg16 --image-size 64 --classes 10 --gb-per-s 20 --gflop-per-s 100 --link-gbit 0.1 --batch 32 --micro-batches 4 \
		--nodes 4 --parallel auto --pipe-schedule gpipe --json >auto.json && python3 -c "
import json
p = json.load(open(\"mesh.json\"))
a, b = p[\"stages\"]
out = 256 * 8 * 8 * 4 * 32
assert p[\"data\"] == 2 and p[\"cut\"] == \"features.17\" == b[\"first\"], p
assert a[\"output_bytes\"] == out and b[\"output_bytes\"] == 0 and a[\"crosses\"] and not b[\"crosses\"], p
assert abs(b[\"sum_bytes\"] / 4 - (134301514 - 1735488)) < 100, p
assert abs(p[\"network_bytes\"] - 2 * (2 * out + a[\"sum_bytes\"] + b[\"sum_bytes\"])) < 1000, p
assert b[\"memory_bytes\"] > 4 * 4 * 132566026 > a[\"memory_bytes\"], p
assert p[\"step_ms\"] > p[\"sum_ms\"] > 8e3 * b[\"sum_bytes\"] / 1e8, p
rows = json.load(open(\"auto.json\"))[\"meshes\"]
assert [r[\"step_ms\"] for r in rows] == sorted(r[\"step_ms\"] for r in rows), rows
rows.sort(key=lambda r: (r[\"tensor\"], r[\"pipeline\"]))
sliced = [r for r in rows if r[\"tensor\"] > 1]
rows = [r for r in rows if r[\"tensor\"] == 1]
assert [(r[\"data\"], r[\"pipeline\"]) for r in rows] == [(4, 1), (2, 2), (1, 4)], rows
assert [(r[\"data\"], r[\"pipeline\"], r[\"tensor\"]) for r in sliced][:2] == [(2, 1, 2), (1, 2, 2)] and sliced[-1][\"tensor\"] == 4, sliced
assert all(r[\"batch\"] * r[\"data\"] == 128 for r in sliced), sliced
assert all(len(r[\"cut\"].split(\",\")) == r[\"pipeline\"] - 1 for r in rows[1:]) and rows[0][\"bubble\"] < 1e-9, rows
assert rows[2][\"sum_ms\"] == 0 and rows[1][\"images_per_s\"] >= p[\"images_per_s\"] * 0.95, rows
assert [r[\"batch\"] * r[\"data\"] for r in rows] == [128, 128, 128] and [r[\"micro_batches\"] for r in rows] == [4, 8, 16], rows
"' sh "$gannet"
expect 0 '^ +1 +4 .* [a-z0-9.]+,[a-z0-9.]+,[a-z0-9.]+( +<- fastest)?$' 'all meshes of four ranks' of_mesh --parallel auto --nodes 4
expect 0 'warning: options without effect: --nodes, which needs --parallel$' 'options without effect are warned of' "$gannet" info --plan lenet --nodes 4
fastest() { of_mesh --parallel auto --nodes 4 | awk '/images.s/ { next } /<- fastest/ { marked++; bad += NR != 2 } /^all have/ { exit } $4 + 0 < last { bad++ } { last = $4 + 0 }
	END { exit marked != 1 || bad }'; }
check 'the fastest first, and marked' fastest
expect 0 '^step ' 'with what runs here' "$gannet" info --plan lenet --parallel pipeline=2 --nodes 2
expect 2 'features.18: .*no layer.*places near it: features.[0-9]+,features' 'a cut that is none' \
	of_mesh --parallel pipeline=2 --nodes 2 --cut features.18
expect 2 '2 names for 2 stages' 'too many cuts' of_mesh --parallel pipeline=2 --nodes 2 --cut features.7,features.17
expect 2 'cuts of its own' 'cuts for all meshes' of_mesh --parallel auto --cut features.17
expect 2 '4 ranks cannot be divided by pipeline=3' 'a mesh of other ranks' of_mesh --parallel pipeline=3
expect 2 'micro-batches 5 does not divide --batch 32' 'micro-batches that do not fit' of_mesh --parallel pipeline=2 --micro-batches 5
expect 2 '(at most|stages)' 'more stages than pieces' "$gannet" info --plan lenet --parallel pipeline=64 --nodes 64
check 'tensor groups, in pipelines and without' sh -c '
	of() { "$@" --gb-per-s 20 --gflop-per-s 100 --link-gbit 0.1 --batch 32 --micro-batches 4 --nodes 2 --ranks-per-node 2 --json; }
	of "$1" info --plan vgg16 --image-size 64 --classes 10 --parallel data=2,tensor=2 >slices.json &&
	of "$1" info --plan vgg16 --image-size 64 --classes 10 --parallel pipeline=2,tensor=2 --cut features.17 >both.json &&
	of "$1" info --plan vgg16 --image-size 64 --classes 10 --parallel tensor=4 >spread.json && python3 -c "
import json
s, b, w = (json.load(open(n + \".json\")) for n in (\"slices\", \"both\", \"spread\"))
whole = 134301514 * 4
assert s[\"data\"] == 2 and s[\"tensor\"] == 2 and 0.5 <= s[\"stages\"][0][\"param_bytes\"] / whole < 0.51, s
assert s[\"stages\"][0][\"exchange_bytes\"] > 0 and s[\"stages\"][0][\"exchange_ms\"] > 0, s
assert abs(sum(t[\"param_bytes\"] for t in b[\"stages\"]) / s[\"stages\"][0][\"param_bytes\"] - 1) < 0.01, b
out = 256 * 8 * 8 * 4 * 32
assert b[\"stages\"][0][\"output_bytes\"] == out and abs(b[\"network_bytes\"] - 2 * 2 * out) < 1000, b
assert 0.24 < w[\"stages\"][0][\"param_bytes\"] / whole < 0.27 and w[\"network_bytes\"] > 0, w
assert w[\"step_ms\"] > 1e3 * w[\"network_bytes\"] / 4 / 12.5e6, w
"' sh "$gannet"
check 'schedules without a pause, and recomputation' sh -c '
	of() { "$@" --gb-per-s 20 --gflop-per-s 100 --batch 32 --micro-batches 4 --nodes 2 --parallel pipeline=2 --cut features.17 --json; }
	of "$1" info --plan vgg16 --image-size 64 --classes 10 >sync.json && of "$1" info --plan vgg16 --image-size 64 --classes 10 --recompute >again.json &&
	of "$1" info --plan vgg16 --image-size 64 --classes 10 --pipe-schedule pipedream >dream.json &&
	of "$1" info --plan vgg16 --image-size 64 --classes 10 --pipe-schedule decoupled >far.json && python3 -c "
import json
s, a, d, f = (json.load(open(n + \".json\")) for n in (\"sync\", \"again\", \"dream\", \"far\"))
first = [x[\"stages\"][0] for x in (s, a)]
assert abs(first[1][\"backward_ms\"] - first[0][\"backward_ms\"] - first[0][\"forward_ms\"]) < 0.01 and first[1][\"memory_bytes\"] < first[0][\"memory_bytes\"], first
assert a[\"stages\"][1][\"backward_ms\"] == s[\"stages\"][1][\"backward_ms\"], a
slow = max(4 * (t[\"forward_ms\"] + t[\"backward_ms\"]) for t in d[\"stages\"])
assert abs(d[\"step_ms\"] / slow - 1) < 0.02 and abs(f[\"step_ms\"] / slow - 1) < 0.02 and d[\"bubble\"] < s[\"bubble\"], (d, f, slow)
assert d[\"stages\"][0][\"memory_bytes\"] > f[\"stages\"][0][\"memory_bytes\"], (d, f)
"' sh "$gannet"
expect 2 'compares meshes that train alike: give the mesh with --pipe-schedule pipedream' 'auto without a pause' of_mesh --parallel auto --pipe-schedule pipedream
expect 2 'cut is of pipelines' 'a cut of tensor groups' of_mesh --parallel tensor=4 --nodes 4 --cut features.17
expect 2 'lenet has no layer that so many ranks divide' 'channels that do not divide' "$gannet" info --plan lenet --parallel tensor=7 --nodes 7
expect 2 'either a PATH,' 'neither path nor plan' "$gannet" info
expect 2 'either a PATH,' 'both' "$gannet" info --plan lenet two
expect 2 'larger images|smaller than' 'images too small for it' "$gannet" info --plan lenet --image-size 10
expect 3 'nowhere' 'nothing there' "$gannet" info nowhere

# a machine of two NUMA nodes, a GPU on each, the network on the first, as lstopo writes it
node() { # NUMBER PU: a package, left open
	echo "<object type='Package' os_index='$1' cpuset='$2' complete_cpuset='$2' nodeset='$2' complete_nodeset='$2' gp_index='1$1'>
	<object type='NUMANode' os_index='$1' cpuset='$2' complete_cpuset='$2' nodeset='$2' complete_nodeset='$2' gp_index='2$1'/>
	<object type='PU' os_index='$1' cpuset='$2' complete_cpuset='$2' nodeset='$2' complete_nodeset='$2' gp_index='3$1'/>
	<object type='Bridge' gp_index='4$1' bridge_type='0-1' depth='0' bridge_pci='000$1:[00-0f]'>
	<object type='PCIDev' gp_index='5$1' pci_busid='000$1:01:00.0' pci_type='0302 [10de:2330] [0000:0000] a1' pci_link_speed='1'/>"
}
{
	echo "<topology version='2.0'><object type='Machine' os_index='0' cpuset='0x3' complete_cpuset='0x3' allowed_cpuset='0x3' nodeset='0x3'
	complete_nodeset='0x3' allowed_nodeset='0x3' gp_index='1'>"
	node 0 0x1
	echo "<object type='PCIDev' gp_index='60' pci_busid='0000:02:00.0' pci_type='0200 [15b3:1017] [0000:0000] 00' pci_link_speed='1'>
	<object type='OSDev' gp_index='61' name='mlx5_0' osdev_type='3'/></object></object></object>"
	node 1 0x2
	echo '</object></object></object></topology>'
} >two.xml
expect 0 '^GPU .*NUMA node 1, PCI 0001:01:00.0; mlx5_0: other NUMA node$' 'a described machine: what is far from what' \
	"$gannet" info --topology two.xml
expect 0 '^rank .*0 of 2: processors 0 .*GPU 0000:01:00.0 .*mlx5_0 .same PCI root' 'and what its ranks should have' \
	"$gannet" info --topology two.xml
check 'the same as JSON' sh -c '"$1" info --topology --json two.xml | python3 -c "
import json, sys
t = json.load(sys.stdin)
assert [g[\"nearness\"][\"mlx5_0\"] for g in t[\"gpus\"]] == [\"same PCI root\", \"other NUMA node\"], t
assert [r[\"processors\"] for r in t[\"ranks\"]] == [\"0\", \"1\"], t"' sh "$gannet"
expect 0 '^rank .*2 of 3: processors [0-9]' 'this machine, for three ranks' "$gannet" info --topology --ranks 3
expect 0 'rank 0 on .*: processors 0 .NUMA node 0.' 'a measurement says at start where its ranks are' \
	env HWLOC_XMLFILE=two.xml taskset -c 0 timeout -k 5 300 "$gannet" bench allreduce -e 8 -n 5
expect 0 'WARN .* is unknown: hwloc cannot read' 'a machine that cannot be read ends nothing' env HWLOC_COMPONENTS=stop timeout -k 5 300 "$gannet" bench allreduce -e 8 -n 5
expect 3 "note: not a topology in hwloc's XML" 'text is no machine' "$gannet" info --topology note
finish
