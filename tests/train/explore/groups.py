"""Groups of ranks that go on when some are lost, by tests/transport/loss_probe, which draws groups and faults (kill, stop, late) by the seed. A rank
that is not killed ends: all sums are right, or it is told that it was lost itself (stopped for too long). A stall is wrong."""
import os
import re

import ways
from process import BUILD, GANNET, HANG, Run, garbage_in, remains

# three nodes with two network devices: messages have fragments on both
RAILS = """mount -t sysfs none /sys && ip link set lo up
for i in 0 1; do
	ip link add r$i type veth peer name p$i && ip addr add 10.$i.0.1/24 dev r$i && ip link set r$i up && ip link set p$i up || exit
done
UCX_NET_DEVICES=r0,r1 exec "$@" """
ON_NODE = 'hostname "node$((PMIX_RANK % 3))" && exec "$0" "$@"'


def command(way, seed):
    transport = "auto" if way.name.endswith("auto") else "tcp"
    probe = [BUILD + "/tests/transport/loss_probe", transport, "random", str(seed)]
    launch = [GANNET, "launch", "-n", "8", "--keep-going", "--grace", "8", "--"]
    if way.place == "rails":
        return ["unshare", "--net", "--mount", "sh", "-c", RAILS, "sh", *launch, "unshare", "--uts", "sh", "-c", ON_NODE, *probe]
    return [*launch, *probe]


def perform(fault, folder):
    """Problems and the text of one run."""
    problems = []
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    env = {**ways.limits(), "GANNET_HEARTBEAT_TIMEOUT": "2.5", "GANNET_STALL_TIMEOUT": "60", "PATH": path}
    run = Run(command(fault.way, fault.seed), folder, env, "groups")
    code, text = run.wait(HANG), run.text()
    if code is None:
        problems.append(("hang", f"after {HANG} s"))
        run.end()
    lost = len(re.findall(r"was killed by signal 9 \(Killed\)$", text, re.M))
    wrong = re.findall(r"^rank \d+: [^0-9i].*$|^.*ended with code.*$", text, re.M)
    problems += [("groups", w) for w in wrong]
    told = len(re.findall(r"^rank \d+: (?:\d|is lost)", text, re.M))
    if told + lost != fault.ranks:
        problems.append(("groups", f"{told} ranks have told how they ended and {lost} were killed, of {fault.ranks}"))
    problems += [("remains", w) for w in remains(run, lost)]
    if garbage := garbage_in(text, killed=True):
        problems.append(("garbage", garbage))
    run.end()
    return problems, text, run

