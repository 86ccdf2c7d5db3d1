# shellcheck shell=bash disable=SC2154 # dir, net, port and the rest are set in slurm/vcluster
# Accounting of the virtual cluster (--accounting): MariaDB and slurmdbd, of the calling user, with data, sockets and port of their own.

need_accounting() {
	local program missing=()
	for program in slurmdbd sacct sacctmgr mariadbd mariadb-install-db my_print_defaults; do
		command -v "$program" >/dev/null || missing+=("$program")
	done
	((${#missing[@]} == 0)) ||
		die 1 "--accounting: no ${missing[*]}: slurm/install-packages accounting, or apt-get install $(accounting_packages)"
}

accounting_packages() { awk '$1 == "accounting" { printf "%s%s", sep, $2; sep = " " }' "$here/packages" 2>/dev/null || true; }

# Only by its socket, which nobody but the calling user may open.
start_mariadb() {
	local user
	user=$(id -un)
	mkdir -p "$dir/db"
	chmod 700 "$dir/db"
	mariadb-install-db --no-defaults --user="$user" --datadir="$dir/db/data" --auth-root-authentication-method=socket \
		--auth-root-socket-user="$user" --skip-test-db --skip-name-resolve --innodb-log-file-size=8M >"$dir/log/mariadb-install-db.out" 2>&1
	start_daemon mariadbd mariadbd --no-defaults --user="$user" --datadir="$dir/db/data" --socket="$dir/db/socket" \
		--pid-file="$dir/db/pid" --skip-networking --innodb-buffer-pool-size=32M --innodb-log-file-size=8M --tmpdir="$dir/db"
	within 60 test -S "$dir/db/socket"
}

start_slurmdbd() {
	(umask 077 && cat >"$dir/conf/slurmdbd.conf") <<CONF
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
DbdHost=localhost
DbdAddr=$net.254
DbdPort=$((port + 2))
SlurmUser=root
LogFile=$dir/log/slurmdbd.log
PidFile=$dir/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=gannet
CONF
	# The database's library has no other way to be told of a socket.
	start_daemon slurmdbd env SLURM_CONF="$dir/conf/slurm.conf" MYSQL_UNIX_PORT="$dir/db/socket" slurmdbd -D
	within 60 env SLURM_CONF="$dir/conf/slurm.conf" sacctmgr -n list cluster
	SLURM_CONF=$dir/conf/slurm.conf sacctmgr -i add cluster "gannet-$id" >"$dir/log/sacctmgr.out" 2>&1
}
