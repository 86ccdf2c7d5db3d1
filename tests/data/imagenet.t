#!/bin/sh
# gannet pack on trees and archives as they are found: ImageNet as distributed, class levels, what lies about besides images.
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir src && tar -C src --strip-components=1 -xf "$GN_SOURCE/data/digits/digits-val.tar.xz"

classes() { # DATASET: "NAME COUNT" of each, in order
	sed -n 's/^ *{"name": "//; s/.*"classes": \[//p' "$1/gannet-dataset.json" | tr '{' '\n' |
		sed -n 's/.*"name": "\([^"]*\)", "samples": \([0-9]*\).*/\1 \2/p' | tr '\n' ' '
}
has_classes() { # DATASET "NAME COUNT ..."
	[ "$(classes "$1")" = "$2 " ] && return
	classes "$1"
	return 1
}
image() { # N: a JPEG file
	printf 'src/%d/%d_%05d.jpg' $(($1 % 10)) $(($1 % 10)) $((700 + $1 / 10))
}

# 8x8 pixels of C, M, Y, K = 200, 100, 50, 128 as Adobe inverts them: CMYK, and YCCK
base64 -d >cmyk.jpg <<'B64'
/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAQCwwODAoQDg0OEhEQExgoGhgWFhgxIyUdKDozPTw5Mzg3QEhcTkBEV0U3OFBtUVdfYmdoZz5NcXlwZH
hcZWdj/8AAFAgACAAIBEMRAE0RAFkRAEsRAP/EABYAAQEBAAAAAAAAAAAAAAAAAAYABP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAOBEMATQBZ
AEsAAD8ASMIwn//Z
B64
base64 -d >ycck.jpg <<'B64'
/9j/7gAOQWRvYmUAZAAAAAAC/9sAQwAQCwwODAoQDg0OEhEQExgoGhgWFhgxIyUdKDozPTw5Mzg3QEhcTkBEV0U3OFBtUVdfYmdoZz5NcXlwZH
hcZWdj/9sAQwEREhIYFRgvGhovY0I4QmNjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Nj/8AAFAgACAAI
BAEiAAIRAQMRAQQiAP/EABUAAQEAAAAAAAAAAAAAAAAAAAAC/8QAFBABAAAAAAAAAAAAAAAAAAAAAP/EABQBAQAAAAAAAAAAAAAAAAAAAAX/xA
AUEQEAAAAAAAAAAAAAAAAAAAAA/9oADgQBAAIRAxEEAAA/AKAKBgB//9k=
B64
printf '\211PNG\r\n\032\n\0\0\0\rIHDR\0\0\0\001\0\0\0\001\010\0\0\0\0:~\233U\0\0\0\nIDATx\234ch\0\0\0\202\0\201w\315r\266\0\0\0\0IEND\256B`\202' \
	>grey.png
perl -e 'local $/; my $d = <STDIN>; substr($d, -2, 0) = "\x12" x 40; print $d' <"$(image 3)" >extra.jpg

# training: a tar of one tar a class, with CMYK images, a PNG named .JPEG, and bytes that do not belong there
mkdir -p in/a in/b && for c in a b; do
	for i in 0 1 2 3 4; do cp "$(image $i)" in/$c/n${c}_$i.JPEG; done
	cp cmyk.jpg in/$c/n${c}_cmyk.JPEG && cp ycck.jpg in/$c/n${c}_ycck.JPEG
	cp grey.png in/$c/n${c}_png.JPEG && cp extra.jpg in/$c/n${c}_extra.JPEG
	tar -C in/$c -cf n$c.tar .
done
tar -cf ILSVRC2012_img_train.tar na.tar nb.tar
expect 0 '18 images of 2 classes.*; 6 converted .PNG, CMYK.; 2 with JPEG warnings' 'training images as distributed' \
	"$gannet" pack --out train ILSVRC2012_img_train.tar
check 'are all good JPEG files now' "$gannet" verify --decode train
check 'and can be trained on' timeout -k 5 300 "$gannet" bench decode --data train --images 18 --iters 1
expect 0 'packed .*extra.JPEG: .*extraneous bytes before marker' 'what libjpeg warns about is named' \
	"$gannet" pack --out train2 --threads 4 ILSVRC2012_img_train.tar
check 'and the result is the same' diff -r train train2
expect 0 '"converted": 6, "jpeg_warnings": 2, "passed_over": 0' 'and counted' \
	"$gannet" pack --json --out train3 ILSVRC2012_img_train.tar
