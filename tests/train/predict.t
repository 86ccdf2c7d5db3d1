#!/bin/sh
# gannet predict: the logits of gannet eval for files, folders, archives and datasets, in the order of the sources; the same bytes for any
# number of ranks; bad images passed over.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'digits are packed' pack_digits
check 'a network' lenet 1 32 --steps 30 --checkpoint "$dir/run"
cd "$dir" || exit 1
mkdir tree && tar -C tree -xf "$GN_SOURCE/data/digits/digits-val.tar.xz"
predict() { # NAME RANKS OPTION...: standard output to NAME.txt
	name=$1 ranks=$2
	shift 2
	timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" predict --checkpoint run --threads 1 "$@" >"$name.txt" 2>"$name.err"
}
ends() { # CODE COMMAND...
	wanted=$1
	shift
	"$@"
	ended=$?
	[ "$ended" = "$wanted" ] || { echo "exit code $ended, not $wanted"; return 1; }
}

check 'logits by eval' timeout -k 5 300 "$gannet" eval --data val --checkpoint run --threads 1 --batch 16 --logits eval.npy
check 'a dataset' predict one 1 --json --npy one.npy val
check 'has the logits of eval' cmp one.npy eval.npy
check 'two ranks' predict two 2 --json --npy two.npy val
check 'print the same' cmp one.txt two.txt
check 'and write the same logits' cmp one.npy two.npy
check 'with the same names' cmp one.names.txt two.names.txt
check 'three ranks, small batches' predict three 3 --json --batch 7 val
check 'have the same images in the same order' test "$(cut -d , -f 1 one.txt)" = "$(cut -d , -f 1 three.txt)"
check 'the archive' predict tar 2 --csv --npy tar.npy "$GN_SOURCE/data/digits/digits-val.tar.xz"
check 'a file, a folder, and another file' predict tree 1 --csv --npy tree.npy tree/val/0/0_00700.jpg tree tree/val/9/9_00799.jpg
check 'probabilities, classes and order are those of the logits' python3 - <<'PY'
import array, csv, json, math
def rows(name):
    data = open(name, "rb").read()
    flat = array.array("f", data[128:])
    return [tuple(flat[i:i + 10]) for i in range(0, len(flat), 10)]
def top(row):
    most = max(row)
    total = sum(math.exp(x - most) for x in row)
    return [(k, math.exp(row[k] - most) / total) for k in sorted(range(10), key=lambda k: (-row[k], k))[:5]]
def check(row, told):
    want = top(row)
    assert [k for k, _ in want] == [int(c) for c, _ in told], (want, told)
    assert all(abs(p - float(q)) < 1e-5 for (_, p), (_, q) in zip(want, told)), (want, told)
names = open("one.names.txt").read().split("\n")[:-1]
lines = [json.loads(line) for line in open("one.txt")]
assert len(lines) == len(names) == 1000
logits = {}
for name, line, row in zip(names, lines, rows("one.npy")):
    assert line["name"] == name and name.startswith("val/val/"), name
    check(row, [(t["class"], t["probability"]) for t in line["top"]])
    assert all(t["class"] == str(t["index"]) for t in line["top"])
    logits[name[len("val/val/"):]] = row
for name, count in ("tar", 1000), ("tree", 1002):
    lines = list(csv.DictReader(open(name + ".txt")))
    assert len(lines) == count, (name, len(lines))
    for line, row in zip(lines, rows(name + ".npy")):
        key = line["name"].split("/val/")[-1]
        assert max(abs(a - b) for a, b in zip(row, logits[key])) < 1e-5, (name, key)
        check(row, [(line[f"class{k}"], line[f"probability{k}"]) for k in range(1, 6)])
tree = [line["name"] for line in lines]
assert tree[0] == "tree/val/0/0_00700.jpg" and tree[-1] == "tree/val/9/9_00799.jpg" and tree[1:-1] == sorted(tree[1:-1])
PY

# images that are none
mkdir mixed
cp tree/val/3/3_00700.jpg 'mixed/a,"b".jpg'
head -c 300 tree/val/3/3_00701.jpg >mixed/cut.jpg
echo text >mixed/no.jpg
echo notes >mixed/readme.txt
: >mixed/empty.png
cp tree/val/3/3_00702.jpg mixed/z.jpg
check 'bad images end with code 3' ends 3 predict bad 1 --csv --top 1 --npy bad.npy mixed
check 'and are named' test "$(grep -c 'passed over mixed/\(cut.jpg\|no.jpg\|empty.png\): ' bad.err)" = 3
printf 'RIFF....WEBPVP8 ' >shot.webp
expect 3 'shot.webp: is a WebP image, not a JPEG file; only JPEG and PNG are read: convert it' 'other formats are named as by pack' \
	timeout -k 5 300 "$gannet" predict --checkpoint run shot.webp
check 'on two ranks' ends 3 predict bad2 2 --csv --top 1 mixed
check 'the same' cmp bad.txt bad2.txt
check 'each has a line, and a row that is no number' python3 - <<'PY'
import array, csv, math
lines = list(csv.DictReader(open("bad.txt", newline="")))
assert [line["name"] for line in lines] == ["mixed/" + n for n in ('a,"b".jpg', "cut.jpg", "empty.png", "no.jpg", "z.jpg")], lines
assert [bool(line["error"]) for line in lines] == [False, True, True, True, False], lines
assert [line["class1"] != "" for line in lines] == [True, False, False, False, True], lines
flat = array.array("f", open("bad.npy", "rb").read()[128:])
assert len(flat) == 50 and [math.isnan(flat[i]) for i in range(0, 50, 10)] == [False, True, True, True, False]
PY
check 'a table' ends 3 predict table 1 --top 1 mixed
check 'has the good ones' test "$(cut -d ' ' -f 1 table.txt | tr '\n' ' ')" = 'mixed/a,"b".jpg mixed/z.jpg '

