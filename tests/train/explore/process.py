"""Starts of gannet, what they leave behind, and the folder in which an exploration works. Imported by tests/train/pairs.t and faults.t.

Each worker process of an exploration calls enter() once: as root it gets a mount and an IPC namespace of its own with an empty /dev/shm, so that
what is left there is a run's; without root nothing is said of /dev/shm.
"""
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

SOURCE = os.environ.get("GN_SOURCE") or os.path.realpath(__file__ + "/../../../..")
BUILD = os.path.abspath(os.environ.get("GN_BUILD") or SOURCE + "/build")
GANNET = BUILD + "/gannet"
HANG = 300  # seconds; no result depends on it but for what hangs
# What no output of ours has: a crash, a library's own report, a null pointer printed, a character that is no text.
GARBAGE = re.compile(r"Sanitizer|runtime error:|double free|free\(\)|corrupted|Segmentation|[Aa]ssertion|Caught signal|\(null\)|backtrace|UCX +ERROR"
                     r"|stack smashing|PMIX ERROR|[^\x09\x0a\x0d\x1b\x20-\x7e\u00a0-\uffff]")
CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000


def leave(words):
    """Ends a driver that was asked for what it does not know."""
    sys.exit(f"{os.path.basename(sys.argv[0])}: {words}")


def number(name, default, least=1):
    """An environment variable."""
    text = os.environ.get(name) or str(default)
    if not text.isdigit() or int(text) < least:
        leave(f"{name}='{text}' is no number of {least} or more")
    return int(text)


def begin():
    """Of a driver: what is missing, and an end by signals that removes its folder."""
    if not os.access(GANNET, os.X_OK):
        leave(f"there is no {GANNET}: GN_BUILD is the folder of a build")
    for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signal_number, lambda n, _: sys.exit(128 + n))


def excerpt(text, size=3000):
    """What a failure shows of a run: its errors and warnings, and its end."""
    said = [x for x in text[:-size].splitlines() if re.search(r" (ERROR|WARN) |^gannet ", x)]
    return "\n".join(said[:20]) + "\n...\n" * (len(text) > size) + text[-size:]


class Place:
    """Folders of this worker: work is its own, data is shared by all and only read."""
    work = data = None
    private = False  # /dev/shm is this worker's own


def enter(scratch):
    for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signal_number, lambda n, _: os._exit(128 + n))
    Place.data, Place.work = scratch + "/data", f"{scratch}/{os.getpid()}"
    os.makedirs(Place.work + "/tmp", exist_ok=True)
    if os.geteuid() == 0 and not Place.private:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS | CLONE_NEWIPC):
            return
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1G", "none", "/dev/shm"], check=True)
        Place.private = True


def environment(folder, more=None):
    """Of every start: what started this test must not speak for what it starts."""
    foreign = re.compile(r"^(SLURM_|PMIX_|PMI_|OMPI_|RANK$|WORLD_SIZE$|LOCAL_RANK$|LOCAL_WORLD_SIZE$|MASTER_|AZ_BATCH_|GANNET_)")
    base = {k: v for k, v in os.environ.items() if not foreign.match(k)}
    return {**base, "TMPDIR": Place.work + "/tmp", "HOME": folder, "UCX_WARN_UNUSED_ENV_VARS": "n", **(more or {})}


