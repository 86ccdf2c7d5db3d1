#!/bin/bash
# gannet stage --from https://... over several nodes, with nginx: the server sends each byte once, whatever breaks off.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
if [ "$(id -u)" -ne 0 ] || ! unshare --uts true 2>/dev/null; then
	echo "1..0 # SKIP host names of their own need root"
	exit 0
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/gannet-fetch.XXXXXX")
trap 'stop_servers; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP
# shellcheck source=tests/data/web.sh
. "$GN_SOURCE/tests/data/web.sh"
[ -z "$no_web" ] || { echo "1..0 # SKIP $no_web"; exit 0; }
mkdir "$dir/www"
chmod 755 "$dir"
cd "$dir" || exit 1
head -c 40000000 /dev/urandom >www/file
: >www/empty
cp www/file was
sum=$(sha256sum www/file | cut -c 1-64)
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem 2>/dev/null
read -r port tls < <(free_ports 2)
configure nginx <<CONF
	log_format all '\$body_bytes_sent \$uri \$status "\$http_range" \$args';
	access_log $dir/access.log all;
	server {
		listen 127.0.0.1:$port sndbuf=65536;
		listen 127.0.0.1:$tls ssl;
		ssl_certificate $dir/cert.pem;
		ssl_certificate_key $dir/key.pem;
		root $dir/www;
		location /whole { alias $dir/www/file; max_ranges 0; }
		location /crawl { alias $dir/www/file; max_ranges 0; limit_rate 8m; }
		location /signed { alias $dir/www/file; if (\$arg_sig != "s3cret-sig") { return 403; } }
	}
CONF
check 'a web server' start_server nginx "$port"
export SSL_CERT_FILE=$dir/cert.pem GANNET_LOG=info
http=http://127.0.0.1:$port https=https://127.0.0.1:$tls

