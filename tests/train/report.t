#!/bin/sh
# A report of real runs: one page that is whole by itself, well-formed, with all runs; and text from logs stays text.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'digits are packed' pack_digits
check 'three ranks' lenet 3 16 --steps 60 --log-every 5 --ema 0.9 --log "$dir/three.jsonl" --val "$dir/val" \
	--checkpoint "$dir/three"
check 'one rank' lenet 1 32 --steps 30 --log-every 5 --log "$dir/one.jsonl" --optimizer lamb
# shellcheck disable=SC2016
sed 's#"model": "lenet"#"model": "<script>alert(1)</script>"#; s#"options": "#&evil=\\"<b>'"'"'\&amp; #
	s#"slowest_host": "[^"]*"#"slowest_host": "</svg><img src=x>"#' "$dir/three.jsonl" >"$dir/<i>bad'.jsonl"
printf '{"event": "st' >>"$dir/<i>bad'.jsonl"
check 'a report of three logs' "$gannet" report "$dir/three.jsonl" "$dir/one.jsonl" "$dir/<i>bad'.jsonl" --out "$dir/report"
cat >"$dir/check.py" <<'PY'
import html.parser, re, sys, xml.etree.ElementTree as tree
page = open(sys.argv[1], encoding="utf-8").read()
allowed = set("html head meta title style body h1 h2 h3 p div span table tr th td svg path text rect circle polyline polygon".split())
class Look(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text, self.cells = [], [], 0
    def handle_starttag(self, tag, attributes):
        assert tag in allowed, tag
        for name, value in attributes:
            assert name not in ("src", "href", "onload", "onclick") and not name.startswith("xlink"), (tag, name)
        if tag != "meta":
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
assert re.search(r" % \((guessed|measured|tried)\)", text), "where the prediction's costs come from"
assert "1 lines of the logs were no JSON" in text
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
check 'is a page that is whole by itself' python3 "$dir/check.py" "$dir/report/report.html"
check 'with a picture beside it' grep -q '^</svg>' "$dir/report/curve.svg"
expect 3 'no training step' 'what is no log' "$gannet" report "$dir/one.jsonl" "$dir/check.py" --out "$dir/none"
check 'leaves nothing' test ! -e "$dir/none"
finish
