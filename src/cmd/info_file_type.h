/* What a file is that gannet info can do nothing with, by its first bytes. */
#ifndef GN_CMD_INFO_FILE_TYPE_H
#define GN_CMD_INFO_FILE_TYPE_H

/* NULL for an HDF5 file, whole or not; else "a JPEG image" and the like, "an empty file", "text", "of a kind unknown here" when no
 * signature fits, or "not readable". */
const char *gn_info_kind(const char *path);

#endif
