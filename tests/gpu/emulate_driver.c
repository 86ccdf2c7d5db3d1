/* What of the driver cuDNN needs to plan for a device that is described and not here: code that it compiled is taken, and thrown away.
 * A library of its own, libcuda.so.1, which tests/gpu/test_dnn loads before cuDNN looks for the real one. The driver's header is
 * left out, in which half of these have other arguments. */
enum { SUCCESS, NO_DEVICE = 100, NOT_SUPPORTED = 801 };

/* Asked for by name, and not for anything that matters. */
#define REFUSED(X)                                                                                                             \
	X(cuGetExportTable)                                                                                                    \
	X(cuGetErrorName)                                                                                                      \
	X(cuGetErrorString)                                                                                                    \
	X(cuCtxGetCurrent)                                                                                                     \
	X(cuCtxGetLimit)                                                                                                       \
	X(cuCtxPopCurrent)                                                                                                     \
	X(cuCtxPushCurrent)                                                                                                    \
	X(cuStreamGetCtx)                                                                                                      \
	X(cuDriverGetVersion)                                                                                                  \
	X(cuLinkCreate)                                                                                                        \
	X(cuLinkAddData)                                                                                                       \
	X(cuLinkComplete)                                                                                                      \
	X(cuLinkDestroy)                                                                                                       \
	X(cuLaunchKernel)                                                                                                      \
	X(cuLaunchKernelEx)                                                                                                    \
	X(cuLaunchCooperativeKernel)                                                                                           \
	X(cuDeviceGet)                                                                                                         \
	X(cuLibraryLoadFromFile)                                                                                               \
	X(cuKernelSetAttribute)                                                                                                \
	X(cuKernelGetAttribute)                                                                                                \
	X(cuOccupancyMaxPotentialClusterSize)
#define X(name)                                                                                                                \
	int name(void);                                                                                                        \
	int name(void)                                                                                                         \
	{                                                                                                                      \
		return NOT_SUPPORTED;                                                                                          \
	}
REFUSED(X)
#undef X

static char something;

int cuDeviceGetCount(int *count);
int cuDeviceGetCount(int *count)
{
	*count = 0;
	return NO_DEVICE;
}

int cuLibraryLoadData(void **library);
int cuLibraryLoadData(void **library)
{
	*library = &something;
	return SUCCESS;
}

int cuLibraryUnload(void);
int cuLibraryUnload(void)
{
	return SUCCESS;
}

int cuLibraryGetKernel(void **kernel);
int cuLibraryGetKernel(void **kernel)
{
	*kernel = &something;
	return SUCCESS;
}
