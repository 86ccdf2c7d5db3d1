#!/bin/bash
# gannet summary and gannet top on the log of a real run that went on once: parts that add up, processor time as the system counts it.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
log=$scratch/log.jsonl
check "a dataset" "$gannet" pack --out "$scratch/data" --synthetic 512 --classes 4 --size 28x28
# Two starts: as many epochs, then one more; the system's processor time of all their processes into $scratch/cpu.
cat >"$scratch/both.py" <<'PY'
import resource, subprocess, sys
for more in (["--epochs", "2"], ["--epochs", "3", "--resume", "auto"]):
    subprocess.run(sys.argv[2:] + more, check=True, timeout=280)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
open(sys.argv[1], "w").write(str(used.ru_utime + used.ru_stime))
PY
check "a run that goes on" python3 "$scratch/both.py" "$scratch/cpu" "$gannet" launch -n 2 -- "$gannet" train --data "$scratch/data" --val "$scratch/data" \
	--model lenet --batch 16 --checkpoint "$scratch/run" --log "$log" --threads 1 --loader-threads 1
"$gannet" summary --json "$log" >"$scratch/summary.json"
cat >"$scratch/check.py" <<'PY'
import json, os, sys
s, cpu = json.load(open(sys.argv[1])), float(open(sys.argv[2]).read())
parts = sum(s[k] for k in ("training_s", "lost_s", "evaluation_s", "checkpoint_s", "between_starts_s", "starting_s", "other_s"))
assert abs(parts - s["wall_s"]) < 0.01, (parts, s)
assert s["starts"] == 2 and s["state"] == "end" and s["step"] == 48 and s["lost_s"] == 0 and s["evaluations"] == 3, s
assert 0 < s["training_s"] < s["wall_s"] and s["evaluation_s"] > 0 and s["checkpoint_s"] > 0, s
assert s["usage_starts"] == 2 and s["max_rss_bytes"] > 1e7, s
# Less than the system's is the launcher's own, and what ranks do after the last line, where sanitizers look for leaks; one rank
# alone were half of it.
share = s["core_hours_used"] * 3600 / cpu
assert (0.3 if os.environ.get("GN_SANITIZED") else 0.6) < share < 1.01, (s["core_hours_used"] * 3600, cpu)
print("summary %.2f s, rusage %.2f s" % (s["core_hours_used"] * 3600, cpu))
PY
check "its summary adds up, and has the processor time of all ranks" python3 "$scratch/check.py" "$scratch/summary.json" "$scratch/cpu"
expect 0 "^lenet, 2 ranks on 1 node, 2 starts, step 48 of 48, end$" "as text" "$gannet" summary "$log"
expect 0 "^[0-9]+(\.[0-9]+)? core hours of [0-9]+ processors?, [0-9.]+ used \([0-9]+ %\)$" "with core hours" "$gannet" summary "$log"
expect 0 "^step 48 of 48 \(100 %\)  epoch 3.00$" "top prints the state" "$gannet" top "$log"
state() { "$gannet" top --json "$log" | python3 -c 'import json, sys; s = json.load(sys.stdin); print(s["state"], len(s["recent_loss"]), s["left_s"])'; }
expect 0 "^end [0-9]+ None$" "and as JSON" state
columns() { # but for the path
	{ "$gannet" top "$log"; "$gannet" summary "$log" | sed 1d; } >"$scratch/text"
	python3 -c 'import sys; long = [line for line in open(sys.argv[1]) if len(line.rstrip("\n")) > 80]; print(long); sys.exit(bool(long))' "$scratch/text"
}
check "80 columns" columns
# A run that is killed: what is left says that it runs, and since when nothing was heard. Steps have their usage every few seconds: it was killed
# before the first of them.
sed '/"event": "end"/d; s/, "usage": {[^}]*}//' "$log" >"$scratch/killed.jsonl"
expect 0 "  running, (done, )?last line [0-9]+ s ago" "a run without an end runs" "$gannet" top "$scratch/killed.jsonl"
expect 0 "core hours.*(not in the log|; not of every start)" "and not all core hours are known" "$gannet" summary "$scratch/killed.jsonl"
cat >"$scratch/live.py" <<'PY'
import fcntl, os, pty, re, select, signal, struct, subprocess, sys, termios, time
log, top = sys.argv[2], [sys.argv[1], "top", "--interval", "0.2", sys.argv[2]]