head -c -30 cmyk.jpg >in/a/na_cut.JPEG
expect 3 'na_cut.JPEG: bad JPEG' 'a CMYK file that is cut short' "$gannet" pack --out out in

# validation: a flat tar and a file of labels
mkdir flat && for i in 1 2 3 4 5 6; do cp "$(image $i)" "flat/ILSVRC2012_val_0000000$i.JPEG"; done
tar -C flat -cf ILSVRC2012_img_val.tar .
printf 'ImageId,PredictionString\n' >LOC_val_solution.csv
for i in 1 2 3 4 5 6; do echo "ILSVRC2012_val_0000000$i,n$([ $i -lt 3 ] && echo a || echo b) 85 1 499 272 "; done >>LOC_val_solution.csv
awk -F '[, ]' 'NR > 1 { print $1 ".JPEG," $2 }' LOC_val_solution.csv >val.csv
check 'validation images as distributed' "$gannet" pack --out val --classes train --labels val.csv ILSVRC2012_img_val.tar
check 'get their classes from the file of labels' has_classes val 'na 2 nb 4'
check 'a flat folder' "$gannet" pack --out val2 --labels val.csv flat
check 'gives the same' diff -r val val2
{ printf 'name,class\r\n' && sed 's/$/\r/' val.csv; } >dos.csv
check 'a heading and line ends of another system' "$gannet" pack --out val3 --labels dos.csv flat
check 'change nothing' diff -r val val3
label() { # CODE PATTERN NAME SED-SCRIPT [OPTION...]
	code=$1 pattern=$2 name=$3
	sed "$4" val.csv >labels
	shift 4
	rm -rf out
	expect "$code" "$pattern" "$name" "$gannet" pack --out out --labels labels "$@" flat
}
label 3 'flat: ILSVRC2012_val_00000002.JPEG: has no line in' 'an image without a line' 2d
label 0 '5 images of 2 classes.*1 skipped' 'which --skip-bad leaves out' 2d --skip-bad
label 3 "labels, line 7: no source has an image 'x.JPEG'; 2 such lines" 'lines without an image' '$a x.JPEG,na\ny.JPEG,na'
label 3 "labels, line 1: no source .* 1 such line; if the first line is a heading, it must be name,class" \
	'another heading' '1i image,label'
label 0 '6 images of 2 classes' 'a byte order mark' '1s/^/\xef\xbb\xbfname,class\n/'
label 3 "labels, line 1: no image '(.*1)': the image is called \1.JPEG" 'names without their endings' 's/.JPEG//'
label 0 '4 images of 2 classes.*2 skipped' 'some of which --skip-bad leaves out' '2,3s/.JPEG//' --skip-bad
label 3 "labels, line 3 repeats image '.*2.JPEG' .first in line 2" 'an image that comes twice' '2p'
label 3 "labels, line 4 has 1 field, not NAME,CLASS" 'a line without a comma' '4s/.*/x/'
label 3 "line 4 is empty" 'an empty line' '4s/.*//'
label 3 "line 4 is not NAME,CLASS: ',na'" 'a line without a name' '4s/.*/,na/'
label 3 'labels holds a zero byte: is it UTF-16' 'a zero byte' '2s/a/\x00/'
label 3 "labels, line 3: class 'nc' is not in train" 'a class that the training set has not' '3s/,.*/,nc/' --classes train
expect 3 '--labels: .*none' 'a file of labels that is not there' "$gannet" pack --out out --labels none flat
expect 2 'takes no --labels' 'labels of made-up images' "$gannet" pack --out out --labels val.csv --synthetic 4 --classes 2 \
	--size 8x8

# the first level is the class
mkdir -p deep/cat/left deep/cat/right deep/dog/left
cp "$(image 1)" deep/cat/left && cp "$(image 2)" deep/cat/right && cp "$(image 3)" deep/dog/left && cp "$(image 4)" deep/dog
check 'images in folders below a class' "$gannet" pack --out levels deep
check 'belong to the class' has_classes levels 'cat 2 dog 2'
tar -cf deep.tar deep && tar -C deep -cf deep2.tar .
expect 0 "everything lies in 'deep'" 'one folder around all classes' "$gannet" pack --out levels2 deep.tar
check 'is passed through' has_classes levels2 'cat 2 dog 2'
check 'without it, an archive' "$gannet" pack --out levels3 deep2.tar
check 'is as the folder' diff -r levels levels3
mkdir -p own && cp -r deep own/train && cp -r deep own/val
expect 3 'own holds the parts of a dataset .train and others., not classes: pack each part by itself, such as own/train' \
	'a folder of train and val' "$gannet" pack --out out own
