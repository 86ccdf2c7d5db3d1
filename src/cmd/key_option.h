/* The option of commands that read the samples of packed datasets: the key of encrypted ones.
 *
 * OFFSET is that of a `const char *` in the command's target.
 */
#ifndef GN_CMD_KEY_OPTION_H
#define GN_CMD_KEY_OPTION_H

/* clang-format off */
#define GN_CMD_KEY_OPTION(OFFSET) \
	{.name = "key-file", .kind = GN_OPTION_TEXT, .offset = OFFSET, .value_name = "FILE", \
	 .help = "key of encrypted datasets (gannet pack --encrypt): 32 bytes, readable by their owner only"}
/* clang-format on */

#endif