def marked(mark):
    """Process numbers whose environment has the mark: a run's, orphans included, but for those that have ended."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as f:
                    if mark.encode() in f.read():
                        with open(f"/proc/{entry}/stat") as s:
                            if s.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                                found.append(int(entry))
            except OSError:
                pass
    return found


def send(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass


class Run:
    """One start of a program: output into a file of folder, a session of its own, a mark in its environment."""
    count = 0

    def __init__(self, argv, folder, env=None, name="run"):
        Run.count += 1
        self.mark = f"GN_EXPLORED=m{os.getpid()}x{Run.count}x"
        self.argv, self.path, self.seconds = argv, f"{folder}/{name}{Run.count}.txt", None
        self.out = open(self.path, "wb")
        self.started = time.monotonic()
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.out, stderr=subprocess.STDOUT, start_new_session=True,
                                        env=environment(folder, {**(env or {}), **dict([self.mark.split("=")])}), cwd=folder)

    def wait(self, limit=HANG):
        """The exit code, or None when it hangs."""
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        self.seconds = time.monotonic() - self.started
        return self.process.returncode

    def alive(self):
        return self.process.poll() is None

    def text(self):
        with open(self.path, "rb") as f:
            return f.read().decode("utf-8", "replace")

    def left(self, patience=30):
        """Processes that are still there; those that are about to end have a while for it."""
        until = time.monotonic() + patience
        while (found := marked(self.mark)) and time.monotonic() < until:
            time.sleep(0.02)
        return found

    def end(self):
        for pid in marked(self.mark):
            send(pid, signal.SIGKILL)
        self.process.wait()
        self.out.close()

    def ranks(self):
        """Process numbers of the ranks that train now, by their number."""
        found = {}
        for pid in marked(self.mark):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    m = re.search(rb"(?:^|\0)(?:PMIX_RANK|RANK)=(\d+)", f.read())
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
                if b"train" in words[:2]:
                    found[int(m[1]) if m else 0] = pid
            except OSError:
                pass
        return found


def remains(run, killed=0, keeps_tmp=False, limit=30):
    """Processes and files that a run has left behind, as words; they are removed, but for temporary files that are kept. UCX unlinks a shared file
    as soon as it has made it: each rank that is killed may leave the one that it was about to unlink."""
    what = []
    if pids := run.left(limit):
        what.append("processes " + " ".join(f"{p}:{command_of(p)!r}" for p in pids))
    if Place.private:
        for n in [n for n in os.listdir("/dev/shm") if n.startswith("ucx_shm_posix_")][:killed]:
            os.unlink("/dev/shm/" + n)
    for folder in ["/dev/shm"] * Place.private + [Place.work + "/tmp"] * (not keeps_tmp):
        if names := os.listdir(folder):
            what.append(f"{folder}: {' '.join(names[:4])}")
            for n in names:
                p = os.path.join(folder, n)
                shutil.rmtree(p) if os.path.isdir(p) else os.unlink(p)
    return what


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            return f.read().replace("\0", " ")[:60]
    except OSError:
        return "?"


# libpmix in the launcher, and UCX in a rank that connects by shared memory, say it themselves of a rank that is killed meanwhile
OF_KILLED = re.compile(r"^\[\S+\] PMIX ERROR: UNREACHABLE in file .*$|^.* mm_(?:posix|ep)\.c:\d+ +UCX +ERROR (?:open\(file_name=/proc/\d+/fd/|mm ep failed to connect).*$", re.M)


def garbage_in(text, killed=False):
    """What is no text of ours; killed: ranks were killed while others connected to them."""
    text = OF_KILLED.sub("", text) if killed else text
    m = GARBAGE.search(text)
    return text[max(0, m.start() - 200):m.end() + 200] if m else ""


def read_log(path):
    """Lines of a log, and what is wrong with it."""
    lines, wrong = [], []
    try:
        with open(path, "rb") as f:
            raw = f.read()
    except OSError as e:
        return [], [str(e)]
    if raw and not raw.endswith(b"\n"):
        wrong.append("the last line is incomplete")
    for i, line in enumerate(raw.splitlines()):
        try:
            lines.append(json.loads(line, parse_constant=lambda x, i=i: wrong.append(f"line {i + 1} has {x}")))
        except ValueError as e:
            wrong.append(f"line {i + 1} is no JSON: {e}: {line[:80]}")
    return [x for x in lines if isinstance(x, dict) and "event" in x], wrong


def tool(folder, *argv, program=GANNET, limit=HANG):
    """A gannet command that ends by itself: (exit code, output, errors)."""
    r = subprocess.run([program, *argv], capture_output=True, text=True, errors="replace", timeout=limit, cwd=folder, stdin=subprocess.DEVNULL,
                       env=environment(folder, {"OMP_NUM_THREADS": "1"}))
    return r.returncode, r.stdout, r.stderr


def pack(scratch, calls):
    """Runs gannet in scratch/data for each list of arguments, once; ends the program where one fails."""
    Place.data, Place.work = scratch + "/data", scratch + "/pack"
    os.makedirs(Place.data, exist_ok=True)
    os.makedirs(Place.work + "/tmp", exist_ok=True)
    if os.path.exists(Place.data + "/ready"):
        return
    for argv in calls:
        rc, _, err = tool(Place.data, *argv)
        if rc:
            print(f"not ok 1 - the data are packed\n# gannet {' '.join(argv)}: {err.strip()}\n1..1", flush=True)
            sys.exit(1)
    open(Place.data + "/ready", "w").close()