tar -C own -cf own.tar train val
expect 3 'own.tar holds the parts of a dataset' 'an archive of train and val' "$gannet" pack --out out own.tar
mkdir -p around && cp -r own around/clean
expect 3 'around/clean holds the parts of a dataset .* such as around/clean/train' 'a folder around train and val' \
	"$gannet" pack --out out around
tar -C around -cf clean.tar clean
expect 3 'clean.tar holds the parts of a dataset' 'an archive of a folder around train and val' \
	"$gannet" pack --out out clean.tar
mkdir -p mixed && cp -r deep mixed/train && cp -r deep mixed/val && cp -r deep/cat/left mixed/extra
tar -cf mixed.tar mixed
for source in mixed mixed.tar; do
	expect 0 "WARN .*$source: the folders '(train|val)' and '(train|val)' are named as parts of a dataset .* but 'extra' is beside them" \
		"parts of a dataset and another folder, in $source" "$gannet" pack --out "$source.out" $source
	check 'are classes' has_classes "$source.out" 'extra 1 train 4 val 4'
done
mkdir -p ways && cp -r deep/cat/left ways/train && cp -r deep/cat/right ways/test
check 'classes that are only named so' "$gannet" pack --out ways.out ways
expect 3 "class 'train' is not in kept .class 1 is 'train' here and 'trian' there" 'class names that differ' \
	sh -c 'printf "test\ntrian\n" >kept && "$0" pack --out out --classes kept ways' "$gannet"

# a JPEG file that is to be turned when it is shown
mkdir -p turned/a turned/b && cp "$(image 1)" turned/a && { printf '\377\330\377\341\0\042Exif\0\0MM\0*\0\0\0\010\0\001' &&
	printf '\001\022\0\003\0\0\0\001\0\006\0\0\0\0\0\0' && tail -c +3 "$(image 2)"; } >turned/b/t.jpg
expect 0 '; 1 with an EXIF orientation, which is not applied' 'an image to be turned is counted' \
	"$gannet" pack --out turned.out turned
expect 0 '; 1 converted .PNG, CMYK, turned.; 1 with an EXIF orientation, which is applied' 'and turned' \
	"$gannet" pack --exif-rotate --out turned2.out turned
check 'what was turned is whole' "$gannet" verify --decode turned2.out
expect 0 '^turned  *as EXIF orientations say' 'info tells' "$gannet" info turned2.out
expect 0 '"exif_rotate": true' 'in JSON, too' "$gannet" info --json turned2.out
expect 0 '"exif_rotate": false' 'and of the other' "$gannet" info --json turned.out
check 'and another dataset' sh -c '! cmp -s turned.out/gannet-dataset.json turned2.out/gannet-dataset.json'

# what is no image and is not meant to be one
cp -r deep more && mkdir -p more/.git more/__MACOSX/cat more/cat/.thumbs && cp "$(image 5)" more/.git/x.jpg
cp "$(image 5)" more/__MACOSX/cat/y.jpg && cp "$(image 5)" more/cat/.thumbs/z.jpg
for f in .DS_Store cat/._a.jpg cat/Thumbs.db labels.TXT dog/left/meta.json README.md; do echo x >"more/$f"; done
tar -C more -cf more.tar .
expect 0 '4 images of 2 classes.*9 other files and folders ignored' 'hidden files and texts in a folder' \
	"$gannet" pack --out more.out more
expect 0 'other files and folders ignored' 'and in an archive' "$gannet" pack --out more2.out more.tar
mkdir -p onemore/a onemore/b && cp "$(image 1)" onemore/a && cp "$(image 2)" onemore/b && echo x >onemore/a/x.txt
expect 0 '; 1 other file or folder ignored' 'one of them' "$gannet" pack --out onemore.out onemore
check 'are no part of what is packed' diff -r levels more.out
check 'nor there' diff -r levels more2.out
mkdir -p kinds/a && cp "$(image 1)" kinds/a && printf 'RIFF\0\0\0\0WEBPVP8 ' >kinds/a/w.jpg && printf 'GIF89a\1\0\1\0' >kinds/a/g.gif
printf 'BM\0\0\0\0\0\0\0\0\0\0' >kinds/a/b.bmp && printf 'II*\0\0\0\0\0' >kinds/a/t.tif
for kind in WebP:w.jpg GIF:g.gif BMP:b.bmp TIFF:t.tif; do
	expect 3 "${kind#*:}: is a ${kind%:*} image, not a JPEG file; only JPEG and PNG" "${kind%:*}" "$gannet" pack --out out kinds
done
check 'what failed made no dataset' test ! -e out
finish
