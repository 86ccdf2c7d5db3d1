#!/bin/sh
# gannet preview: the sheet has the pixels of samples by (seed, epoch, position), and the list says which they are; balanced sampling.
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cat >sheet.py <<'PY'
import json, struct, zlib
class Sheet:
    """NAME.png and NAME.json of gannet preview"""
    def __init__(self, name):
        data = open(name + ".png", "rb").read()
        self.told = json.load(open(name + ".json"))
        at, body = 8, b""
        while at < len(data):
            size, kind = struct.unpack(">I4s", data[at:at + 8])
            if kind == b"IHDR":
                self.width, self.height, depth, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
            if kind == b"IDAT":
                body += data[at + 8:at + 8 + size]
            at += 12 + size
        self.channels = {0: 1, 2: 3}[colour]
        assert depth == 8 and self.channels == self.told["channels"]
        self.rows = self.unfilter(zlib.decompress(body))
        self.samples = self.told["samples"]
    def unfilter(self, raw):
        n, c, out, above = self.width * self.channels, self.channels, [], None
        above = bytes(n)
        for y in range(self.height):
            kind, line = raw[y * (n + 1)], bytearray(raw[y * (n + 1) + 1:(y + 1) * (n + 1)])
            for x in range(n):
                a, b, d = line[x - c] if x >= c else 0, above[x], above[x - c] if x >= c else 0
                if kind == 4:
                    p = a + b - d
                    near = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - d), 2, d))[2]
                line[x] = (line[x] + [0, a, b, (a + b) // 2, near if kind == 4 else 0][kind]) & 255
            out.append(bytes(line))
            above = line
        return out
    def tile(self, i):
        side, gap, c = self.told["side"], self.told["gap"], self.channels
        s = self.samples[i]
        x, y = (gap + s["column"] * (side + gap)) * c, gap + s["row"] * (side + gap)
        return b"".join(row[x:x + side * c] for row in self.rows[y:y + side])
PY
preview() { # NAME OPTION...: NAME.png and NAME.json of the dataset digits
	name=$1
	shift
	timeout -k 5 300 "$gannet" preview digits --model lenet --json --out "$name.png" "$@" >"$name.json"
}
python() { PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=. timeout -k 5 300 python3 -; }

check 'digits are packed' "$gannet" pack --out digits "$GN_SOURCE/data/digits/digits-val.tar.xz"
check 'a sheet' preview a
check 'another with 5 rows of 4' preview b --rows 5 --columns 4
check 'one that begins later' preview later --first 3
check 'the next epoch' preview next --epoch 1
check 'another seed' preview seed --seed 2
check 'without augmentation' preview none --augment none
check 'and again, from elsewhere in the epoch' preview none2 --augment none --first 16
check 'a sample is where the list says, and depends on seed, epoch and position alone' python <<'PY'
from sheet import Sheet
a, b, later, following, seed, none, none2 = map(Sheet, "a b later next seed none none2".split())
assert (a.width, a.height) == (2 + 8 * 30, 2 + 4 * 30) and (b.width, b.height) == (2 + 4 * 30, 2 + 5 * 30)
names = [s["name"] for s in a.samples]
assert len(a.samples) == 32 == len(set(names)) and all(s["name"].startswith(f"val/{s['class']}/") for s in a.samples)
assert [s["position"] for s in later.samples] == list(range(3, 35))
for i in range(20):
    assert b.samples[i]["name"] == names[i] and b.tile(i) == a.tile(i), i
for i in range(29):
    assert later.samples[i]["name"] == names[i + 3] and later.tile(i) == a.tile(i + 3), i
for other in following, seed:
    assert [s["name"] for s in other.samples] != names
# the order is the same without augmentation, most pixels are not
assert [s["name"] for s in none.samples] == names
assert sum(none.tile(i) != a.tile(i) for i in range(32)) > 20
assert all(none2.tile(i) == none.tile(i + 16) for i in range(16))
# a shift moves: what is left of the sum is close
assert all(abs(sum(none.tile(i)) - sum(a.tile(i))) < 0.2 * sum(none.tile(i)) for i in range(32))
# white between the images
assert set(a.rows[0]) == set(a.rows[1]) == {255} and all(row[0] == row[1] == 255 for row in a.rows)
PY
check 'mixed images' preview mixed --augment none --mixup 0.4
check 'are sums of two, by the weight in the list' python <<'PY'
from sheet import Sheet
none, mixed = Sheet("none"), Sheet("mixed")
several = 0
for i in range(0, 32, 2):
    for k, other in (i, i + 1), (i + 1, i):
        s = mixed.samples[k]
        assert s["name"] == none.samples[k]["name"]
        w = s.get("lambda", 1)
        several += 0.02 < w < 0.98
        if w < 1:
            assert s["pair_label"] == none.samples[other]["label"]
        for x, y, z in zip(mixed.tile(k), none.tile(k), none.tile(other)):
            assert abs(x - (w * y + (1 - w) * z)) <= 1.01, (k, x, y, z, w)
assert several > 10
PY

# colours: a flat picture keeps its colour through decoding, resize and normalisation
python3 - <<'PY'
import os, struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for n, colour in enumerate([(200, 30, 90), (10, 220, 60), (0, 0, 255), (255, 255, 255)]):
    os.makedirs(f"flat/{n}")
    for i in range(40 if n == 0 else 2):
        raw = b"".join(b"\0" + bytes(colour) * 40 for _ in range(50))
        open(f"flat/{n}/{i}.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 50, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))
PY
check 'flat pictures of four colours are packed' "$gannet" pack --out colours flat
colours() { timeout -k 5 300 "$gannet" preview colours --side 32 --json --out "$1.png" --rows 6 --augment crop-flip --mean 0.2,0.5,0.7 "$2" "$3" >"$1.json"; }
check 'shown' colours shuffled --sampling shuffled
check 'shown with balanced sampling' colours balanced --sampling balanced
check 'in their colours; 40, 2, 2 and 2 images, of which balanced sampling shows 11 or 12 each' python <<'PY'
import collections
from sheet import Sheet
shuffled, balanced = Sheet("shuffled"), Sheet("balanced")
want = [(200, 30, 90), (10, 220, 60), (0, 0, 255), (255, 255, 255)]
for sheet in shuffled, balanced:
    assert len(sheet.samples) == 46
    for i, s in enumerate(sheet.samples):
        tile = sheet.tile(i)
        mean = [sum(tile[c::3]) / 1024 for c in range(3)]
        assert all(abs(m - w) < 5 for m, w in zip(mean, want[s["label"]])), (mean, s)
        assert s["name"].startswith(s["class"] + "/")
count = lambda sheet: sorted(collections.Counter(s["label"] for s in sheet.samples).items())
assert count(shuffled) == [(0, 40), (1, 2), (2, 2), (3, 2)]
assert all(n in (11, 12) for _, n in count(balanced)) and len(count(balanced)) == 4, count(balanced)
names = collections.Counter(s["name"] for s in balanced.samples)
assert all(n in (5, 6) for name, n in names.items() if not name.startswith("0/")), names
assert all(n == 1 for name, n in names.items() if name.startswith("0/"))
PY

expect 2 'beyond the epoch' 'a position that is not there' "$gannet" preview digits --first 1000 --out no.png
expect 2 'give FILE.png' 'another format' "$gannet" preview digits --out no.jpg
expect 2 'out' 'no file' "$gannet" preview digits
expect 2 'too large' 'a sheet that no picture can be' "$gannet" preview digits --side 4096 --rows 64 --out no.png
expect 3 'no packed dataset' 'no dataset' "$gannet" preview flat --out no.png
check 'none of these writes a file' test ! -e no.png
finish
