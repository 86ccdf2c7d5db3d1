#!/bin/bash
# Every check of tests/transport/plugin/conform can fail: a plugin with one deliberate fault (tests/transport/plugin/faulty.c) is caught by the
# check that is there for it, for the reason that is told.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
if [ "${GN_SANITIZED:-}" ]; then
	skip "each fault is caught by its check" "some faults are such that the sanitizer catches them first"
	finish
	exit
fi
export UCX_TLS=tcp,self UCX_WARN_UNUSED_ENV_VARS=n UCX_LOG_LEVEL=error GN_FAULTY_PLUGIN=$GN_BUILD/libnccl-net-gannet.so
conform=$GN_BUILD/tests/transport/plugin/conform
faulty=$GN_BUILD/tests/transport/plugin/faulty.so

# caught FAULT CHECK PATTERN: conform ends with 1, and says why; what is to hang is not waited for long
caught() {
	local limit=15
	[[ $3 == *hang* ]] && limit=1
	GN_FAULT=$1 expect 1 "^#  .*$3" "$1 is caught by $2" timeout -k 5 300 "$conform" --strict --limit "$limit" --connections 100 --only "$2" "$faulty"
}
check "without a fault nothing is" timeout -k 5 300 "$conform" --only transfer,group,recreate,optional "$faulty"
caught properties properties 'speed -1'
caught handle handle 'wrote byte 128'
caught block no-wait 'hang'
caught slow no-wait 'calls of connect blocked'
caught corrupt transfer 'wrong from byte 4992'
caught overrun transfer 'changed byte'
caught early transfer 'is wrong'
caught crash transfer 'signal 6'
caught posted-size unequal 'tells 2 bytes for a message of 1'
caught posted-size empty 'tells 4096 bytes for a message of 0'
caught corrupt pipeline 'another one, or wrong'
caught shallow depth 'takes only 8'
caught group-sizes group 'part 1 of a group'
caught extra-size group 'more sizes'
caught tags group 'part . of a group'
caught tags group-order 'do not all leave'
caught lose early-send 'hang|is wrong'
caught optional optional '0x1'
caught flush flush 'hang'
caught any-memory registration 'takes GPU memory'
caught too-long too-long 'is told to have 4000'
caught second-init communicators 'init for another communicator returned ncclInternalError'
caught finalize failed-init 'finalize after an init that failed returned'
caught crash listen-reuse 'signal 6'
caught descriptor recreate 'descriptors are open'
caught corrupt ring 'around the ring is wrong'
caught corrupt last-message 'is wrong'
caught thread reload 'signal 11'
caught corrupt threads 'is wrong'
caught hang close-unmatched 'hang'
caught hang close-posted 'hang'
caught late-write close-posted 'after closeRecv'
caught hang close-midway 'hang'
caught deaf dead-sender 'no call has failed|hang'
caught deaf dead-receiver 'no call has failed|hang'
caught hang dead-sender-close 'hang'
caught hang dead-receiver-close 'hang'
caught block dead-listener 'hang'
caught shallow many 'hang'
caught stranger strangers "a stranger's"
caught stranger token 'makes a connection'
caught handle-state moved-handle 'hang'
caught keep-memory dereg-midway 'signal 11'
caught patient close-stopped 'more than [0-9]'
caught abandon abandoned 'descriptors are open'
caught lose idle-sender 'has not come'
caught linger exit 'does not end'
finish
