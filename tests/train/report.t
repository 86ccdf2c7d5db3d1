#!/bin/sh
# A report of real runs: one page that is whole by itself, well-formed, with all runs; and text from logs stays text.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'digits are packed' pack_digits
check 'three ranks' lenet 3 16 --steps 60 --log-every 5 --ema 0.9 --log "$dir/three.jsonl" --val "$dir/val" \
	--checkpoint "$dir/three"
check 'one rank' lenet 1 32 --steps 30 --log-every 5 --log "$dir/one.jsonl" --optimizer lamb --init seed:7
# shellcheck disable=SC2016
sed 's#"model": "lenet"#"model": "<script>alert(1)</script>"#; s#"options": "#&evil=\\"<b>'"'"'\&amp; #
	s#"slowest_host": "[^"]*"#"slowest_host": "</svg><img src=x>"#' "$dir/three.jsonl" >"$dir/<i>bad'.jsonl"
printf '{"event": "st' >>"$dir/<i>bad'.jsonl"
check 'a report of three logs' "$gannet" report "$dir/three.jsonl" "$dir/one.jsonl" "$dir/<i>bad'.jsonl" --out "$dir/report"
cat >"$dir/check.py" <<'PY'
import html.parser, re, sys, xml.etree.ElementTree as tree
page, directory, processors = open(sys.argv[1], encoding="utf-8").read(), sys.argv[2], int(sys.argv[3])
allowed = set("html head meta title style body h1 h2 h3 p div span table tr th td svg path text rect circle polyline polygon wbr details summary".split())
class Look(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text, self.cells = [], [], 0
    def handle_starttag(self, tag, attributes):
        assert tag in allowed, tag
        for name, value in attributes:
            assert name not in ("src", "href", "onload", "onclick") and not name.startswith("xlink"), (tag, name)
        if tag not in ("meta", "wbr"):
            self.open.append(tag)
        self.cells += tag == "td"
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
    def handle_startendtag(self, tag, attributes):
        assert tag in allowed, tag
    def handle_data(self, text):
        self.text.append(text)
look = Look()
look.feed(page)
look.close()
assert not look.open, look.open
assert "http" not in re.sub("http-equiv", "", page), "something is loaded"
text = " ".join(look.text)
for wanted in ("<script>alert(1)</script>", "</svg><img src=x>", "<i>bad'.jsonl", '"<b>\'&amp;', "three.jsonl", "one.jsonl", "lamb",
               "Scaling efficiency", "Rank by time", "slowest rank", "exposed communication", "Norm of the gradient"):
    assert wanted in text, wanted
for wanted in (directory + "/train", directory + "/val", "seed:7"):
    assert wanted in look.text, wanted
assert processors < 3 or re.search(r" % \((guessed|measured|tried)\)", text), "where the prediction's costs come from"
assert "1 line of the logs is no JSON" in text
# A narrow window breaks paths and values, which may be long, and no heading or number.
style = re.search("<style>(.*?)</style>", page, re.S).group(1)
breaking = {s for rule, body in re.findall(r"([^{}]+){([^{}]*)}", style) if "overflow-wrap" in body or "word-break" in body
            for s in rule.strip().split(",")}
assert breaking == {"h2", "p", "td.long", "th.long"}, breaking
table = re.search("<table class='runs'>(.*?)</table>", page, re.S).group(1)
heads = re.findall("<th[^>]*>(.*?)</th>", table)
# Nothing was skipped and no run resumed: such columns are left out.
assert [h for h in heads if h not in ("efficiency", "predicted")] == ["run", "network", "ranks", "nodes", "global batch", "steps", "epochs", "last loss",
    "best top-1", "of the average", "images/s", "end"] and "<th class='long'" not in table, heads
assert len(re.findall("<tr><td", table)) == 3 and all(row.count("<td") == len(heads) for row in table.split("</tr>")[1:-1]), table
assert "fraction" not in text and re.search("class='title'>Training top-1</text>.*?>100 %</text>", page, re.S), "top-1 is in per cent"
# What differs from the defaults, and what only one log has, stands in the open; the rest is folded.
opened, folded = (set(re.findall("<tr[^>]*><td>([a-z0-9-]+)</td>", part)) for part in page[page.index("<h2>Configuration"):].split("<details>"))
assert {"data", "model", "steps", "optimizer", "ema", "init", "evil"} <= opened and {"nesterov", "momentum", "dry-run", "prefetch"} <= folded, (opened, folded)
assert not opened & folded and len(folded) > 3 * len(opened), (opened, folded)
assert table.count("<td class='long'>") == 3 and re.search("<td class='long'><span[^>]*></span>(/<wbr>)?[^<]+/<wbr>", table), table
assert look.cells > 3 * 40, look.cells
pictures = re.findall("<svg.*?</svg>", page, re.S)
assert len(pictures) >= 5 + 4 + 1 + 4, len(pictures)
points = 0
for picture in pictures:
    root = tree.fromstring(picture)
    width, height = map(float, root.get("viewBox").split()[2:])
    for shape in root.iter():
        for x, y in re.findall(r"(\S+),(\S+)", shape.get("points") or ""):
            assert 0 <= float(x) <= width and 0 <= float(y) <= height, (x, y)
            points += 1
print(len(pictures), "pictures,", points, "points")
PY
check 'is a page that is whole by itself' python3 "$dir/check.py" "$dir/report/report.html" "$dir" "$(nproc)"
check 'with a picture beside it' grep -q '^</svg>' "$dir/report/curve.svg"
cp "$dir/three.jsonl" "$dir/two.jsonl"
export GANNET_LOG=info
expect 0 'two.jsonl holds an earlier run' 'a run into a log that is not empty says so' \
	lenet 1 32 --steps 5 --log-every 5 --log "$dir/two.jsonl"
lenet 1 32 --steps 1 --val "$dir/val" --checkpoint "$dir/told" >"$dir/told.out" 2>&1
check 'the first line says what runs' grep -q "training lenet on $dir/train: 7000 images of 10 classes, evaluation on 1000; \
global batch 32 (1 rank x 32); 1 step$" "$dir/told.out"
check 'another which checkpoint was saved' grep -Eq "checkpoint $dir/told/step-00000001 saved in [0-9.]+ s, which blocked training for [0-9]+ ms$" "$dir/told.out"
check 'the last one that it is done' sh -c 'tail -n 1 "$1" | grep -Eq "$2"' sh "$dir/told.out" \
	"done: 1 step in [0-9.]+ s, [0-9]+ images/s in all, top-1 [0-9.]+ % \(best [0-9.]+ %\), checkpoint $dir/told/step-00000001$"
expect 0 '"run": 2, "last_step": 5' 'its report has both runs' "$gannet" report "$dir/two.jsonl" --out "$dir/two"
expect 3 'no training step' 'what is no log' "$gannet" report "$dir/one.jsonl" "$dir/check.py" --out "$dir/none"
check 'leaves nothing' test ! -e "$dir/none"
# 900 images in 1 s, then 100 in 9 s: 100 images/s, whatever the mean of the rates.
cat >"$dir/rates.jsonl" <<'LOG'
{"event": "start", "time": "2026-11-24T10:00:00Z", "model": "lenet", "step": 0, "ranks": 3, "nodes": 1, "global_batch": 100}
{"event": "step", "step": 9, "loss": 1, "images_per_s": 900, "sent_bytes": 1234, "time_ms": {"step": 111.11111}}
{"event": "step", "step": 10, "loss": 1, "images_per_s": 11.11111, "time_ms": {"step": 9000}, "staleness": {"mean": 1.5, "ahead_most": 3, "workers": 2}}
LOG
expect 0 '"images_per_s": 100.0,' 'a rate is of all images and all time' "$gannet" report "$dir/rates.jsonl" --out "$dir/rates"
expect 0 '^"[^"]*",1,step,0,9,.*,1234,,,,' 'a table has bytes' "$gannet" report "$dir/rates.jsonl" --csv -
expect 0 '^"[^"]*",1,step,0,10,.*,,1.5,3,2,' 'staleness and workers' "$gannet" report "$dir/rates.jsonl" --csv -

# For other tools.
cat >"$dir/convert.py" <<'PY'
import csv, glob, json, struct, sys
log, table, events = [json.loads(line) for line in open(sys.argv[1])], list(csv.DictReader(open(sys.argv[2], newline=""))), sys.argv[3]
steps, evals = ([line for line in log if line["event"] == kind] for kind in ("step", "eval"))
assert steps and evals and [int(row["step"]) for row in table if row["event"] == "step"] == [s["step"] for s in steps], table
for row, line in zip([r for r in table if r["event"] == "step"], steps):
    assert abs(float(row["loss"]) - line["loss"]) < 1e-7 * line["loss"] and row["eval_top1"] == "" and row["log"] == sys.argv[1], (row, line)
assert [float(row["eval_top1"]) for row in table if row["event"] == "eval"] == [e["top1"] for e in evals], table

def crc32c(data, table=[]):
    for i in range(256 if not table else 0):
        for _ in range(8):
            i = i >> 1 ^ 0x82f63b78 * (i & 1)
        table.append(i)
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xffffffff

def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17 & 0xffffffff) + 0xa282ead8) & 0xffffffff

