#!/bin/sh
# gannet pack --split: two datasets of disjoint images, the same share of each class, the same bytes each time.
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
digits=$GN_SOURCE/data/digits/digits-val.tar.xz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# names DATASET: the names of its images, in order of shards, and in the end how many there are of each class
names() {
	python3 - "$1" <<'PY'
import collections, glob, re, sys
names = [n for f in sorted(glob.glob(sys.argv[1] + "/*.h5")) for n in re.findall(rb"(?:val/)?([\w-]+)/([\w-]+\.(?:jpg|png))", open(f, "rb").read())]
for c, n in names:
    print(f"{c.decode()}/{n.decode()}")
PY
}
# compare NAMES-OF-ALL TRAIN VAL SHARE: together all, none twice, and of each class that share, rounded, at least one
compare() {
	python3 - "$@" <<'PY'
import collections, math, sys
whole, train, val = (open(f).read().split() for f in sys.argv[1:4])
assert len(set(train)) == len(train) and len(set(val)) == len(val) and val
assert not set(train) & set(val), sorted(set(train) & set(val))
assert sorted(train + val) == sorted(whole)
count = lambda names: collections.Counter(n.split("/")[0] for n in names)
for name, n in count(whole).items():
    want = min(max(math.floor(n * float(sys.argv[4]) + .5), 1), n - 1)
    assert count(val)[name] == want, (name, n, count(val)[name])
PY
}
# the documented rule in another language: the images with the least keys
by_rule() {
	python3 - "$@" <<'PY'
import collections, hashlib, math, sys
whole, val = (open(f).read().split() for f in sys.argv[1:3])
seed, share, prefix = sys.argv[3], float(sys.argv[4]), sys.argv[5]
classes = collections.defaultdict(list)
for n in whole:
    classes[n.split("/")[0]].append(n)
want = []
for names in classes.values():
    k = min(max(math.floor(len(names) * share + .5), 1), len(names) - 1)
    want += sorted(names, key=lambda n: hashlib.sha256(f"{seed}/{prefix}{n}".encode()).hexdigest()[:16])[:k]
assert sorted(want) == sorted(val)
PY
}

check 'everything in one dataset' "$gannet" pack --out whole "$digits"
names whole >whole.txt
expect 0 '900 in train, 100 in val' 'a tenth is held out' "$gannet" pack --out tenth --split val=0.1 --shard-bytes 100K "$digits"
names tenth/train >train.txt && names tenth/val >val.txt
check 'disjoint, by class, nothing lost' compare whole.txt train.txt val.txt 0.1
check 'by the rule in the manual' by_rule whole.txt val.txt 0 0.1 val/
check 'both can be read' "$gannet" verify tenth/train
check 'to the last byte' "$gannet" verify tenth/val
both='tenth is no packed dataset, but holds some: name one of them, tenth/train or tenth/val'
expect 3 "$both" 'the folder of both is none: info' "$gannet" info tenth
expect 3 "$both" 'verify' "$gannet" verify tenth
expect 3 "$both" 'preview' "$gannet" preview tenth --out no.png
expect 3 "$both" 'train' timeout -k 5 300 "$gannet" train --data tenth --model lenet --steps 1
expect 3 "$both" 'train --val' timeout -k 5 300 "$gannet" train --data tenth/train --val tenth --model lenet --steps 1
check 'a network' timeout -k 5 300 "$gannet" train --data tenth/train --model lenet --batch 16 --steps 1 --checkpoint run
expect 3 "$both" 'predict' timeout -k 5 300 "$gannet" predict --checkpoint run tenth
classes() { sed 's/.*"classes": \[//; s/"samples": [0-9]*//g; s/\].*//' "$1/gannet-dataset.json"; }
check 'the same classes in both' test "$(classes tenth/train)" = "$(classes tenth/val)"
check 'and nothing next to them' test "$(ls tenth)" = "train
val"
expect 0 '"split": ..train.: 900, "val": 100.' 'again, on one thread' "$gannet" pack --json --threads 1 --out again --split val=0.1 \
	--shard-bytes 100K "$digits"
check 'the same bytes' diff -r tenth again
check 'by another seed' "$gannet" pack --out other --seed 7 --split test=0.25 "$digits"
names other/train >train.txt && names other/test >test.txt
check 'other images' compare whole.txt train.txt test.txt 0.25
check 'by the same rule' by_rule whole.txt test.txt 7 0.25 val/

# few images: classes of 1, 2 and 3
tar -xf "$digits"
mkdir -p few/a few/b few/c
cp val/0/0_00761.jpg few/a/only.jpg
cp val/1/1_00772.jpg few/b/1.jpg && cp val/2/2_00791.jpg few/b/2.jpg
for i in 1 2 3; do cp "val/3/3_0070$i.jpg" few/c/$i.jpg; done
expect 0 '1 class has a single image' 'a class of one image stays whole' "$gannet" pack --out tiny --split val=0.01 few
names tiny/train >train.txt && names tiny/val >val.txt
check 'one of two, one of three' test "$(sed 's,/.*,,' val.txt | sort | tr '\n' ' ')" = 'b c '
check 'the others are in train' test "$(sed 's,/.*,,' train.txt | sort | tr '\n' ' ')" = 'a b c c '
mkdir -p twins/a twins/b
for i in 1 2 3 4; do cp val/0/0_00761.jpg twins/a/$i.jpg && cp val/1/1_00772.jpg twins/b/$i.jpg; done
expect 0 '2 images of val have the same bytes as one of train' 'duplicates on both sides are reported' \
	"$gannet" pack --out twin --split val=0.25 twins
check 'made up ones are split, too' "$gannet" pack --out fake --synthetic 40 --classes 4 --size 16x16 --split val=0.5
check 'in halves' grep -q '"samples": 20, "seed"' fake/val/gannet-dataset.json

# a pack that failed keeps what it has decoded and goes on
cp -r val bad && echo no picture >bad/4/broken.jpg
expect 3 'tmp-pack keeps the good images' 'a bad image' "$gannet" pack --out resumed --split val=0.1 bad
expect 0 'resuming an earlier pack: 1000 images' 'is skipped' "$gannet" pack --out resumed --split val=0.1 --skip-bad bad
check 'a pack of the same that was never interrupted' "$gannet" pack --out fresh --split val=0.1 --skip-bad bad
check 'has the same bytes' diff -r resumed fresh

expect 2 'give NAME=FRACTION' 'a split without a fraction' "$gannet" pack --out no --split val few
expect 2 'give --split once' 'two splits' "$gannet" pack --out no --split val=0.1 --split test=0.1 few
expect 2 'between 0 and 1' 'of everything' "$gannet" pack --out no --split val=1 few
expect 2 "beside 'train'" 'a name that is taken' "$gannet" pack --out no --split train=0.1 few
expect 2 "beside 'train'" 'a name with a slash' "$gannet" pack --out no --split ../val=0.1 few
mkdir -p ones/a ones/b && cp few/a/only.jpg ones/a && cp few/b/1.jpg ones/b
expect 3 'no class has two images' 'nothing to hold out' "$gannet" pack --out no --split val=0.1 ones
check 'none of these leaves anything' test ! -e no -a ! -e no.tmp-pack
finish