# PNG as pack stores it; weights of a file
python3 - <<'PY'
import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(28)) for y in range(28))
open("one.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)) +
                            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
PY
mkdir -p png/0 && cp one.png png/0
check 'a PNG file is packed' "$gannet" pack --out packed --classes val png
check 'and predicted as it is' predict png 1 --npy png.npy one.png
check 'and from the dataset' predict packed 1 --npy packed.npy packed
check 'with the same logits' cmp png.npy packed.npy
check 'the network is exported' "$gannet" export --checkpoint run --out w.safetensors
weights() { timeout -k 5 300 "$gannet" predict --weights w.safetensors --threads 1 --json val >weights.txt; }
check 'predicts' weights
check 'the same' cmp one.txt weights.txt
check 'at another resize' timeout -k 5 300 "$gannet" predict --weights w.safetensors --resize 40 --npy resized.npy val
check 'otherwise' test "$(cksum <resized.npy)" != "$(cksum <one.npy)"

# the folder is another one on rank 1
mkdir -p node0 node1 && cp tree/val/3/3_0070[0-4].jpg node0 && cp tree/val/3/3_0070[0-3].jpg node1
apart() { # the same path, but each rank's own
	timeout -k 5 300 "$gannet" launch -n 2 -- sh -c 'mkdir -p at$PMIX_RANK && rm -f at$PMIX_RANK/images &&
		ln -s "../node$PMIX_RANK" at$PMIX_RANK/images && cd at$PMIX_RANK && exec "$1" predict --checkpoint ../run --threads 1 images' sh "$gannet"
}
expect 2 'sees more or fewer images' 'ranks with other numbers of images' apart
rm node0/3_00704.jpg && mv node1/3_00701.jpg node1/3_00709.jpg
expect 2 'rank 1 sees another image than rank 0' 'ranks with other images' apart

expect 3 'cannot read source none' 'a source that is missing' timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" predict --checkpoint run none
expect 3 'readme.txt' 'a file that is neither image nor archive' timeout -k 5 300 "$gannet" predict --checkpoint run mixed/readme.txt
expect 2 'give either --checkpoint DIR or --weights FILE' 'no network' "$gannet" predict val
expect 2 '--npy: cannot write nodir/x.npy: No such' 'an array in a folder that is not there' \
	timeout -k 5 300 "$gannet" predict --checkpoint run --npy nodir/x.npy val
expect 2 'cannot be combined' 'two formats' "$gannet" predict --checkpoint run --json --csv val
expect 2 'SOURCE' 'no source' "$gannet" predict --checkpoint run
# Ended by Ctrl-C: its reader takes no more than a pipe holds before the signal, and all that comes after it.
cat >interrupt.py <<'PY'
import fcntl, os, signal, socket, struct, subprocess, sys, termios, time
gannet = sys.argv[1]
command = [gannet, "predict", "--checkpoint", "run", "--threads", "1", "--csv"] + ["val"] * 20
p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
first = p.stdout.readline()
p.send_signal(signal.SIGINT)
rest, words = p.communicate(timeout=300)
lines = (first + rest).splitlines()
assert p.returncode == -signal.SIGINT, p.returncode
assert rest.endswith("\n") and 1 < len(lines) < 20001 and all(line.count(",") == 11 for line in lines), (len(lines), lines[-1])
assert "ended by SIGINT: standard output has whole lines" in words, words
# nobody reads: the pipe is full
p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
full = fcntl.fcntl(p.stdout, fcntl.F_SETPIPE_SZ, 4096)
while struct.unpack("i", fcntl.ioctl(p.stdout, termios.FIONREAD, b"1234"))[0] < full and p.poll() is None:
    time.sleep(0.01)
p.send_signal(signal.SIGINT)
p.wait(timeout=300)
words = p.stderr.read()
assert p.returncode == -signal.SIGINT and "ended by SIGINT: nobody reads standard output" in words, (p.returncode, words)
# eval, while it waits for a second rank: the thread that waits for signals is there
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
alone = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
p = subprocess.Popen([gannet, "eval", "--data", "val", "--checkpoint", "run"], env=alone, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
while len(os.listdir(f"/proc/{p.pid}/task")) < 2 and p.poll() is None:
    time.sleep(0.01)
p.send_signal(signal.SIGTERM)
words = p.communicate(timeout=300)[1]
assert p.returncode == -signal.SIGTERM and "ended by SIGTERM: an evaluation has no parts" in words, (p.returncode, words)
PY
check 'a signal ends predict and eval, which say what there is' python3 interrupt.py "$gannet"
mkdir none && echo text >none/a.txt
expect 3 'no image in what was given' 'a folder without an image' timeout -k 5 300 "$gannet" predict --checkpoint run --npy none.npy none
check 'leaves no file of no rows' test ! -e none.npy
check 'nothing half-written is left' test -z "$(find . -name '*.tmp-*')"
finish
