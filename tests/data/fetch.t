#!/bin/bash
# gannet stage --from https://...: with nginx, a certificate authority of its own, tokens, ranges, and everything that can break off.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
dir=$(mktemp -d "${TMPDIR:-/tmp}/gannet-fetch.XXXXXX")
trap 'stop_servers; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP
# shellcheck source=tests/data/web.sh
. "$GN_SOURCE/tests/data/web.sh"
[ -z "$no_web" ] || { echo "1..0 # SKIP $no_web"; exit 0; }

mkdir "$dir/www" "$dir/out"
chmod 755 "$dir"
head -c 40000000 /dev/urandom >"$dir/www/file"
: >"$dir/www/empty"
sum=$(sha256sum "$dir/www/file" | cut -c 1-64)
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout "$dir/ca.key" -out "$dir/ca.pem" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj /CN=127.0.0.1 -keyout "$dir/key.pem" -out "$dir/request" 2>/dev/null
openssl x509 -req -in "$dir/request" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days 2 -extfile <(echo subjectAltName=IP:127.0.0.1) -out "$dir/cert.pem" 2>/dev/null
read -r port tls other date_port < <(free_ports 4)
configure nginx <<CONF
	log_format all '\$uri \$args \$status \$body_bytes_sent "\$http_authorization" "\$http_range"';
	log_format closed '\$msec \$uri \$status';
	access_log $dir/access.log all;
	limit_req_zone \$server_port zone=few:1m rate=20r/s;
	server {
		listen 127.0.0.1:$port;
		listen 127.0.0.1:$tls ssl;
		ssl_certificate $dir/cert.pem;
		ssl_certificate_key $dir/key.pem;
		root $dir/www;
		location /busy { alias $dir/www/file; limit_req zone=few; limit_req_status 429; }
		location /slow { alias $dir/www/file; limit_rate 8m; }
		location /whole { alias $dir/www/file; max_ranges 0; }
		location /private { alias $dir/www/file; if (\$http_authorization != "Bearer s3cret-token") { return 401; } }
		location /signed { alias $dir/www/file; if (\$arg_sig != "s3cret-sig") { return 403; } }
		location /closed {
			alias $dir/www/file;
			access_log $dir/closed.log closed;
			add_header Retry-After 3 always;
			if (-f $dir/closed) { return 503; }
		}
		location /away { return 302 https://127.0.0.1:$other/file; }
	}
	server { listen 127.0.0.1:$other ssl; ssl_certificate $dir/cert.pem; ssl_certificate_key $dir/key.pem; root $dir/www; access_log $dir/other.log all; }
CONF
check 'a web server' start_server nginx "$port"
export SSL_CERT_FILE=$dir/ca.pem GANNET_LOG=debug
http=http://127.0.0.1:$port https=https://127.0.0.1:$tls
stage() { timeout -k 5 300 "$gannet" stage --from "$@"; }
same() { cmp "$dir/www/file" "$dir/out/$1" && [[ $(find "$dir/out" -name "$1.*" ! -name "$1.gannet-stage" | wc -l) == 0 ]]; }

expect 0 '40.0 MB in .* 0.0 MB were there' 'by http' stage "$http/file" --to "$dir/out/a"
check 'the same bytes, and nothing beside them' same a
expect 0 '"bytes": 40000000, "copied_bytes": 40000000, "kept_bytes": 0' 'by https, with a digest' stage "$https/file" --to "$dir/out/new/b" --sha256 "$sum" --json
check "in several requests" test "$(grep -c " 206 " "$dir/access.log")" -ge 5
expect 0 'was there' 'the digest says that it is there' stage "$https/file" --to "$dir/out/new/b" --sha256 "$sum"
expect 1 'is there; --sha256 would tell' 'a file that may be another one is not replaced' stage "$http/file" --to "$dir/out/a"
expect 0 '0.0 MB in' 'an empty file' stage "$http/empty" --to "$dir/out/empty"
expect 3 'does not have the SHA-256.*nothing is kept' 'another digest' stage "$http/file" --to "$dir/out/c" --sha256 "${sum//[0-4]/5}"
check 'and nothing of it' test -z "$(find "$dir/out" -name 'c*')"
expect 0 '40.0 MB in' 'a server without ranges' stage "$http/whole" --to "$dir/out/whole"
check 'has the same bytes, too' same whole
expect 3 'answered 404' 'no such file' stage "$http/none" --to "$dir/out/d"
expect 0 'answered 429; again in' 'too many requests: again, later' stage "$http/busy" --to "$dir/out/busy"
check 'and all of it' same busy
expect 1 'certificate|SSL_CERT_FILE' 'a certificate of an unknown authority' env SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt timeout -k 5 300 "$gannet" stage \
	--from "$https/file" --to "$dir/out/e"

expect 1 "127.0.0.1:1/x: .*[Cc]ouldn.t connect" 'nobody there' stage http://127.0.0.1:1/x --to "$dir/out/e"

# secrets
(umask 077; echo s3cret-token >"$dir/token"; echo '?sig=s3cret-sig' >"$dir/query")
expect 1 'answered 401: it wants --token-file' 'without the token' stage "$https/private" --to "$dir/out/f"
expect 0 '40.0 MB' 'with it' stage "$https/private" --to "$dir/out/f" --token-file "$dir/token"
expect 0 '40.0 MB' 'with a signature' stage "$http/signed" --to "$dir/out/g" --query-file "$dir/query"
silent() { ! { stage "$https/away" --to "$dir/out/h" --token-file "$dir/token"; stage "$http/signed" --to "$dir/none/../../x/" --query-file "$dir/query"; } 2>&1 | grep s3cret; }
check 'no secret is in what it prints' silent
check 'nor at the host that another refers to' sh -c 'grep -q 206 "$1" && ! grep s3cret "$1"' sh "$dir/other.log"
check 'nor in a file' sh -c '! grep -rl s3cret "$1"' sh "$dir/out"
expect 2 'for https:// only' 'no token over http' stage "$http/private" --to "$dir/out/i" --token-file "$dir/token"
chmod 644 "$dir/token"
expect 2 'mode 600' 'a token that others can read' stage "$https/private" --to "$dir/out/i" --token-file "$dir/token"
expect 2 'no user or password' 'a password in the address' stage http://me:pass@127.0.0.1/x --to "$dir/out/i"
expect 0 'other users of this machine see the query' 'a query on the command line' stage "$http/signed?sig=s3cret-sig" --to "$dir/out/i"

# what breaks off
has_some() { [[ $(tail -n 1 "$1.gannet-fetch.state" 2>/dev/null) == *1* ]]; } # FILE: an eighth or more of the ranges are there
killed() {
	local pid
	"$gannet" stage --from "$http/slow" --to "$dir/out/k" --threads 1 2>/dev/null &
	pid=$!
	until_true has_some "$dir/out/k" || return 1
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	[[ ! -e $dir/out/k ]]
}
check 'killed: nothing under its name' killed
going_on() {
	stage "$http/slow" --to "$dir/out/k" --json >"$dir/row" || return 1
	cat "$dir/row"
	python3 -c 'import json, sys; row = json.load(open(sys.argv[1])); sys.exit(not (row["kept_bytes"] >= 8 << 20 and row["copied_bytes"] + row["kept_bytes"] == 40000000))' "$dir/row"
}
check 'the next run goes on' going_on
check 'with the same bytes' same k
check 'killed again' sh -c 'mv "$1" "$2"' sh "$dir/out/k" "$dir/k"
check 'and again' killed
cp "$dir/www/file" "$dir/www/new"
printf x | dd of="$dir/www/new" conv=notrunc status=none
touch -d '+1 hour' "$dir/www/new"
mv "$dir/www/new" "$dir/www/file"
expect 0 'has changed since the last run: its copy begins anew' 'another file on the server' stage "$http/slow" --to "$dir/out/k" --threads 8
check 'is the one that is copied' same k
two() {
	local pid
	stage "$http/slow" --to "$dir/out/two" --threads 3 --json >"$dir/row2" &
	pid=$!
	until_true has_some "$dir/out/two" && stage "$http/slow" --to "$dir/out/two" --json && wait "$pid" && same two
}
expect 0 '"was_there": true' 'of two at once one copies, and the other finds it there' two
check 'a copy in the making' sh -c 'mv "$1" "$2"' sh "$dir/out/k" "$dir/k"
check 'is killed' killed
rm -f "$dir/out/k.gannet-fetch"
expect 0 '40.0 MB in .* 0.0 MB were there' 'and its bytes are removed: nothing is taken for there' stage "$http/slow" --threads 8 --to "$dir/out/k"
check 'all bytes' same k
restarted() {
	local pid
	stage "$http/slow" --to "$dir/out/r" --threads 1 2>"$dir/err" &
	pid=$!
	until_true has_some "$dir/out/r" || return 1
	kill -TERM "$(cat "$dir/nginx.pid")"
	until_true eval '! answers "$port"' || return 1
	start_server nginx "$port" && wait "$pid" && grep -q 'again in' "$dir/err" && same r
}
check 'a server that is stopped and started in the middle' restarted

# A server that is closed for a while says for how long, by seconds or a date; without that the first pause is of 1 s at most.
closed() { # the pause is what the server says, and the client keeps to it
	local pid
	touch "$dir/closed"
	: >"$dir/closed.log"
	stage "$http/closed" --to "$dir/out/closed" 2>"$dir/err" &
	pid=$!
	until_true grep -q ' 503$' "$dir/closed.log"
	rm "$dir/closed"
	wait "$pid" || { cat "$dir/err"; return 1; }
	cat "$dir/err" "$dir/closed.log"
	grep -Eq 'answered 503; again in [3-9]\.[0-9] s' "$dir/err" && same closed || return 1
	# two requests that are apart by what was asked for, or more
	awk 'NR == 1 { first = $1; bad = $3 != 503 } NR == 2 { exit bad || $3 != 206 || $1 - first < 3 }' "$dir/closed.log"
}
check 'Retry-After in seconds' closed
# A date an hour away is more than the longest pause, which nobody waits for here.
configure date <<CONF
	access_log off;
	server {
		listen 127.0.0.1:$date_port;
		add_header Retry-After "$(LC_ALL=C date -u -d '+1 hour' '+%a, %d %b %Y %T GMT')" always;
		return 503;
	}
CONF
closed_until() {
	local pid
	start_server date "$date_port" || return 1
	"$gannet" stage --from "http://127.0.0.1:$date_port/file" --to "$dir/out/until" 2>"$dir/err" &
	pid=$!
	until_true grep 'again in' "$dir/err"
	kill "$pid"
	wait "$pid"
	cat "$dir/err"
	grep -Eq 'answered 503; again in [3-6][0-9]\.[0-9] s' "$dir/err"
}
check 'Retry-After as a date' closed_until
# Without ranges each try begins anew: one that comes no further than those before counts as a failure.
cat >"$dir/half" <<'END'
import http.server, sys
class Half(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.wfile.write(bytes(500000))
        self.close_connection = True
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Half)
print(server.server_port, flush=True)
server.serve_forever()
END
no_further() {
	local half=$dir/half.port server pid
	python3 "$dir/half" >"$half" &
	server=$!
	until_true test -s "$half"
	timeout -k 5 300 "$gannet" stage --from "http://127.0.0.1:$(cat "$half")/file" --to "$dir/out/half" 2>"$dir/err" &
	pid=$!
	# shellcheck disable=SC2016 # sh expands it
	until_true sh -c 'test "$(grep -c "again in" "$1")" -ge 3' sh "$dir/err"
	kill "$pid" "$server"
	wait "$pid" "$server"
	cat "$dir/err"
	grep 'again in' "$dir/err" | sed -n 3p | grep -E 'again in [2-4]\.[0-9] s'
}
check 'a server that always breaks off at the same place is asked more and more seldom' no_further
finish
