#!/usr/bin/perl
# Do the folders show the design? Reads every #include "..." of the product and prints TAP, a point a rule:
#
#   layers     a layer includes only layers below it; kernels and transport, which are one, do not include each other
#   folders    the folders of one layer form no circle
#   files      files form no circle; NAME.c, NAME.h and NAME_internal.h count as one, and a table of constructors may include what it
#              lists
#   internal   *_internal.h is included in its own folder only (tests may)
#   top        nothing stands at the top that does not belong there
#   names      what comments of sources, the pages and the README name is there: paths of the tree (a built program by its source),
#              and every NAME.h and NAME.c, but for headers of other packages in <>
#   table      tests/README.md has a row for each test file, and no other; each is in a local.mk
#   builds     the sources that tests/fuzz/fuzz.mk and tests/gpu/run_build.sh name are there: what else builds from these is the end of CI,
#              or of every third one
#   functions  no shell script defines a function twice
#
# tests/structure/exceptions lists what breaks a rule today, a line each. One that is broken no longer must be taken out: the list
# only shrinks.
use strict;
use warnings;

my $top = $ENV{GN_SOURCE} // '.';
chdir $top or die "$top: $!\n";

# From low to high; folders that share a line are one layer. A folder counts for those below it that are not named themselves.
my @layers = (['src/base'], ['src/device'], ['kernels', 'transport'], ['data'], ['src/train'], ['src/jobs'], ['src/cmd'], ['src/lib']);
my @constructors = qw(kernels/op.c kernels/host/op.c kernels/ref/op.c kernels/cuda/op.c kernels/cuda/ops.c transport/schedule/algo.c src/train/model/model.c src/cmd/main.c);
my @at_top = qw(configure.ac Makefile.am src kernels transport slurm data tests bench debian README.md CHANGELOG.md LICENSE);

