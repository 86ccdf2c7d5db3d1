#include "src/base/version.h"

#include "src/build.h"
#include "src/config.h"

const char *gn_version(void)
{
	return PACKAGE_VERSION;
}

const char *gn_version_commit(void)
{
	return GN_BUILD_COMMIT;
}

const char *gn_version_source_digest(void)
{
	return GN_BUILD_SOURCE_DIGEST;
}
