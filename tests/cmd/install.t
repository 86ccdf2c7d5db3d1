#!/bin/bash
# make install DESTDIR=: every command has its man page, and a program elsewhere compiles and links against what was installed. make install
# prefix=: another folder than configure's, whose name has a blank, works by itself.
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
day=$(sed -n 's/^#define PACKAGE_DATE "\(.*\)"/\1/p' "$GN_BUILD/src/config.h")
dated() {
	[[ $day ]] && (($(cat "$prefix"/share/man/man[13]/* | grep -c '^\.TH') == $(cat "$prefix"/share/man/man[13]/* | grep -cE "^\.TH [^ ]+ [13] \"?$day\"? ")))
}
check "all have the day of the release" dated
check "which is that of Debian's changelog" test "$day" = "$(date -d "$(sed -n 's/^ -- .*  //p' "$GN_SOURCE/debian/changelog" | head -n 1)" +%F)"
if command -v groff >/dev/null; then
	warnings() { ! groff -ww -man -Tutf8 "$prefix"/share/man/man1/gannet*.1 2>&1 >/dev/null | grep .; }
	check "groff finds nothing wrong with them" warnings
else
	skip "groff finds nothing wrong with them" "groff-base is not installed"
fi
check "bash reads the completion" bash -n "$prefix/share/bash-completion/completions/gannet.bash"
version=$(value PACKAGE_VERSION)
check "the modulefile is named by the version" test -s "$prefix/share/modulefiles/gannet/$version"
documents() {
	local d
	for d in "$GN_SOURCE"/src/man/*.md "$GN_SOURCE/CHANGELOG.md"; do
		cmp "$d" "$prefix/share/doc/gannet/${d##*/}" || return 1
	done
	for d in $(grep -o '](\(src/man/\)\?[a-z-]*\.\(md\|svg\))' "$prefix/share/doc/gannet/README.md" | tr -d '()]'); do
		test -s "$prefix/share/doc/gannet/$d" || return 1
	done
}
check "the pages are there, where README.md says" documents
sed 's/^#\([a-z]\)/\1/' "$prefix/share/doc/gannet/gannet.conf" >"$dest/gannet.conf"
expect 0 '^local disk  */nvme$' "and an example of gannet.conf" env -u GANNET_LOCAL GANNET_CONF="$dest/gannet.conf" "$prefix/bin/gannet" --version
rm "$dest/gannet.conf"
check "the job scripts are there" test -x "$prefix/share/gannet/slurm/jobs/train.sbatch" -a -x "$prefix/share/gannet/slurm/vcluster"

flags() { PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config "$@" gannet; }
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
check "its page has no faults" sh -c '! groff -ww -man -Tutf8 "$1/share/man/man3/libgannet.3" 2>&1 >/dev/null | grep .' sh "$prefix"
check "make uninstall" make -s -C "$GN_BUILD" uninstall DESTDIR="$dest"
nothing() { ! find "$1" -path "$dest/tiny*" -prune -o ! -type d -print | grep .; }
check "make uninstall leaves no file" nothing "$dest"

check "libgannet.pc names the folder of the library that make install has" make -s -C "$GN_BUILD" install prefix="$dest/usr" libdir="$dest/usr/lib/multi/arch"
expect 0 "-L$dest/usr/lib/multi/arch" "relative to its own" sh -c 'flags=$(PKG_CONFIG_PATH=$1/lib/multi/arch/pkgconfig pkg-config --libs-only-L libgannet) &&
	echo "-L$(readlink -f "${flags#-L}")"' sh "$dest/usr"
make -s -C "$GN_BUILD" uninstall prefix="$dest/usr" libdir="$dest/usr/lib/multi/arch"
expect 2 "prefix=relative/p is no whole path" "a relative prefix" make -s -C "$GN_BUILD" install prefix=relative/p
rm -rf "${GN_BUILD:?}/relative"
other="$dest/another place"
check "make install into another prefix" make -s -C "$GN_BUILD" install prefix="$other"
mkdir "$other/etc" "$dest/disk" && echo "local = $dest/disk" >"$other/etc/gannet.conf"
alone() { env -u GANNET -u GANNET_CONF -u GANNET_JOBS -u GANNET_LOCAL -u GANNET_QUOTA -u MANPATH PATH=/usr/bin:/bin "$@"; }
expect 0 "^configuration  *$other/etc/gannet.conf$" "the program finds the gannet.conf of that folder" alone "$other/bin/gannet" --version
cp "$GN_SOURCE/tests/cmd/tap.sh" "$other/share/gannet/slurm/jobs/train.sbatch"
mkdir "$dest/bin" && printf '%s\n' '#!/bin/sh' 'cp "$(dirname "$2")/train.sbatch" "$(dirname "$0")" && echo 7' >"$dest/bin/sbatch" && chmod 755 "$dest/bin/sbatch"
expect 0 "^7$" "and submits" alone PATH="$dest/bin:/usr/bin:/bin" "$other/bin/gannet" submit --dir "$dest/job" -- train --data /d --model lenet --checkpoint /c
check "its job script" cmp "$GN_SOURCE/tests/cmd/tap.sh" "$dest/bin/train.sbatch"
"$other/bin/gannet" pack --out "$dest/data" --synthetic 8 --classes 2 --size 8x8 2>/dev/null
expect 0 "^$dest/disk/gannet-$UID/data-[0-9]*$" "stage-node finds its gannet and the site's disk, without PATH" alone "$other/share/gannet/slurm/stage-node" "$dest/data"
for script in prolog epilog stage-node jobs/{bench-allreduce,ib-vs-eth,stage}.sbatch; do
	check "so does $script" grep -qF "\${GANNET:-$other/bin/gannet}" "$other/share/gannet/slurm/$script"
done
if command -v tclsh >/dev/null; then
	# What a module system makes of it: the folder of each variable, in front of what is there or behind it.
	cat >"$dest/module.tcl" <<'TCL'
proc module-whatis args {}
proc conflict args {}
proc setenv {name value} { set ::env($name) $value }
proc prepend-path {name value} { set ::env($name) [expr {[info exists ::env($name)] ? "$value:$::env($name)" : $value}] }
proc append-path {name value} { set ::env($name) [expr {[info exists ::env($name)] ? "$::env($name):$value" : $value}] }
source [lindex $argv 0]
exec {*}[lrange $argv 1 end] >@ stdout 2>@ stderr
TCL
	module() { alone tclsh "$dest/module.tcl" "$other/share/modulefiles/gannet/$version" "$@"; }
	expect 0 "^gannet $version$" "the modulefile leads to the program" module gannet --version
	expect 0 "^$other$" "and names its folder" module sh -c 'echo "$GANNET_HOME"'
	expect 0 "^$other/lib(:|$)" "which has NCCL's plugin" module sh -c 'echo "$LD_LIBRARY_PATH" && test -e "$LD_LIBRARY_PATH/libnccl-net-gannet.so"'
	expect 0 "^$version$" "and to libgannet.pc" module pkg-config --modversion libgannet
	if system=$(alone man -w man 2>/dev/null); then
		expect 0 "^$other/share/man/man1/gannet-train.1$" "man finds its pages" module man -w gannet-train
		expect 0 "^$system$" "and the system's" module man -w man
	else
		skip "man finds its pages and the system's" "there is no man, or no page of it"
	fi
else
	skip "the modulefile leads to programs, libraries and pages" "no tclsh (tcl)"
fi

# compile OUTPUT FLAG...: an example, by pkg-config, whose backslashes a shell takes away
compile() {
	local flags
	flags=$(PKG_CONFIG_PATH=$other/lib/pkgconfig pkg-config --cflags --libs "${@:2}" libgannet) || return 1
	eval "set -- \"\$1\" $flags"
	# shellcheck disable=SC2046
	$(value CC) $(value GN_CFLAGS) "$other/share/doc/gannet/examples/allreduce.c" ${static:-} -o "$@"
}
check "an example links against libgannet.so by pkg-config" compile "$dest/tiny-shared"
expect 0 "1 ranks, rank 0 on .*: sum 1" "and runs" env LD_LIBRARY_PATH="$other/lib" "$dest/tiny-shared"
static="-Wl,--as-needed -l:libgannet.a" check "and against libgannet.a" compile "$dest/tiny-static" --static
expect 0 "ar .*libgannet.a" "which is made again when its source is newer" make -n -C "$GN_BUILD" -W "$GN_SOURCE/src/lib/lib.c" libgannet.a V=1
expect 0 "1 ranks, rank 0 on .*: sum 1" "which it runs without libgannet.so" "$dest/tiny-static"
exported() { nm -g --defined-only "$1" 2>/dev/null | sed -n 's/.* [A-Z] \(gannet_[a-z0-9_]*\)\(@.*\)\?$/\1/p' | sort; }
same() { exported "$other/lib/libgannet.a" >"$dest/tiny.static" && nm -D --defined-only "$other/lib/libgannet.so" | sed -n 's/.* [A-Z] \(gannet_[a-z0-9_]*\)\(@.*\)\?$/\1/p' | sort | diff - "$dest/tiny.static"; }
check "both have the same functions" same
check "make uninstall from there" make -s -C "$GN_BUILD" uninstall prefix="$other"
rm "$other/etc/gannet.conf"
check "leaves no file, either" nothing "$other"
# What has configure's folders is compiled once more when another configure names others, by automake's rules; configure.t changes them.
folders() { (cd "$GN_BUILD" && for o in src/cmd/.deps/gannet-cmd src/jobs/.deps/libgannet_jobs_a-submit ${1:+slurm/.deps/spank_gannet_stage_so-spank_stage}; do
	grep -q '^.* src/paths\.h\( \|$\)' "$o.Po" || return 1; done); }
check "what has configure's folders depends on them" folders "$([[ ! -e $GN_BUILD/spank_gannet_stage.so ]] || echo spank)"
finish
