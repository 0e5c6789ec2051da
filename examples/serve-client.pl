#!/usr/bin/perl
# A client of `cloche serve` without anything but Perl: it opens a sandbox, writes a file, runs code on it, and reads what the code has
# written. All there is to know is in docs/PROTOCOL.md.
use strict;
use warnings;
use IPC::Open2;
use JSON::PP;

my $json = JSON::PP->new->utf8->canonical;
my $pid  = open2(my $from, my $to, $ENV{CLOCHE_BIN} // 'cloche', 'serve');
my $last = 0;
binmode $_ for $from, $to;

# One frame: a line of JSON, and as many bytes as it says.
sub put_frame {
    my ($head, $bytes) = @_;
    $head->{bytes} = length $bytes if defined $bytes;
    print $to $json->encode($head), "\n", $bytes // '';
    $to->flush;
}

sub next_frame {
    my ($head, $bytes) = ($json->decode(<$from> // die "cloche serve has ended\n"), '');
    while (defined $head->{bytes} && length $bytes < $head->{bytes}) {
        read($from, $bytes, $head->{bytes} - length $bytes, length $bytes) or die "cloche serve has ended\n";
    }
    return ($head, $bytes);
}

# Sends a request and gathers what comes, up to its `done`: this client has one request at a time.
sub ask {
    my ($op, $fields, $bytes) = @_;
    my %got;
    put_frame({ %$fields, id => ++$last, op => $op }, $bytes);
    while (1) {
        my ($head, $payload) = next_frame();
        die "$op: $head->{error}{message}\n" if $head->{error};
        return ({ %got, %$head }) if $head->{event} eq 'done';
        $got{ $head->{stream} // $head->{event} } .= $payload if length $payload;
        push @{ $got{files} }, @{ $head->{files} } if $head->{files};
    }
}

my $hello   = ask('hello', { protocol => 1, client => 'perl' });
my $sandbox = ask('open', { options => { memory_mb => 256, timeout_s => 20 } })->{sandbox};
ask('write_file', { sandbox => $sandbox, path => 'words.txt' }, "one\ntwo\nthree\n");

my $r = ask('run_code', { sandbox => $sandbox, language => 'python' }, <<'CODE');
words = open("words.txt").read().split()
open("upper.txt", "w").write(" ".join(words).upper())
print(len(words), "words")
CODE
print "cloche $hello->{version} says: $r->{stdout}";
print "changed: $_->{change} $_->{path}\n" for @{ $r->{files} };
print 'read: ', ask('read_file', { sandbox => $sandbox, path => 'upper.txt' })->{data}, "\n";

$r = ask('run', { sandbox => $sandbox, argv => [ 'mount', '-t', 'tmpfs', 'x', '/mnt' ] });
print "refused: $r->{outcome}{fault}{type}\n";
close $to;    # the end: everything goes
waitpid $pid, 0;