sub folder { my ($path) = @_; $path =~ s{/[^/]*$}{}; $path }
sub module { my ($path) = @_; $path =~ s/(_internal)?\.\w+$//; $path }
sub layer {
    my ($path) = @_;
    for my $i (0 .. $#layers) { index("$path/", "$_/") == 0 and return $i for @{$layers[$i]} }
    return;
}

sub beside {
    my ($one, $other) = @_;
    my ($a, $b) = map { my $path = $_; grep { index($path, "$_/") == 0 } map { @$_ > 1 ? @$_ : () } @layers } $one, $other;
    return defined $a && defined $b && $a ne $b;
}

# %includes: file -> the project's files that it includes
my %includes;
open my $list, '-|', 'find', qw(src kernels transport data -type f ( -name *.[ch] -o -name *.cu -o -name *.cuh -o -name *.cc )) or die $!;
while (my $file = <$list>) {
    chomp $file;
    open my $in, '<', $file or die "$file: $!\n";
    while (<$in>) { push @{$includes{$file}}, $1 if /^\s*#\s*include\s+"([^"]+)"/ && -e $1 }
    $includes{$file} //= [];
}
close $list or die "find failed\n";
%includes or die "no source under $top\n";

my %found;    # rule -> what breaks it
sub broken { my ($rule, $what) = @_; $found{$rule}{$what} = 1 }

# circles RULE, EDGES: each strongly connected component of more than one node, by Tarjan
sub circles {
    my ($rule, $edges) = @_;
    my ($count, @stack, %index, %low, %on, $visit) = (0);
    no warnings 'recursion';
    $visit = sub {
        my ($v) = @_;
        $index{$v} = $low{$v} = $count++;
        push @stack, $v;
        $on{$v} = 1;
        for my $w (sort keys %{$edges->{$v}}) {
            if (!defined $index{$w}) { $visit->($w); $low{$v} = $low{$w} if $low{$w} < $low{$v} }
            elsif ($on{$w} && $index{$w} < $low{$v}) { $low{$v} = $index{$w} }
        }
        return if $low{$v} != $index{$v};
        my @members;
        do { push @members, pop @stack; delete $on{$members[-1]} } until $members[-1] eq $v;
        broken($rule, join ' ', sort @members) if @members > 1;
    };
    defined $index{$_} or $visit->($_) for sort keys %$edges;
}

my (%files, %folders);
my %is_constructor = map { $_ => 1 } @constructors;
for my $file (sort keys %includes) {
    my $from = module($file);
    for my $to (@{$includes{$file}}) {
        my ($low, $high) = (layer($to), layer($file));
        broken('layers', "$file $to") if defined $high && (!defined $low || $low > $high) && $to !~ m{^src/(config|build)\.h$};
        broken('layers', "$file $to") if beside($file, $to);
        broken('internal', "$file $to") if $to =~ /_internal\.h$/ && folder($to) ne folder($file);
        my $name = module($to);
        $files{$from}{$name} = 1 if $name ne $from && !$is_constructor{$file};
        $folders{folder($file)}{folder($to)} = 1 if folder($file) ne folder($to) && defined $low && $low == ($high // -1);
    }
}
circles('files', \%files);
circles('folders', \%folders);
my %belongs = map { $_ => 1 } @at_top;
if (-e ".git" && open my $tracked, "-|", "git ls-files") {
    my %seen = map { m{^([^/\n]+)}; $1 => 1 } <$tracked>;
    broken('top', $_) for grep { !$belongs{$_} && !/^\./ } keys %seen;
}

# comments TEXT: those of a C source, without its strings
sub comments {
    my ($text) = @_;
    my $out = '';
    while ($text =~ m{"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(/\*.*?\*/|//[^\n]*)}gs) { $out .= "$1\n" if defined $1 }
    return $out;
}

my (%there, %file_names, @to_read);
open my $tree, '-|', qw(find), grep { -e } @at_top or die $!;
while (my $path = <$tree>) {
    chomp $path;
    $there{$path} = 1;
    $file_names{$1} = 1 if $path =~ m{([^/]+)$};
    push @to_read, $path if $path =~ m{\.(?:[ch]|cuh?|cc)$} || $path =~ m{^src/man/.*\.md$} || $path eq 'README.md';
}
close $tree or die "find failed\n";
$there{$_} = 1 for qw(src/config.h src/build.h src/paths.h);    # made by configure and make
sub path_is_there {
    my ($path) = @_;
    return 1 if grep { $there{"$path$_"} } '', '.c', '.cu', '.cc';
    my @matches = $path =~ /[*{\[]/ ? glob $path : ();
    return @matches && !grep { !-e } @matches;
}
for my $file (sort @to_read) {
    open my $in, '<', $file or die "$file: $!\n";
    my $text = do { local $/; <$in> };
    $text = comments($text) if $file !~ /\.md$/;
    $text =~ s{<[\w/.-]+\.h>}{}g;
    while ($text =~ m{(?<![\w/.\$~-])((?:src|kernels|transport|data|tests|bench|slurm)/[\w./*\[\]{},-]*[\w*\}\]])}g) {
        broken('names', "$file $1") if !path_is_there($1);
    }
    while ($text =~ m{(?<![\w/.*-])([A-Za-z_]\w*\.(?:[ch]|cuh?))(?!\w)}g) { broken('names', "$file $1") if !$file_names{$1} }
}

my %rows;
open my $table, '<', 'tests/README.md' or die "tests/README.md: $!\n";
while (<$table>) { $rows{$1}++ if m{^\| (tests/\S+) \| [\d.]+ \| \S} }
my $lists = join ' ', map { local (@ARGV, $/) = $_; <> } glob 'tests/*/local.mk tests/*/*/local.mk';
for my $test (map { s/\.c$//r } map { glob "tests/$_" } '*/*.t', '*/test_*.c', '*/*/*.t', '*/*/test_*.c') {
    broken('table', "$test has no row in tests/README.md") if !delete $rows{$test};
    broken('table', "$test is in no local.mk") if $lists !~ /\b\Q$test\E\b/;
}
broken('table', "$_ has a row and is not there") for grep { $lists !~ /\b\Q$_\E\b/ } sort keys %rows;

{
    open my $make, '<', 'tests/fuzz/fuzz.mk' or die "tests/fuzz/fuzz.mk: $!\n";
    my $text = do { local $/; <$make> };
    while ($text =~ m{\$\(patsubst %,\$\(SOURCE\)/(\S+)/%\.c,([\w ]+)\)}g) {
        my ($in, @names) = ($1, split ' ', $2);
        broken('builds', "$in/$_.c is not there") for grep { !$there{"$in/$_.c"} } @names;
    }
    while ($text =~ m{\$\(SOURCE\)/([\w/]+\.c)\b}g) { broken('builds', "$1 is not there") if !$there{$1} }
}

{
    open my $script, '<', 'tests/gpu/run_build.sh' or die "tests/gpu/run_build.sh: $!\n";
    my %words = map { $_ => 1 } map { m{(?<![\w/.*'"])((?:src|kernels|transport|data|tests)/[\w./*{},]+\.(?:cu?|sh))(?![\w.])}g } <$script>;
    for my $word (sort keys %words) {
        broken('builds', "$_ is not there") for grep { !/\*/ && !$there{$_} } split ' ', `bash -c 'echo $word'`;
    }
}

# Bash says nothing when a script defines a function twice, and takes the last: what an edit left behind replaces what it wrote.
for my $script (grep { -T } split /\n/, `find .ci bench debian slurm src tests -type f -size -200k`) {
    open my $in, '<', $script or die "$script: $!\n";
    next if (<$in> // '') !~ m{^#!/bin/.*sh$};
    my %functions;
    while (<$in>) { broken('functions', "$script defines $1 twice") if /^(\w+)\(\)/ && $functions{$1}++ }
}

my %allowed;
open my $exceptions, '<', 'tests/structure/exceptions' or die "tests/structure/exceptions: $!\n";
while (<$exceptions>) {
    chomp;
    $allowed{$1}{$2} = 1 if /^(\w+) (.+)/;
}
my ($point, $failed) = (0, 0);
for my $rule (qw(layers folders files internal top names table builds functions)) {
    my @new = grep { !$allowed{$rule}{$_} } sort keys %{$found{$rule} // {}};
    my @gone = grep { !$found{$rule}{$_} } sort keys %{$allowed{$rule} // {}};
    print "# $rule $_\n" for @new;
    print "# to be taken out of tests/structure/exceptions: $rule $_\n" for @gone;
    my $left = keys %{$found{$rule} // {}};
    printf "%s %d - %s%s\n", @new || @gone ? 'not ok' : 'ok', ++$point, $rule, $left ? " ($left exceptions left)" : '';
    $failed ||= @new || @gone;
}
print "1..$point\n";
exit($failed ? 1 : 0);
