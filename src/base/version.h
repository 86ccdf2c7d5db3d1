/* What this program was built from: release, commit, and a digest of the source files.
 *
 * The digest is the same for two builds of the same sources, whatever the folder and the compiler: ranks compare it before they
 * train together. src/base/build-info writes commit and digest at each make.
 *
 * Thread safety: constants.
 */
#ifndef GN_BASE_VERSION_H
#define GN_BASE_VERSION_H

/* "0.2.0" */
const char *gn_version(void);
/* 12 hex digits, followed by "-dirty" when files differed from the commit; "unknown" when built from a tarball */
const char *gn_version_commit(void);
/* SHA-256 of the source files, 64 hex digits. */
const char *gn_version_source_digest(void);

#endif
