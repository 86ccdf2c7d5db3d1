#!/bin/bash
# --version and the log name the software; ranks compare digests of the sources, not of files; the site's configuration file.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export GANNET_LOG=warn GANNET_CONF=
unset UCX_NET_DEVICES GANNET_TUNING GANNET_LOCAL SLURM_JOB_ID SLURM_ARRAY_JOB_ID SLURM_PROCID PMIX_RANK RANK XDG_CONFIG_HOME

for line in '^gannet [0-9]+\.[0-9]+\.[0-9]+$' '^commit  *([0-9a-f]{12}(-dirty)?|unknown)$' '^sources  *[0-9a-f]{64}$' '^UCX  *[0-9.]+$' \
	'^PMIx  *OpenPMIx [0-9]' '^hosts  *.' '^configuration  *none$'; do
	expect 0 "$line" "--version: $line" "$gannet" --version
done
expect 0 '^job  *12_3$' "in a job, its id" env SLURM_JOB_ID=14 SLURM_ARRAY_JOB_ID=12 SLURM_ARRAY_TASK_ID=3 "$gannet" --version

# The digest of two copies of the sources in different folders.
mkdir -p "$dir/one" "$dir/elsewhere/two"
for copy in one elsewhere/two; do
	for folder in src kernels transport data; do
		(cd "$GN_SOURCE" && find "$folder" -name '*.[chS]' -print0 | tar -c --null -T -) | tar -x -C "$dir/$copy"
	done
done
info() { sh "$GN_SOURCE/src/base/build-info" "$dir/$1"; }
check "two folders, one digest" test "$(info one)" = "$(info elsewhere/two)"
expect 0 'COMMIT "unknown"' "no commit outside of git" info one
echo >>"$dir/one/src/base/version.c"
check "a changed source, another digest" test "$(info one)" != "$(info elsewhere/two)"
sed -i '$d' "$dir/one/src/base/version.c"
check "changed back, the same" test "$(info one)" = "$(info elsewhere/two)"
echo >>"$dir/one/data/pack/pack.c"
check "another one of the data path's" test "$(info one)" != "$(info elsewhere/two)"

# A program whose file differs, as that of the same sources in another folder does.
cp "$gannet" "$dir/gannet" && echo >>"$dir/gannet"
cat >"$dir/rank" <<'RANK'
#!/bin/bash
[[ $PMIX_RANK == 0 ]] && exec "$@"
shift
exec "$(dirname "$0")/gannet" "$@"
RANK
chmod +x "$dir/rank"
check "made-up images" "$gannet" pack --out "$dir/data" --synthetic 8 --classes 2 --size 8x8
expect 0 '' "ranks of one source train together" timeout -k 5 300 env SLURM_JOB_ID=14 "$gannet" launch -n 2 -- "$dir/rank" "$gannet" train --data "$dir/data" \
	--model lenet --batch 2 --steps 1 --threads 1 --loader-threads 1 --log "$dir/log.jsonl"
for key in version commit ucx pmix job hosts; do
	expect 0 . "the start event has $key" "$GN_SOURCE/tests/cmd/jsonl" "$dir/log.jsonl" start "$key"
done

conf() { printf '%s\n' "$@" >"$dir/gannet.conf" && chmod 644 "$dir/gannet.conf"; }
site() { env GANNET_CONF="$dir/gannet.conf" "$@"; }
conf '# a site' "interfaces = eth9   # the fast one" 'local=/nvme' 'colour = blue' 'nonsense'
expect 0 "^configuration  *$dir/gannet.conf$" "--version names the file" site "$gannet" --version
expect 0 '^local disk  */nvme$' "and the local disk, for job scripts" site "$gannet" --version
expect 0 'gannet.conf:4: unknown key .colour.' "an unknown key is a warning with its line" site "$gannet" --version
expect 0 'gannet.conf:5: not KEY = VALUE' "and so is what is no setting" site "$gannet" --version
launched() { timeout -k 5 300 "$gannet" launch -n 1 -- sh -c 'echo "$UCX_NET_DEVICES $GANNET_LOCAL $GANNET_TUNING."'; }
export -f launched
export gannet
expect 0 '^interfaces  *eth9$' "and the interfaces" site "$gannet" --version
conf $'\xEF\xBB\xBFinterfaces = eth9' 'interfaces = eth8' 'tuning = "/t"' 'local = nvme' 'local = /my disk' 'local = /nvme'
expect 0 '^interfaces  *eth9$' "a byte order mark is skipped" site "$gannet" --version
for warning in '2: interfaces is already set in line 1' '3: tuning: the value contains quotes' '4: local: the path must start with /' \
	'5: local: the value contains spaces'; do
	expect 0 "WARN .*gannet.conf:$warning" "a warning: $warning" site "$gannet" --version
done
expect 0 '^local disk  */nvme$' "what is wrong is not used" site "$gannet" --version
# shellcheck disable=SC2016 # expanded by the inner shell
{
	expect 0 'eth9 /nvme \.' "the keys have an effect" site bash -c launched
	expect 0 'eth1 /nvme \.' "the user's own comes first" site UCX_NET_DEVICES=eth1 bash -c launched
}
expect 0 '^ *\.' "GANNET_CONF= is none" bash -c launched
echo >"$dir/table"
conf "tuning = $dir/table"
mkdir -p "$dir/home/.config/gannet"
expect 0 " $dir/table\." "the site's tuning table" site HOME="$dir/home" bash -c launched
expect 0 "^tuning table  *$dir/table$" "--version names it" site HOME="$dir/home" "$gannet" --version
: >"$dir/home/.config/gannet/tuning.jsonl"
expect 0 '^ *\.' "the user's own table comes first" site HOME="$dir/home" bash -c launched
conf "tuning = $dir/none"
expect 0 'gannet.conf:1: tuning table .*/none: No such file' "one that is not there is a warning" site HOME="$dir" bash -c launched
conf 'interfaces = eth9'
chmod 666 "$dir/gannet.conf"
expect 0 'gannet.conf is ignored' "a file that others may write to is not trusted" site "$gannet" --version
expect 0 '^ *\.' "and has no effect" site bash -c launched
if ((UID)); then
	skip "nor another user's" "this test is not root's"
else
	chmod 644 "$dir/gannet.conf" && chmod 755 "$dir" && chown 12345 "$dir/gannet.conf"
	expect 0 'gannet.conf is ignored' "nor another user's" site "$gannet" --version
fi
mkfifo "$dir/fifo"
expect 0 'fifo is not a regular file' "a fifo does not block" timeout -k 5 300 env GANNET_CONF="$dir/fifo" "$gannet" --version
expect 0 'nowhere: No such file' "a named one that is not there is a warning" env GANNET_CONF=/nowhere "$gannet" --version
finish
