"""Nodes without Slurm: one network, process, IPC and host-name namespace each, and links that can be cut. Needs root.

The bridges lie in a namespace of their own, and names of namespaces in this worker's mounts: of this machine's network nothing changes, and all goes
with the worker.
"""
import os
import subprocess

from process import Run

COUNT = 4
START = """ranks=$1 nodes=$2 lab=$3 codes=$4
shift 4
r=0
while [ $r -lt $ranks ]; do
	n=$((r * nodes / ranks + 1))
	(
		RANK=$r WORLD_SIZE=$ranks nsenter --net=/run/netns/$lab-$n unshare --uts --ipc --pid --mount --fork --kill-child --mount-proc \
			sh -c 'hostname "$0"; "$@"; exit $?' l$n "$@"
		echo $? >"$codes/$r"
	) &
	r=$((r + 1))
done
wait"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, env={**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"})


class Lab:
    """The nodes of this worker, made when the first fault needs them."""
    name = None
    runs = 0

    @classmethod
    def begin(cls):
        if cls.name:
            cls.heal(*range(1, COUNT + 1))
            return
        os.makedirs("/run/netns", exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
        name = f"gnf{os.getpid()}"
        ip("netns", "add", name + "-hub")
        for bridge in ("whole", "apart"):
            ip("-n", name + "-hub", "link", "add", bridge, "type", "bridge")
            ip("-n", name + "-hub", "link", "set", bridge, "up")
        for i in range(1, COUNT + 1):
            ip("netns", "add", f"{name}-{i}")
            ip("-n", name + "-hub", "link", "add", f"l{i}", "type", "veth", "peer", "name", "eth0", "netns", f"{name}-{i}")
            ip("-n", name + "-hub", "link", "set", f"l{i}", "master", "whole", "up")
            ip("-n", f"{name}-{i}", "addr", "add", f"10.84.0.{i}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", f"{name}-{i}", "link", "set", device, "up")
        cls.name = name

    @classmethod
    def cut(cls, *nodes):
        """What these nodes send to the others is lost without a word, and the reverse; they reach each other."""
        for i in nodes:
            ip("-n", cls.name + "-hub", "link", "set", f"l{i}", "master", "apart")

    @classmethod
    def heal(cls, *nodes):
        for i in nodes:
            ip("-n", cls.name + "-hub", "link", "set", f"l{i}", "master", "whole")


def node_of(rank, ranks, nodes):
    return rank * nodes // ranks + 1


class NodesRun(Run):
    """Ranks on several nodes, which nothing but MASTER_ADDR connects."""

    def __init__(self, argv, folder, ranks, nodes, env):
        self.codes_folder, self.size = folder + "/codes", ranks
        os.makedirs(self.codes_folder, exist_ok=True)
        for name in os.listdir(self.codes_folder):
            os.unlink(f"{self.codes_folder}/{name}")
        Lab.runs += 1
        more = {"MASTER_ADDR": "10.84.0.1", "MASTER_PORT": str(10000 + Lab.runs % 10000)}
        start = ["sh", "-c", START, "sh", str(ranks), str(nodes), Lab.name, self.codes_folder, *argv]
        super().__init__(start, folder, {**env, **more}, "nodes")

    def codes(self):
        found = {}
        for r in range(self.size):
            try:
                with open(f"{self.codes_folder}/{r}") as f:
                    found[r] = int(f.read())
            except (OSError, ValueError):
                found[r] = 124
        return found


def usable():
    """Whether this machine has what nodes need."""
    try:
        tried = subprocess.run(["unshare", "--net", "--mount", "--uts", "ip", "link"], capture_output=True, check=False)
        return os.geteuid() == 0 and tried.returncode == 0
    except OSError:
        return False
