/* The bytes that a fuzzer made up, as a file: what we read by path never touches a disk. */
#ifndef GN_TESTS_FUZZ_MEMORY_FILE_H
#define GN_TESTS_FUZZ_MEMORY_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Makes such a file and writes its path; returns its descriptor, to be closed. Ends the program when there is none to be
 * had: the fuzzer would else report bytes that were never looked at. */
int memory_file(const uint8_t *data, size_t len_bytes, char *path, size_t path_size);

#endif
