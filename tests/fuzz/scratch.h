/* What the fuzzers share: made-up bytes as a file to be read by path, and proof that good files are not simply refused.
 */
#ifndef GN_TESTS_FUZZ_SCRATCH_H
#define GN_TESTS_FUZZ_SCRATCH_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Writes the bytes to this process's one scratch file, in TMPDIR, and returns its path. Not a memfd: HDF5 resolves links
 * in paths, /proc/self/fd's, too. Ends the program when the file cannot be written: the fuzzer would else go on with bytes
 * that were never looked at. */
const char *scratch_file(const uint8_t *data, size_t len_bytes);

/* With FUZZ_GOOD set every input must be accepted: fuzz.t tries the seeds so first, for a harness that refuses everything
 * finds nothing. */
void must_be_good(enum gn_status status, const struct gn_err *err);

#endif