class Terminal:
    def __init__(self, columns, rows):
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before, self.text = termios.tcgetattr(self.slave), ""
        self.top = subprocess.Popen(top, stdin=self.slave, stdout=self.slave, start_new_session=True,
                                    preexec_fn=self.own)
    @staticmethod
    def own():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
    def resize(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    def until(self, wanted, limit=280):
        end = time.monotonic() + limit
        while not re.search(wanted, self.text):
            assert time.monotonic() < end, (wanted, self.text)
            if select.select([self.master], [], [], 0.2)[0]:
                self.text += os.read(self.master, 65536).decode()
    def screen(self):
        """The last whole one, without escapes."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", [s for s in self.text.split("\x1b[H") if "q quits" in s][-1]).split("\r\n")
    def over(self, code):
        assert self.top.wait(280) == code, self.top.returncode
        self.until(r"\x1b\[\?25h\x1b\[\?1049l$")
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not as it was"
        os.close(self.master)
        os.close(self.slave)

t = Terminal(80, 24)
t.until("q quits")
lines = t.screen()
assert len(lines) <= 24 and all(len(line) <= 80 for line in lines), lines
assert any(line.startswith("step 48 of 48") for line in lines) and lines[0].rstrip()[-8:-6].isdigit(), lines
t.text = ""
t.resize(40, 8)
t.until("(?s)q quits.*q quits")
assert len(t.screen()) <= 8 and all(len(line) <= 40 for line in t.screen()), t.screen()
assert re.match(r"(\.\.\./)?([^/]+/)*log\.jsonl +\d\d:\d\d:\d\d", t.screen()[0]), t.screen()[0]
os.write(t.master, b"q")
t.over(0)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    t = Terminal(80, 24)
    t.until("q quits")
    t.top.send_signal(number)
    t.over(-number)

# Ctrl-S: output waits
t = Terminal(80, 24)
t.until("q quits")
os.write(t.master, b"\x13")
def of_top(what):
    try:
        return open(f"/proc/{t.top.pid}/{what}").read()
    except OSError:
        return None
while "tty_write" not in (of_top("stack") or "tty_write"):  # where the system tells
    time.sleep(0.01)
for _ in range(2):
    t.top.send_signal(signal.SIGTERM)
    while t.top.poll() is None and re.search("(?m)^(SigPnd|ShdPnd):.*[1-9a-f]", of_top("status") or ""):
        time.sleep(0.01)
assert t.top.wait(60) == -signal.SIGTERM, t.top.returncode
PY
check "a live view in a terminal, which is restored on every way out" timeout -k 5 300 python3 "$scratch/live.py" "$gannet" "$log"
printf '%s\n' '{"event": "failed", "time": "2026-11-24T10:00:00Z", "reason": "rank 3 on n2 is lost: it has not been heard of for 5 s, and what it was '\
'doing last was waiting for the sum of bucket 7 of step 4711, while all others went on"}' >>"$scratch/killed.jsonl"
whole_reason() { "$gannet" top "$scratch/killed.jsonl" | tail -n 3 | tr -s ' \n' ' ' | grep -q 'rank 3 on n2 is lost: .* while all others went on'; }
check "a long reason is broken into lines, not cut" whole_reason
expect 3 "has no start of a run" "what is no log is refused" "$gannet" summary "$scratch/both.py"
# the status file is of a later interval than the log's last line
cp "$log" "$scratch/slow.jsonl" && python3 - "$log.status" "$scratch/slow.jsonl.status" <<'PY'
import json, sys
s = json.load(open(sys.argv[1]))
s["slow"] = [{"rank": 1, "host": "nz", "compute_ms": 90000.5}, {"rank": 0, "host": "na", "compute_ms": 0.001}]
json.dump(s, open(sys.argv[2], "w"))
PY
expect 0 "^ranks compute 0.001 to 9e[+]04 ms a step; slowest: rank 1 on nz$" "top names the slowest rank of one interval" "$gannet" top "$scratch/slow.jsonl"
# A run of many nodes with long names, in windows of all widths: a table's columns are there whole or not, all other values on lines that fit.
python3 - "$scratch" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1] + "/killed.jsonl")]
start, steps = lines[0], [line for line in lines if line["event"] == "step"]
start.update(model="mobilenet_v3_large", ranks=1024, nodes=128, total_steps=450000)
for line in steps:
    line.update(step=123456, epoch=27.35)
lines = [start] + steps + [{"event": "eval", "time": steps[-1]["time"], "step": 123456, "top1": 0.7619}]
open(sys.argv[1] + "/wide.jsonl", "w").write("".join(json.dumps(line) + "\n" for line in lines))
status = json.load(open(sys.argv[1] + "/log.jsonl.status"))
hosts = ["gpu-%04d-rack-17.cluster.example" % i for i in range(3)]
status.update(doing="training", silent=[{"rank": 1, "host": hosts[1], "since": status["time"]}], silent_count=1,
              slow=[{"rank": i, "host": hosts[i], "compute_ms": 90000.5 - i} for i in range(3)],
              nodes=[{"host": h, "cpu": 0.5, "memory_bytes": 512e9, "memory_used_bytes": 128e9, "rss_bytes": 64e9,
                      "receive_bytes_per_s": 123e6, "send_bytes_per_s": 456e6} for h in hosts])
json.dump(status, open(sys.argv[1] + "/wide.jsonl.status", "w"))
PY
cat >"$scratch/widths.py" <<'PY'
import os, re, subprocess, sys
def parts(columns): # all words but those of the curves and of the table, and the rows of the table
    text = subprocess.run([sys.argv[1], "top", "--once", sys.argv[2]], env=dict(os.environ, COLUMNS=str(columns)), check=True, timeout=280,
                          stdout=subprocess.PIPE, text=True).stdout
    lines = re.sub(r"\d+ s\b", "N s", text).splitlines()
    assert all(len(line) <= columns for line in text.splitlines()), (columns, text)
    curves = [line for line in lines if re.fullmatch(r"(loss|images/s) +[▁▂▃▄▅▆▇█]+ [0-9.e+-]+ to [0-9.e+-]+", line)]
    assert len(curves) == 2, (columns, text)
    at = next(i for i, line in enumerate(lines) if line.startswith("node "))
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[at:at + 4]]
    return " ".join(" ".join(line for line in lines[:at] + lines[at + 4:] if line not in curves).split()), rows
whole, table = parts(200)
assert table[0] == ["node", "cpu", "memory", "ranks'", "in/s", "out/s"] and all(len(row) == 6 for row in table), table
for wanted in ("1024 ranks on 128 nodes", "step 123456 of 450000 (27 %) epoch 27.35", "top-1 76.19 %", "no heartbeat for N s", "rank 2 on gpu-0002-rack-17.cluster.example"):
    assert wanted in whole, (wanted, whole)
shown = []
for columns in range(40, 91):
    text, rows = parts(columns)
    assert text == whole, (columns, text, whole)
    shown.append(len(rows[0]))
    assert rows == [row[:shown[-1]] for row in table], (columns, rows)
assert shown == sorted(shown) and shown[0] < 3 and shown[-1] == 6, shown
PY
check "no value is cut at any width from 40 columns on" timeout -k 5 300 python3 "$scratch/widths.py" "$gannet" "$scratch/wide.jsonl"
expect 3 "nowhere" "so is what is not there" "$gannet" top "$scratch/nowhere"
mkfifo "$scratch/fifo"
expect 3 "is no regular file" "a FIFO is not waited for" timeout -k 5 300 "$gannet" top "$scratch/fifo"
finish
