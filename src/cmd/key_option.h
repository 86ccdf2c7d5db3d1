/* The options of commands that read encrypted files: the keys.
 *
 * OFFSET is that of a `const char *` in the command's target.
 */
#ifndef GN_CMD_KEY_OPTION_H
#define GN_CMD_KEY_OPTION_H

/* clang-format off */
#define GN_CMD_KEY_OPTION(OFFSET) \
	GN_OPT_TEXT("key-file", OFFSET, "FILE", "key of encrypted datasets (gannet pack --encrypt): 32 bytes, readable by their owner " \
		    "only")
#define GN_CMD_CHECKPOINT_KEY_OPTION(OFFSET) \
	GN_OPT_TEXT("checkpoint-key", OFFSET, "FILE", "key of encrypted checkpoints (gannet train --checkpoint-key): 32 bytes, readable " \
		    "by their owner only")
/* clang-format on */

#endif
