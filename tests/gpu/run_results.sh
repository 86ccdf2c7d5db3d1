# shellcheck shell=bash
# For tests/gpu/run, which sources it: points, limits, and the results folder. Of run it uses build, results, deadline, limits, only, parts,
# slim and part; it gives log (what the last command printed) and left (the parts that a limit has cut).
points=0 failed=0
declare -A left=()
log=$results/running.log
log_bytes=$((15 << 20)) # of a file of results; of what is longer the first part is kept
export XDG_CACHE_HOME=$build/cache # cuDNN's plans: kept across parts, and for the next call

begin_results() {
	local fifo=$build/output.fifo
	rm -f "$fifo"
	mkfifo "$fifo"
	exec 4>&1
	tee "$results/output.txt" <"$fifo" >&4 &
	tee_pid=$!
	exec >"$fifo" 3>&1
	cleanup=("end_command" "stop_samples" "stop_peer" "${cleanup[@]}")
	[[ ! $gpu ]] || start_samples
}
# The GPU's state, once a second: what was sampled in a part goes behind the logs of its commands.
samples_pid=''
start_samples() {
	local reasons=clocks_event_reasons.active # of drivers before 535: clocks_throttle_reasons
	nvidia-smi --query-gpu=$reasons --format=csv,noheader >/dev/null 2>&1 || reasons=clocks_throttle_reasons.active
	rm -f "$build/samples"
	# it appends: bring_samples takes away what is there
	nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,memory.used,$reasons \
		--format=csv,nounits -l 1 >>"$build/samples" 2>/dev/null 3>&- 4>&- &
	samples_pid=$!
}
stop_samples() { [[ ! $samples_pid ]] || kill "$samples_pid" 2>/dev/null; samples_pid=''; }
bring_samples() {
	[[ -s $build/samples ]] || return 0
	cp "$build/samples" "$build/samples.part" && : >"$build/samples"
	keep_log "the GPU, once a second" "$build/samples.part"
}
comment() { sed 's/^/# /'; }
# Lines of the last command, as comments.
show() { grep -hE -e "$1" "$log" | sed -E 's/^(# )?/# /'; }

point() { # "ok"|"not ok" TEXT
	points=$((points + 1))
	[[ $1 == ok ]] || failed=$((failed + 1))
	printf '%s %d - %s\n' "$1" "$points" "$2" | tee -a "$results/tests.tap"
}
# target CONDITION TEXT: a speed that is wanted; to miss it fails nothing
target() {
	points=$((points + 1))
	if eval "$1"; then printf 'ok %d - %s\n' "$points" "$2"; else printf 'not ok %d - %s # TODO a speed that is wanted\n' "$points" "$2"; fi |
		tee -a "$results/tests.tap"
}

# append FILE: standard input, as far as it has room
append() {
	local room=$((log_bytes - $(stat -c %s "$results/$1" 2>/dev/null || echo 0)))
	if ((room > 0)); then head -c "$room" >>"$results/$1"; fi
	cat >/dev/null
}
# keep_log TITLE FILE
keep_log() {
	{ printf '==== %d s, %s: %s\n' "$SECONDS" "$part" "$1" && cat "$2" && echo; } | append logs.txt
}
# result WHAT JSON: of a benchmark
result() {
	[[ ! $2 ]] || printf '{"part": "%s", "what": "%s", "result": %s}\n' "$part" "$1" "$2" | append bench.jsonl
}
# Rows of a table, on standard output as comments, too.
table() { tee >(append table.txt) | comment; }

finish() {
	local list=
	stop_peer
	stop_samples
	for part in "${parts[@]:1}"; do [[ ! ${left[$part]-} ]] || list+=${list:+,}$part; done
	list=${list:-${left[build]:+build}} # which every part does
	printf '1..%d\n' "$points" | tee -a "$results/tests.tap"
	[[ ! $list ]] || printf '# limits cut some: go on with --only %s\n' "$list"
	bring_plans
	rm -f "$log"
	[[ ! $slim ]] || make_slim
	printf '# %d s; results in %s\n' "$SECONDS" "$results"
	exec >&4 3>&-
	wait "$tee_pid"
	exit $((failed > 0))
}

# --- limits ---

