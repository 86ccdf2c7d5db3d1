/* A library with the name of CUDA's driver, for test_flush: what it was asked stays there to be read. */
int asked[2] = {-1, -1};
int answer;

int cuFlushGPUDirectRDMAWrites(int target, int scope);

int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	asked[0] = target;
	asked[1] = scope;
	return answer;
}