def varint(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at

def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value

assert crc32c(b"123456789") == 0xe3069283
data, at, found = open(glob.glob(events + "/three/events.out.tfevents.*")[0], "rb").read(), 0, []
while at < len(data):
    size, = struct.unpack_from("<Q", data, at)
    event = data[at + 12:at + 12 + size]
    assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at:at + 8])
    assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked(event)
    found.append(dict(fields(event)))
    at += size + 16
assert at == len(data) and found[0][3] == b"brain.Event:2"
def scalars(event):
    for _, value in fields(event[5]):
        value = dict(fields(value))
        yield value[1].decode(), struct.unpack("<f", value[2])[0]
losses = [(e[2], dict(scalars(e))["train/loss"]) for e in found[1:] if b"train/loss" in e[5]]
assert [s for s, _ in losses] == [line["step"] for line in steps], losses
assert all(abs(v - line["loss"]) < 1e-6 * line["loss"] for (_, v), line in zip(losses, steps)), losses
assert sum(b"eval/top1" in e[5] for e in found[1:]) == len(evals)
assert abs(struct.unpack("<d", found[1][1])[0] - float(table[0]["time"])) < 1 and float(table[0]["time"]) > 1.6e9
print(len(found), "events")
PY
check 'conversion' "$gannet" report "$dir/three.jsonl" "$dir/two.jsonl" "$dir/one.jsonl" --tensorboard "$dir/tb" --csv "$dir/all.csv"
check 'of a log alone' "$gannet" report "$dir/three.jsonl" --csv "$dir/three.csv"
check 'gives a table and event files that read back' python3 "$dir/convert.py" "$dir/three.jsonl" "$dir/three.csv" "$dir/tb"
check 'each run has a folder' test -d "$dir/tb/one" -a -d "$dir/tb/two-run1" -a -d "$dir/tb/two-run2"
check 'no page was written' test ! -e "$dir/tb/report.html"
expect 0 '^log,run,event,time,step,epoch,loss,' 'a table to standard output' "$gannet" report "$dir/one.jsonl" --csv -
cp "$dir/one.jsonl" "$dir/kept.jsonl"
expect 2 'is no CSV file of gannet report' 'a log is not overwritten' "$gannet" report "$dir/one.jsonl" --csv "$dir/kept.jsonl"
check 'and is as it was' cmp "$dir/one.jsonl" "$dir/kept.jsonl"
check 'a table is' "$gannet" report "$dir/one.jsonl" --csv "$dir/three.csv"
: >"$dir/empty.jsonl"
expect 0 'left out: .*empty.jsonl has no training step' 'a run without a step hides no other' "$gannet" report "$dir/empty.jsonl" "$dir/one.jsonl" --csv -
expect 2 'what to write' 'neither page nor conversion' "$gannet" report "$dir/one.jsonl"
# A run of less than a second, whose lines all have one time: .25 s of steps in .5 s.
at='"time": "2026-01-02T03:04:05Z"'
{
	grep '"event": "start"' "$dir/one.jsonl" | sed "s/\"time\": \"[^\"]*\"/$at/"
	grep -m 1 '"event": "step"' "$dir/one.jsonl" | sed "s/\"time\": \"[^\"]*\"/$at/; s/\"time_ms\": {\"step\": [0-9.]*/\"time_ms\": {\"step\": 50/"
	echo "{\"event\": \"recovered\", $at, \"step\": 5, \"world\": 2, \"ranks\": 1, \"ranks_before\": 2, \"seconds\": 0.25, \"steps_redone\": 0}"
} >"$dir/short.jsonl"
check 'a report of a short run with a loss' "$gannet" report "$dir/short.jsonl" --out "$dir/short"
check 'has its goodput' grep -q 'Goodput: 50.0 % of the time' "$dir/short/report.html"
finish
