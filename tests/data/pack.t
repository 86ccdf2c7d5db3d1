#!/bin/sh
# gannet pack on good input: folders and archives, the same bytes each time, class lists, PNG, made-up images.
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
digits=$GN_SOURCE/data/digits
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

value() { # KEY FILE: a number or string of a one-line JSON object
	sed -n "s/.*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/p" "$2"
}
same() { # KEY DATASET DATASET
	"$gannet" info --json "$2" >a.json && "$gannet" info --json "$3" >b.json &&
		[ "$(value "$1" a.json)" = "$(value "$1" b.json)" ]
}
holds() { # KEY VALUE DATASET
	"$gannet" info --json "$3" >a.json || return 1
	[ "$(value "$1" a.json)" = "$2" ] && return
	cat a.json
	return 1
}

check 'packs an archive' "$gannet" pack --out val --shard-bytes 200K "$digits/digits-val.tar.xz"
check 'with all samples' holds samples 1000 val
check 'in several shards' holds shards 4 val
check 'and nothing next to it' test "$(ls)" = "val
a.json" -o "$(ls)" = "a.json
val"
check 'on one thread' "$gannet" pack --out val1 --threads 1 --shard-bytes 200K "$digits/digits-val.tar.xz"
check 'gives the same bytes' diff -r val val1
mkdir tree && tar -C tree -xf "$digits/digits-val.tar.xz"
check 'packs a folder' "$gannet" pack --out val2 --shard-bytes 200K tree
check 'to the same bytes as the archive of it' diff -r val val2
check 'packs with another seed' "$gannet" pack --out val3 --seed 1 --shard-bytes 200K tree
check 'to another order' test "$(cat val/gannet-dataset.json)" != "$(cat val3/gannet-dataset.json)"

mkdir a b && cp -r tree/val/0 tree/val/1 a && cp -r tree/val/1 tree/val/2 b
check 'merges classes of two sources' "$gannet" pack --out merged a b
check 'without losing an image' holds samples 400 merged
check 'or doubling a class' holds classes 3 merged

mkdir inner && for c in 3 4 5; do tar -C "tree/val/$c" -cf "inner/n$c.tar" .; done
tar -C inner -cf outer.tar n3.tar n4.tar n5.tar
check 'packs an archive of one archive a class' "$gannet" pack --out nested outer.tar
check 'which become the classes' grep -q '"name": "n4", "samples": 100' nested/gannet-dataset.json

printf '%s\n' 9 5 unseen 2 >names
mkdir few && cp -r tree/val/9 tree/val/2 few && mkdir few/5
check 'takes the order of labels from a class file' "$gannet" pack --out listed --classes names few
check 'with classes that have no images' grep -q \
	'"name": "9", "samples": 100}, {"name": "5", "samples": 0}, {"name": "unseen", "samples": 0}, {"name": "2"' \
	listed/gannet-dataset.json

check 'makes images up' "$gannet" pack --out fake --synthetic 60 --classes 5 --size 40x56
check 'of the size asked for' holds width_min 56 fake
check 'and each class' holds classes 5 fake
check 'as often as asked' "$gannet" pack --out fake2 --threads 3 --synthetic 60 --classes 5 --size 40x56
check 'with the same result' diff -r fake fake2
check 'tells about a shard' "$gannet" info fake/shard-00000.h5
mkdir there
check 'uses an empty folder that is there' "$gannet" pack --out there tree
check 'with the same content' same digest val2 val
finish
