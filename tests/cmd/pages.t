#!/bin/bash
# Each page in src/man opens with commands that work when pasted: those that need no cluster and no other software run here, in a
# folder of their own. README links every page; the design page names every folder of the sources.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/gn-pages.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export PATH=$GN_BUILD:$PATH OMP_NUM_THREADS=1 GANNET_LOG=warn XDG_CONFIG_HOME=$scratch/config GANNET_CONF=

# The first indented block of a page, without comments.
first_block() { awk '/^    /{ on = 1; sub(/ +#.*/, ""); print; next } on { exit }' "$1"; }
# Pages whose commands need what is not here, and what that is.
needs() {
	case $1 in
	containers) echo "docker or Charliecloud" ;;
	exec | preflight | slurm | submit | sweep) echo "a Slurm cluster" ;;
	first-day) echo "a test of their own, tests/cmd/first_day.t" ;;
	gpus) echo "CUDA" ;;
	nccl-plugin) echo "srun and NCCL" ;;
	peers) echo "other software, and minutes" ;;
	security) echo "a run on this node" ;;
	loader | torch) echo "PyTorch, and minutes" ;;
	*) return 1 ;;
	esac
}
pages=0
for page in "$GN_SOURCE"/src/man/*.md; do
	name=$(basename "$page" .md)
	pages=$((pages + 1))
	check "README links $name" grep -q "](src/man/$name.md)" "$GN_SOURCE/README.md"
	block=$(first_block "$page")
	if [[ ! $block ]]; then
		check "$name opens with a command" false
	elif reason=$(needs "$name"); then
		skip "the first commands of $name" "need $reason"
	else
		mkdir -p "$scratch/$name"
		cd "$scratch/$name" || exit 1
		ln -s "$GN_SOURCE/data" "$GN_SOURCE/src" .
		check "the first commands of $name" timeout -k 5 300 bash -euc "$block"
	fi
done
check "there are pages" test "$pages" -ge 10

folders() {
	local folder count=0
	for folder in "$GN_SOURCE"/{src,kernels,transport,data}/*/ "$GN_SOURCE"/src/train/*/; do
		ls "$folder"/*.[ch] >/dev/null 2>&1 || continue
		folder=${folder%/} folder=${folder#"$GN_SOURCE"/}
		count=$((count + 1))
		grep -q "\`$folder/\`\|\`${folder##*/}/\`" "$GN_SOURCE/src/man/design.md" || { echo "$folder is not there"; return 1; }
	done
	((count > 20))
}
check "the design page names every folder" folders
# rows of a table have as many cells as its header; "\|" is no border
rows() {
	awk '/^\|/ { row = $0; gsub(/\\\|/, "", row); n = gsub(/\|/, "", row); if (!header) header = n
		if (n != header) { print FILENAME ":" FNR ": " $0; bad = 1 }; next } { header = 0 } END { exit bad }' \
		"$GN_SOURCE/README.md" "$GN_SOURCE"/src/man/*.md
}
check "rows of tables have the cells of their header" rows
finish
