# Web servers for tests of gannet stage: nginx, with its files in the folder $dir. Source it when dir and gannet are set.
# shellcheck shell=bash disable=SC2034,SC2154
no_web=
nginx=$(PATH=$PATH:/usr/sbin command -v nginx) || no_web='no nginx: apt-get install nginx-light'
"$gannet" stage --from http:// --to x 2>&1 | grep -q 'without libcurl' && no_web='built without libcurl'

free_ports() { # COUNT
	python3 -c '
import socket, sys
s = [socket.socket() for _ in range(int(sys.argv[1]))]
for x in s: x.bind(("127.0.0.1", 0))
print(*(x.getsockname()[1] for x in s))' "$1"
}
configure() { # NAME: a server with $dir/NAME.pid, and with what stands in standard input for its http
	cat >"$dir/$1.conf" <<CONF
pid $dir/$1.pid;
error_log $dir/error.log;
worker_processes 2;
events {}
http {
	client_body_temp_path $dir/t1; proxy_temp_path $dir/t2; fastcgi_temp_path $dir/t3; uwsgi_temp_path $dir/t4; scgi_temp_path $dir/t5;
$(cat)
}
CONF
}
answers() { python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1)' "$1" 2>/dev/null; } # PORT
start_server() { # NAME PORT
	"$nginx" -c "$dir/$1.conf" 2>"$dir/start.err" && until_true answers "$2" || { cat "$dir/start.err"; return 1; }
}
stop_servers() {
	local pid
	for pid in "$dir"/*.pid; do
		[[ ! -s $pid ]] || kill "$(cat "$pid")" 2>/dev/null
	done
}
