"""How a combination is started, interrupted and started again: gannet launch, ranks that meet by RANK and MASTER_ADDR, and mpirun."""
import os
import shlex
import signal
import socket
import time

from factors import DEFAULT, arguments, program
from process import GANNET, HANG, Run, garbage_in, remains

# $1 ranks, then the command: ends with the first code that is not 0, of the ranks in their order
BY_RANK = """n=$1; shift; rank=0 pids=
while [ $rank -lt $n ]; do RANK=$rank "$@" & pids="$pids $!"; rank=$((rank + 1)); done
code=0; for pid in $pids; do wait $pid; c=$?; [ $code != 0 ] || code=$c; done; exit $code"""
RATES = {"adamw": 0.001, "lamb": 0.002, "rmsprop": 0.0005}


def free_port():
    """That nothing listens on, from those that the system gives to nobody who does not ask; each worker has a hundred of its own."""
    first = 10000 + os.getpid() % 97 * 100
    for port in range(first, first + 100):
        with socket.socket() as s:
            try:
                s.bind(("0.0.0.0", port))
                return port
            except OSError:
                pass
    raise OSError("no free port")


def started(c, command, folder):
    """(command under the combination's launcher, its environment)."""
    if c["ranks"] == "1":
        return command, {}
    if c["launcher"] == "mpirun":
        return ["mpirun", "--oversubscribe", "--allow-run-as-root", "--quiet", "-n", c["ranks"], *command], {}
    if c["launcher"] == "env":
        secret = folder + "/secret"
        if not os.path.exists(secret):
            with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
                f.write(os.urandom(32))
        return ["sh", "-c", BY_RANK, "sh", c["ranks"], *command], {"WORLD_SIZE": c["ranks"], "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                                                                  "GANNET_SECRET_FILE": secret}
    return [GANNET, "launch", "-n", c["ranks"], *(["--keep-going"] if c["elastic"] != DEFAULT else []), "--", *command], {}


class Trial:
    """One combination in one folder, through interruptions to its end."""

    def __init__(self, c, folder, total, batch, more, problems):
        self.c, self.folder, self.total, self.batch, self.more, self.problems, self.commands = c, folder, total, batch, more, problems, []

    def command(self, c, total):
        rate = RATES.get(c["optimizer"], 0.02) * c.get("scale", 1)
        return [program(c), "train", *arguments(c, self.folder), "--batch", str(self.batch), "--steps", str(total), "--lr", repr(rate), "--checkpoint",
                self.folder + "/ckpt", "--log", self.folder + "/log.jsonl", "--log-every", "1", *self.more]

    def start(self, c, total, resume):
        command, env = started(c, self.command(c, total) + ["--resume", "auto"] * resume, self.folder)
        self.commands.append(shlex.join(command))
        return Run(command, self.folder, env={"OMP_WAIT_POLICY": "passive", **env})

    def finish(self, run, killed=False):
        """(exit code or None, text); what it left behind is a problem, but after a kill of the launcher."""
        rc = run.wait()
        if rc is None:
            self.problems.append(("hang", f"more than {HANG} s: {run.text()[-600:]}"))
            run.end()
            return None, run.text()
        if (left := remains(run)) and not killed:
            self.problems.append(("remains", "; ".join(left)))
        if not killed and rc not in range(7):
            self.problems.append(("signal", f"code {rc}: {run.text()[-400:]}"))
        if found := garbage_in(run.text()):
            self.problems.append(("garbage", found))
        run.end()
        return rc, run.text()

    def whole(self, resume=False):
        return self.finish(self.start(self.c, self.total, resume))

    def half(self, c):
        """Half of the steps, with c's ranks."""
        return self.finish(self.start(c, self.total // 2, False))

    def broken(self, how, steps):
        """Until so many steps are logged, then SIGTERM or SIGKILL for what was started. The code is 0 where it may be started again."""
        run, until = self.start(self.c, self.total, False), time.monotonic() + HANG
        while run.alive() and time.monotonic() < until and self.logged() < steps:
            time.sleep(0.002)
        if run.alive():
            run.process.send_signal(signal.SIGTERM if how == "term" else signal.SIGKILL)
        rc, text = self.finish(run, killed=how == "kill")
        if how == "kill":
            return (0 if rc in (0, -signal.SIGKILL) else rc), text
        if rc not in (None, 0, 2, 5):
            self.problems.append(("code", f"SIGTERM gave {rc}: {text[-500:]}"))
        return (0 if rc == 5 else rc), text

    def logged(self):
        try:
            with open(self.folder + "/log.jsonl") as f:
                return f.read().count('"event": "step"')
        except OSError:
            return 0
