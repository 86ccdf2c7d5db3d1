#!/bin/bash
# Archives, lists and folders as tar and spreadsheets have them: concatenated archives, hard links, names that come twice, sources that are
# the same, parts of datasets, class lists with marks of other systems, and files of foreign kinds, which are named.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
tar -xf "$GN_SOURCE/data/digits/digits-val.tar.xz"
mapfile -t images < <(find . -name '*.jpg' | sort)
image() { cp "${images[$1]}" "$2"; }
names_in() { # DATASET: its classes, each with its number of images
	python3 -c 'import json, sys; m = json.load(open(sys.argv[1] + "/gannet-dataset.json")); print(*(c["name"] + " " + str(c["samples"]) for c in m["classes"]))' "$1"
}
holds() { # DATASET TEXT
	[[ $(names_in "$1") == "$2" ]] || { names_in "$1"; return 1; }
}
# --- archives ---
mkdir -p one/a one/b two/a two/c
image 1 one/a/1.jpg && image 2 one/b/2.jpg && image 3 two/c/3.jpg && image 4 two/a/4.jpg
tar -C one -cf one.tar a b && tar -C two -cf two.tar a c
cat one.tar two.tar >both.tar
gzip -k one.tar && gzip -k two.tar && cat one.tar.gz two.tar.gz >both.tar.gz
expect 0 '4 images of 3 classes' 'concatenated archives' "$gannet" pack --out both both.tar
check 'are read to the end' holds both "a 2 b 1 c 1"
expect 0 '4 images of 3 classes' 'also compressed ones' "$gannet" pack --out both-gz both.tar.gz
check 'with the same images' diff -r both both-gz
image 5 two/a/1.jpg && tar -C two -cf later.tar a/1.jpg && cat one.tar later.tar >twice.tar
expect 0 'a/1.jpg is more than once in its archive: the last one counts' 'a name that comes twice' "$gannet" pack --out twice twice.tar
mkdir unpacked && tar -C unpacked --ignore-zeros -xf twice.tar
check 'packs' "$gannet" pack --out unpacked.out unpacked
check 'is what tar unpacks' diff -r twice unpacked.out
cat one.tar.gz two.tar >mixed.tar
expect 3 'mixed.tar: behind its compressed data, from byte [0-9]* on, there is something else' 'another kind of archive behind a compressed one' \
	"$gannet" pack --out out mixed.tar
(cat one.tar.gz && head -c 3000 /dev/zero) >padded.tar
expect 0 '2 images of 2 classes' 'zeros behind it are none' "$gannet" pack --out padded padded.tar
cat one.tar "$gannet" >behind.tar
expect 3 'behind.tar is not a tar archive, or damaged' 'what lies behind an archive and is none' "$gannet" pack --out out behind.tar

mkdir -p links/a links/b && image 1 links/a/1.jpg && image 2 links/b/2.jpg && ln links/a/1.jpg links/b/same.jpg && ln links/a/1.jpg links/a/again.jpg
tar -C links -cf links.tar a b
expect 0 '4 images of 2 classes' 'hard links of an archive' "$gannet" pack --out links.out links.tar
check 'a folder with them packs' "$gannet" pack --out folder.out links
check 'are images of their own' diff -r links.out folder.out
expect 0 'has the same bytes as one of another class, such as a/.*jpg and b/same.jpg' 'the same bytes in two classes' "$gannet" pack --out out links
rm -r out
python3 - <<'P'
import io, tarfile
with tarfile.open("loose.tar", "w") as t:
    for name in ("a/1.jpg", "b/2.jpg"):
        data = open("links/" + name, "rb").read(); i = tarfile.TarInfo(name); i.size = len(data); t.addfile(i, io.BytesIO(data))
    for name, to in (("b/x.jpg", "a/1.jpg"), ("b/y.jpg", "./b/x.jpg"), ("b/z.jpg", "a/none.jpg")):
        i = tarfile.TarInfo(name); i.type = tarfile.LNKTYPE; i.linkname = to; t.addfile(i)
P
expect 3 'loose.tar: b/z.jpg: a hard link to a file that is no image of the archive' 'a hard link to nothing' "$gannet" pack --out out loose.tar
expect 0 '4 images of 2 classes.* 1 skipped' 'is skipped, one to another link is not' "$gannet" pack --skip-bad --out loose loose.tar
expect 2 'the sources links and ./links are the same' 'a source that is given twice' "$gannet" pack --out out links ./links

