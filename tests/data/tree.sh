# Trees for tests of gannet stage: one of all that a tree can have, src in a new folder, and whether another is the same. Source it.
# shellcheck shell=bash source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet

# odd FOLDER MB FILES: names, links, holes, permissions and times of all kinds; MB of one large file, and small ones
odd() {
	perl -e 'use POSIX "mkfifo"; my ($top, $mb, $n) = @ARGV;
		sub put { my ($p, @d) = @_; open my $f, ">:raw", $p or die "$p: $!"; print $f @d; close $f }
		srand 1; my $block = pack "V*", map { int rand 2 ** 32 } 1 .. 262144;
		mkdir "$top$_" for "", "/empty", "/a b", "/n\nl", "/\xff\xfe", "/ro";
		put("$top/big", map { substr($block, $_), substr($block, 0, $_) } 1 .. $mb);
		for my $i (1 .. $n) { mkdir "$top/d" . $i % 50; put("$top/d" . $i % 50 . "/f$i", substr $block, $i, $i * 37 % 9000) }
		put("$top/a b/zero"); put("$top/n\nl/x\ny", "hello"); put("$top/\xff\xfe/\x80", "bytes"); put("$top/ro/in", "i");
		link "$top/n\nl/x\ny", "$top/hard1"; link "$top/hard1", "$top/a b/hard2";
		symlink "../nowhere", "$top/a b/dangling"; symlink "hard1", "$top/sym"; symlink "/etc/passwd", "$top/abs";
		mkfifo("$top/fifo", 0640);
		open my $s, ">:raw", "$top/sparse"; seek $s, 3000000, 0; print $s "middle"; seek $s, 6000000, 0; print $s "x";
		truncate $s, 12000001; close $s;
		open $s, ">:raw", "$top/hole"; truncate $s, 6345678; close $s;
		chmod 04751, "$top/hard1"; chmod 0444, "$top/\xff\xfe/\x80"; chmod 0555, "$top/ro";
		utime 1, 987654321, "$top/a b/zero"; utime 5, 500000000, "$top/ro"; utime 5, 600000000, $top' "$@"
}
# All that is to be kept: names, types, permissions, sizes, times, links and which names are one file, contents; and few blocks for holes.
describe() { # TREE
	perl -e 'use File::Find; use Digest::SHA; use Time::HiRes "lstat"; chdir $ARGV[0] or die $!; my %first;
		find({no_chdir => 1, preprocess => sub { sort @_ }, wanted => sub {
			my @s = lstat $_ or die "$_: $!"; my $first = $first{"$s[0]:$s[1]"} //= $_;
			# of the mode: Digest::SHA looks at files, too, after which _ is another one
			my $type = $s[2] & 0170000; my ($file, $folder, $link) = ($type == 0100000, $type == 0040000, $type == 0120000);
			my $kept = $file ? Digest::SHA->new(256)->addfile($_, "b")->hexdigest : "";
			$kept = readlink $_ if $link;
			printf "%s|%o|%s|%s|%.6f|%s|%s\n", $_, $s[2], $file ? $s[7] : "", $s[3], $s[9], $folder ? "" : $first, $kept;
			printf "full %s\n", $_ if $file && /sparse|hole/ && $s[12] * 512 > $s[7] / 2;
		}}, ".")' "$1"
}
alike() { # TREE...: as the source
	[ -e src.is ] || describe src >src.is || { rm -f src.is; return 1; }
	for tree; do
		describe "$tree" >tree.is && diff src.is tree.is || return 1
	done
}
tidy() { # FOLDER NAME: nothing else than the copy, its marker and its lock
	[ "$(ls "$1")" = "$2"$'\n'"$2.gannet-stage"$'\n'"$2.gannet-stage.lock" ]
}
stage() {
	timeout -k 5 300 "$gannet" stage --json --from "$1" --to "$2" "${@:3}"
}
chunks() { # FILE COUNT: that many lines of chunks
	[ "$(wc -l <"$1" 2>/dev/null || echo 0)" -gt "$2" ]
}

work=$(mktemp -d)
trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
odd src "${tree_mb:-40}" "${tree_files:-300}"
# dies_at FOLDER CALLS COMMAND...: it is killed, with code 9, right before its call of that number which changes something below FOLDER.
dies_at() { "$GN_BUILD/tests/train/kill_at_call" "$work/$1" "${@:2}"; }