part_end=0
limit_part() { # PART
	part_end=0
	[[ ! ${limits[$1]-} ]] || part_end=$((SECONDS + limits[$1]))
	((!deadline || (part_end && part_end < deadline))) || part_end=$deadline
}
is_over() { ((part_end && SECONDS >= part_end)); }
# bounded SECONDS COMMAND...: ends it then, or with the part; exit code 124 or 137
bounded() {
	local seconds=$1
	shift
	((!part_end || part_end - SECONDS >= seconds)) || seconds=$((part_end - SECONDS))
	((seconds > 0)) || return 124
	# in the background, so that a signal ends this script at once, and the command with it
	timeout -k 5 "$seconds" "$@" <&0 &
	command_pid=$!
	wait "$command_pid"
	local code=$?
	command_pid=''
	return "$code"
}
command_pid=''
end_command() { [[ ! $command_pid ]] || { kill "$command_pid" && printf '# interrupted; results in %s\n' "$results" >&3; } 2>/dev/null; }
# within SECONDS COMMAND...: one of our programs, or a test that starts them. Python, the shell's tools and what PyTorch brings see the
# caller's environment.
within() { LD_LIBRARY_PATH=$nvidia_path bounded "$@"; }
# cut CODE NAME: a command ended with that code because of the part's limit: a skip
cut() {
	[[ $1 == @(124|137) ]] && is_over || return 1
	left[$part]=1
	point ok "$2 # SKIP cut after ${limits[$part]:-$deadline} s"
}

# --- commands ---

# logged SECONDS NAME COMMAND...: its output in $log, which logs.txt keeps
logged() {
	local seconds=$1 name=$2 code
	shift 2
	printf '$ %s\n' "$*" >"$log"
	within "$seconds" "$@" >>"$log" 2>&1 </dev/null
	code=$?
	keep_log "$name (exit code $code)" "$log"
	return "$code"
}
# once_more SECONDS NAME COMMAND...: what failed, so that the kernel that did is the last one that was called
once_more() {
	local seconds=$1 name=$2
	shift 2
	{
		printf '==== %d s, %s: %s with CUDA_LAUNCH_BLOCKING=1\n' "$SECONDS" "$part" "$name"
		CUDA_LAUNCH_BLOCKING=1 within "$seconds" "$@" 2>&1 </dev/null
		printf 'exit code %d\n\n' "$?"
	} | append failures.txt
}
# subtest SECONDS NAME COMMAND...: a TAP program, its points indented; only what failed, and the sums, are shown
subtest() {
	local name=$2 code reason
	logged "$@"
	code=$?
	reason=$(sed -n 's/^ok 1 - .* # SKIP //p' "$log")
	grep -A1 '^not ok' "$log" | head -n 60 | sed 's/^/    /'
	if [[ $reason && $code == 0 ]]; then
		point ok "$name # SKIP $reason"
	elif ((code == 0)) && grep -q '^1\.\.[1-9]' "$log"; then
		point ok "$name: $(grep -c '^ok' "$log") points"
	elif grep -q '^not ok' "$log" || ! cut "$code" "$name"; then
		tail -n 20 "$log" | comment
		point 'not ok' "$name (exit code $code)"
		[[ ! $gpu ]] || once_more "$@"
	fi
}
# command_point SECONDS NAME PATTERN COMMAND...: succeeds, and something that it prints matches
command_point() {
	local seconds=$1 name=$2 pattern=$3 code
	shift 3
	logged "$seconds" "$name" "$@"
	code=$?
	if ((code == 0)) && tail -n +2 "$log" | grep -Eq -e "$pattern"; then
		point ok "$name"
	elif ! cut "$code" "$name"; then
		tail -n 20 "$log" | comment
		point 'not ok' "$name"
		[[ ! $gpu ]] || once_more "$seconds" "$name" "$@"
	fi
}

# --- what goes from call to call ---

take_plans() {
	mkdir -p -m 700 "$XDG_CACHE_HOME/gannet/cudnn"
	[[ ! $plans ]] || tar -C "$XDG_CACHE_HOME/gannet" -xzf "$plans" || refuse "$plans cannot be unpacked"
}
bring_plans() {
	local new=$build/plans.tar.gz
	[[ $(ls "$XDG_CACHE_HOME/gannet/cudnn" 2>/dev/null) ]] && tar -C "$XDG_CACHE_HOME/gannet" -czf "$new" cudnn || return 0
	if (($(stat -c %s "$new") > log_bytes)); then
		printf '# cuDNN'\''s plans take %d MiB: too many to bring home\n' $(($(stat -c %s "$new") >> 20))
	else
		mv "$new" "$results/plans.tar.gz"
	fi
}
# Libraries as they were packed and objects: what was linked and unpacked is made anew in seconds.
make_slim() {
	find "$build" -mindepth 1 -maxdepth 1 ! -name objects ! -name libs.packed ! -path "$results" -exec rm -rf {} +
	printf '# %s has %d KiB\n' "$build" "$(du -s --apparent-size -k "$build" | awk '{ print $1 }')"
}
machine_facts() {
	printf '# %s, revision %s; %s cuDNN plans brought along\n' "$(date -u +%FT%TZ)" "$(git -C "$top" rev-parse --short HEAD 2>/dev/null || echo unknown)" \
		"$(find "$XDG_CACHE_HOME/gannet/cudnn" -name '*.plan' | wc -l)"
	printf '# %s; %s; %d processors; %s\n' "$(uname -srm)" "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null |
		head -n 1 || true)"
}