# Each rank is a node with a name of its own; rank BLIND does not trust the server.
cat >node <<'END'
use strict; my ($gannet, @arg) = @ARGV; my $rank = $ENV{PMIX_RANK};
system('hostname', "node$rank") == 0 or die;
$ENV{SSL_CERT_FILE} = '/etc/ssl/certs/ca-certificates.crt' if ($ENV{BLIND} // '') eq $rank;
open my $f, '>', "pid.$rank.tmp" or die; print $f $$; close $f; rename "pid.$rank.tmp", "pid.$rank";
# RANK:CALLS: it is killed right before its call of that number which changes its copy
my ($dies) = grep { s/^\Q$rank\E:// } split ' ', $ENV{DIES} // '';
my @before = $dies ? ($ENV{KILLER}, "$ENV{WORK}/$ENV{TO}/n$rank.gannet-part", $dies) : ();
exec @before, $gannet, 'stage', '--json', '--to', "$ENV{TO}/n$rank", @arg or die;
END
nodes() { # TO RANKS ADDRESS ARG...
	rm -f pid.* access.log
	kill -USR1 "$(cat nginx.pid)"
	DIES=${dies-} KILLER=$GN_BUILD/tests/train/kill_at_call WORK=$dir TO=$1 timeout -k 5 300 "$gannet" launch -n "$2" --keep-going -- unshare --uts perl node "$gannet" --from "${@:3}"
}
same() { # TO RANK...
	local n
	for n in "${@:2}"; do cmp was "$1/n$n" || return 1; done
	! find "$1" -mindepth 1 ! -name 'n[0-9]' ! -name '*.gannet-stage' ! -name '*.gannet-stage.lock' | grep .
}
sent() { # LEAST MOST: bytes of the file that the server has sent since nodes
	awk -v least="$1" -v most="$2" '{ sum += $1 } END { print sum; exit !(sum >= least && sum <= most) }' access.log
}

expect 0 '"nodes": 4, "failed_nodes": 0, .*"source_bytes": 40000000, "written_bytes": 160000000, .*"from": "http://.*/file", "to"' \
	'four nodes' nodes four 4 "$http/file"
check 'have the same bytes, and nothing beside them' same four 0 1 2 3
check 'of which the server sent each once' sent 40000000 40100000
# shellcheck disable=SC2016 # sh expands it
check 'to several of them' sh -c 'test "$(grep -c " 206 " access.log)" -ge 13'
expect 0 '"source_bytes": 0, "written_bytes": 0,' 'again: all were there' nodes four 4 "$http/file"
check 'and the server was only asked' sent 0 100
rm -f four/n2 four/n2.*
expect 0 '"source_bytes": 0, "written_bytes": 40000000,' 'a node without a copy' nodes four 4 "$http/file"
check 'gets it from the others' sent 0 100
check 'rightly' same four 2
expect 0 '"source_bytes": 40000000,' 'eight nodes, by https, with a digest' nodes eight 8 "$https/file" --sha256 "$sum"
check 'read each byte once, too' sent 40000000 40100000
check 'and have the same' same eight 0 1 2 3 4 5 6 7
expect 3 'does not have the SHA-256 of --sha256' 'with another digest' nodes wrong 2 "$http/file" --sha256 "${sum//[0-4]/5}"
check 'no node has anything' test -z "$(find wrong -mindepth 1 ! -name '*.lock')"
expect 3 'four/n. does not have the SHA-256' 'a copy that is there is held against it, too' nodes four 2 "$http/file" --sha256 "${sum//[0-4]/5}"
check 'and stays' same four 0 1
expect 0 '"failed_nodes": 0, "entries": 1, "data_bytes": 0' 'an empty file' nodes empty 2 "$http/empty"
check 'is empty' sh -c 'test -f empty/n1 && test ! -s empty/n1'
expect 3 'answered 404' 'no such file' nodes none 2 "$http/none"
export BLIND=1
expect 0 'node1: .*certificate.*gets everything from other nodes' 'a node that cannot read the server' nodes blind 3 "$https/file"
unset BLIND
check 'gets its copy from the others' same blind 0 1 2
check 'at no cost' sent 40000000 40100000
(umask 077; echo '?sig=s3cret-sig' >query)
silent() { nodes signed 2 "$http/signed" --query-file query >silent.out 2>&1 && same signed 0 1 && ! grep s3cret silent.out && ! grep -r s3cret signed; }
check 'an address that is signed, which nothing shows' silent
expect 0 'WARN.* each process reads the server for itself: .*PMI' 'tasks of a step that does not connect them' env SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_NTASKS=2 \
	SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_NODEID=0 timeout -k 5 300 "$gannet" stage --from "$http/file" --to unconnected
check 'read it, too' cmp was unconnected
# shellcheck disable=SC2016
check 'two processes without a launcher copy one after the other' sh -c '"$1" stage --from "$2" --to alone & "$1" stage --from "$2" --to alone && wait && cmp was alone' \
	sh "$gannet" "$http/file"

# without ranges
expect 0 '"source_bytes": 40000000, "written_bytes": 160000000,' 'a server without ranges' nodes whole 4 "$http/whole"
check 'is read by one node, which is said' grep 'no ranges: one node reads' <<<"$tap_output"
check 'sends the file once' sent 40000000 42000000
check 'to all' same whole 0 1 2 3

# what breaks off
chunks() { # FILE COUNT: more lines than that
	[ "$(wc -l <"$1" 2>/dev/null || echo 0)" -gt "$2" ]
}
kill_all() {
	dies='0:14 1:14 2:14' nodes dead 3 "$http/file" --threads 1 >dead.out 2>&1
	cat dead.out
	! ls -d dead/n[0-2] 2>/dev/null && [ -s dead/n1.gannet-part/journal ]
}
check 'all nodes killed' kill_all
expect 0 '"failed_nodes": 0,.*"kept_bytes": [1-9]' 'go on' nodes dead 3 "$http/file"
check 'rightly' same dead 0 1 2
check 'without what was there' sent 1 38000000
restart() { # TO WHAT: the server is stopped and started while one node reads a file without ranges, after WHAT
	local job
	nodes "$1" 2 "$http/crawl" >"$1.out" 2>&1 &
	job=$!
	until_true chunks "$1/n1.gannet-part/journal" 1 || return 1
	kill -TERM "$(cat nginx.pid)"
	until_true sh -c '! test -e nginx.pid'
	$2
	start_server nginx "$port"
	wait $job
}
expect 0 '' 'a server without ranges that is stopped in the middle' restart again true
check 'is read again' same again 0 1
replace() { head -c 40000000 /dev/urandom >www/new && mv www/new www/file; }
expect 3 '' 'one that has another file then' restart other replace
check 'is not mixed' sh -c 'grep "has changed on the server" other.out && ! test -e other/n0 && ! test -e other/n1'
finish
