#!/bin/bash
# make install DESTDIR=: every command has its man page, and a program elsewhere compiles and links against what was installed.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
dest=$(mktemp -d)
trap 'rm -rf "$dest"' EXIT
value() { sed -n "s/^$1 = //p" "$GN_BUILD/Makefile"; }
prefix=$dest$(value prefix)
# A test run by make must not hand make's own flags on.
unset MAKEFLAGS MFLAGS MAKELEVEL

check "make install" make -s -C "$GN_BUILD" install DESTDIR="$dest"
expect 0 "^gannet [0-9]" "the program runs from there" "$prefix/bin/gannet" --version

commands() { "$prefix/bin/gannet" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p'; }
pages() {
	local c
	(($(commands | wc -l) > 0)) || return 1
	for c in $(commands); do grep -q "^.TH gannet" "$prefix/share/man/man1/gannet-$c.1" || return 1; done
}
check "each command has a man page" pages
if command -v groff >/dev/null; then
	warnings() { ! groff -ww -man -Tutf8 "$prefix"/share/man/man1/gannet*.1 2>&1 >/dev/null | grep .; }
	check "groff finds nothing wrong with them" warnings
else
	skip "groff finds nothing wrong with them" "groff-base is not installed"
fi
check "bash reads the completion" bash -n "$prefix/share/bash-completion/completions/gannet.bash"
version=$(value PACKAGE_VERSION)
check "the modulefile is named by the version" test -s "$prefix/share/modulefiles/gannet/$version"
check "and leads to NCCL's plugin" sh -c 'grep -q "^prepend-path LD_LIBRARY_PATH \$libdir$" "$1/share/modulefiles/gannet/$2" &&
	test -e "$1/lib/libnccl-net-gannet.so"' sh "$prefix" "$version"
documents() {
	local d
	for d in "$GN_SOURCE"/src/man/*.md "$GN_SOURCE/README.md" "$GN_SOURCE/CHANGELOG.md"; do
		cmp "$d" "$prefix/share/doc/gannet/${d##*/}" || return 1
	done
}
check "the pages are there" documents
sed 's/^#\([a-z]\)/\1/' "$prefix/share/doc/gannet/gannet.conf" >"$dest/gannet.conf"
expect 0 '^local disk  */nvme$' "and an example of gannet.conf" env -u GANNET_LOCAL GANNET_CONF="$dest/gannet.conf" "$prefix/bin/gannet" --version
rm "$dest/gannet.conf"
check "the job scripts are there" test -x "$prefix/share/gannet/slurm/jobs/train.sbatch" -a -x "$prefix/share/gannet/slurm/vcluster"

flags() { PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --define-variable=prefix="$prefix" "$@" gannet; }
headers() {
	local h count=0
	for h in $(cd "$prefix/include/gannet" && find . -name '*.h'); do
		# shellcheck disable=SC2046 # flags
		echo "#include \"${h#./}\"" | $(value CC) -std=c11 -D_GNU_SOURCE -Wall -Werror $(flags --cflags) \
			-fsyntax-only -xc - || return 1
		count=$((count + 1))
	done
	((count > 10))
}
check "each installed header compiles by itself" headers
cat >"$dest/tiny.c" <<'C'
#include "data/shard/dataset.h"
#include "src/train/model/model.h"
#include "src/train/plan/plan.h"
#include "transport/bootstrap/world.h"
#include <stdio.h>
int main(void)
{
	struct gn_dataset *dataset;
	struct gn_model *model;
	struct gn_err err;

	if (!gn_dataset_open("/nonexistent", &dataset, &err) || gn_model_create("lenet", 10, 0, 28, &model, &err))
		return 1;
	printf("%s %d classes\n", gn_model_name(model), gn_model_classes(model));
	gn_model_destroy(model);
	return 0;
}
C
link() {
	# shellcheck disable=SC2046
	$(value CC) -std=c11 -D_GNU_SOURCE $(value GN_CFLAGS) "$dest/tiny.c" -o "$dest/tiny" $(flags --cflags --libs)
	# shellcheck disable=SC2046
	$(value CC) -std=c11 -D_GNU_SOURCE $(value GN_CFLAGS) "$dest/tiny.c" -o "$dest/tiny" $(flags --cflags --libs --static)
}
check "a program links against the libraries by pkg-config" link
expect 0 "^lenet 10 classes" "and runs" "$dest/tiny"
shared_flags() { PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --define-variable=prefix="$prefix" "$@" libgannet; }
shared() {
	# shellcheck disable=SC2046
	$(value CC) $(value GN_CFLAGS) "$prefix/share/doc/gannet/examples/allreduce.c" -o "$dest/tiny-shared" $(shared_flags --cflags --libs)
}
check "an example links against libgannet.so by pkg-config" shared
expect 0 "1 ranks, rank 0 on .*: sum 1" "and runs" env LD_LIBRARY_PATH="$prefix/lib" "$dest/tiny-shared"
check "its page has no faults" sh -c '! groff -ww -man -Tutf8 "$1/share/man/man3/libgannet.3" 2>&1 >/dev/null | grep .' sh "$prefix"
check "make uninstall" make -s -C "$GN_BUILD" uninstall DESTDIR="$dest"
nothing() { ! find "$dest" -path "$dest/tiny*" -prune -o ! -type d -print | grep .; }
check "make uninstall leaves no file" nothing
finish