# --- lists and names ---
mkdir -p flat && for i in 1 2 3; do image $i flat/$i.jpg; done
image 4 'flat/a,b.jpg'
printf '\xef\xbb\xbf"name","class"\r\n"1.jpg"," cat"\r\n2.jpg, dog \r\n3.jpg,dog\r\n"a,b.jpg",dog' >list.csv
check 'a list of a spreadsheet' "$gannet" pack --out listed --labels list.csv flat
check 'has the classes that it says' holds listed " cat 1 dog 3"
printf '1.jpg,1\n2.jpg,2\n3.jpg,3\n"a,b.jpg",4\n' >each.csv
expect 0 'there are as many classes as images' 'as many classes as images' "$gannet" pack --out each --labels each.csv flat
printf '1.jpg,cat,0.7\n' >third.csv
expect 3 'third.csv, line 1 has 3 fields, not NAME,CLASS' 'a third column' "$gannet" pack --out out --labels third.csv flat
printf '1.jpg,Cat\n2.jpg,cat\n3.jpg,cat\n"a,b.jpg",dog\n' >case.csv
expect 0 "the classes 'Cat' and 'cat' differ only in blanks or case" 'names that differ in case' "$gannet" pack --out case --labels case.csv flat
printf '1.jpg," cat"\n2.jpg,cat\n3.jpg,c at\n"a,b.jpg",dog\n' >blank.csv
expect 0 "the classes ' cat' and 'c at' differ only in blanks or case" 'names that differ in blanks' "$gannet" pack --out blank --labels blank.csv flat
expect 0 'images of each class: Cat 1, cat 2, dog 1' 'classes are told' "$gannet" pack --out case2 --labels case.csv flat
printf '\xef\xbb\xbfb \r\n\ta\r\n' >classes.txt
check 'a list of classes with a byte order mark and CR LF' "$gannet" pack --out ordered --classes classes.txt links
check 'is taken as it reads' holds ordered "b 2 a 2"
composed=$(printf 'pf\xc3\xa4l') decomposed=$(printf 'pfa\xcc\x88l')
mkdir -p "nfc/$composed" nfc/x "nfd/$decomposed" nfd/x && for f in "nfc/$composed" nfc/x "nfd/$decomposed" nfd/x; do image 1 "$f/1.jpg"; image 2 "$f/2.jpg"; done
check 'a dataset of composed letters' "$gannet" pack --out nfc.out nfc
check 'a dataset of decomposed letters' "$gannet" pack --out nfd.out nfd
expect 3 'pf.xc3.xa4l.*pfa.xcc.x88l' 'names that look alike are shown by their bytes' \
	"$gannet" train --data nfc.out --val nfd.out --model lenet --batch 1 --steps 1
expect 3 'pfa.xcc.x88l. here and .*pf.xc3.xa4l. there' 'also where a class is looked for' "$gannet" pack --out out --classes nfc.out nfd
printf '\xef\xbb\xbf1\r\n2\r\n3\r\n' >weights.txt
check 'weights of classes with a byte order mark' "$gannet" train --data both --model lenet --batch 1 --steps 1 --class-weights weights.txt
printf '\xef\xbb\xbfmodel = lenet\r\nbatch = 2\r\nsteps = 1\r\n' >options
check 'options with a byte order mark' "$gannet" train --options options --data both
for parts in "training_set test_set" "seg_train seg_test" "train-images val-images" "Training Testing"; do
	read -r one two <<<"$parts"
	rm -rf parts && mkdir parts && cp -r links "parts/$one" && cp -r links "parts/$two"
	expect 3 'parts holds the parts of a dataset' "$one and $two are parts" "$gannet" pack --out out parts
done
rm -rf parts && mkdir parts && cp -r links/a parts/train && cp -r links/b parts/sets
check 'a class may be called train' "$gannet" pack --out train.out parts

# --- foreign kinds ---
kind() { # NAME TEXT BYTES: a file of these bytes among images is called TEXT
	printf '%b' "$3" >links/a/foreign.jpg && head -c 100 /dev/zero >>links/a/foreign.jpg
	expect 3 "a/foreign.jpg: is $2" "$1 is named" "$gannet" pack --out out links
	rm -rf out.tmp-pack links/a/foreign.jpg
}
kind HEIC 'a HEIC image.*convert it' '\0\0\0\x18ftypheic'
kind AVIF 'an AVIF image.*convert it' '\0\0\0\x1cftypavif'
kind 'JPEG 2000' 'a JPEG 2000 image.*convert it' '\0\0\0\x0cjP  \r\n\x87\n'
kind GIF 'a GIF image.*convert it' 'GIF89a'
kind WebP 'a WebP image.*convert it' 'RIFF\x10\0\0\0WEBPVP8 '
kind SVG 'an SVG image' '<?xml version="1.0"?>\n<svg xmlns="x">'
kind HTML 'an HTML page' '<!DOCTYPE html><html>'
kind 'a git-lfs pointer' 'a git-lfs pointer' 'version https://git-lfs.github.com/spec/v1\noid'
source_kind() { # NAME TEXT BYTES: as a source
	printf '%b' "$3" >foreign && head -c 100 /dev/zero >>foreign
	expect 3 "foreign is $2, not a tar archive" "$1 is no source" "$gannet" pack --out out foreign
}
source_kind 7z 'a 7z archive' '7z\xbc\xaf\x27\x1c'
source_kind RAR 'a RAR archive' 'Rar!\x1a\x07\x00'
source_kind Parquet 'a Parquet file' 'PAR1'
source_kind RecordIO 'a RecordIO file' '\x0a\x23\xd7\xce'
source_kind TFRecord 'a TFRecord file' '\x02\0\0\0\0\0\0\0\x78\x27\x0b\x34'
mkdir -p web && image 1 web/000.jpg && echo 3 >web/000.cls && tar -C web -cf web.tar 000.jpg 000.cls
expect 3 '000.cls: a label of a webdataset' 'a tar of webdataset' "$gannet" pack --out out web.tar
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 102\n' >lfs.safetensors
expect 3 'lfs.safetensors is not a safetensors file but a git-lfs pointer' 'weights that are a git-lfs pointer' \
	"$gannet" train --data both --model lenet --batch 1 --steps 1 --init lfs.safetensors
printf '{"metadata": {}, "weight_map": {"conv1.weight": "model-00001-of-00002.safetensors"}}' >index.safetensors
expect 3 'index.safetensors is not a safetensors file but JSON: an index' 'weights that are an index' \
	"$gannet" train --data both --model lenet --batch 1 --steps 1 --init index.safetensors
finish
