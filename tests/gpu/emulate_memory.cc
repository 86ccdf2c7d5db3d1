/* The emulated machine's memory: what is allocated and pinned, and copies between. */
#include "tests/gpu/emulate_queue.h"
#include "tests/gpu/emulate_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>

using namespace emulate;

static const size_t MEMORY_BYTES = (size_t)4 << 30, PAGE = 4096, ALIGN = 512;
/* New memory is not zero; as much of it as costs little. */
static const int GARBAGE = 0xff;
static const size_t GARBAGE_MAX = (size_t)64 << 20;
/* Where the host's programs have heaps, stacks and mappings: pairs of small numbers look otherwise. What has a lower half below NUMBER_MAX
 * is a number beside padding, in which half of an address may be left. */
static const uintptr_t ADDRESS_MIN = (uintptr_t)0x5000 << 32, ADDRESS_MAX = ((uintptr_t)1 << 47) - 1, NUMBER_MAX = (uintptr_t)1 << 26;
#ifdef __SANITIZE_ADDRESS__
static const int by_pages = 0; /* AddressSanitizer sees where a piece of the heap ends */
#else
static const int by_pages = 1;
#endif

/* The host's that is pinned, and the devices'. */
enum kind { PINNED, REGISTERED, DEVICE };

struct piece {
	size_t bytes;
	enum kind kind;
	int ordinal;
	char *mapped; /* of a device's: whole pages, and one behind them that nobody may touch */
	size_t mapped_bytes;
};

struct memory {
	std::mutex lock;
	std::map<const char *, piece> pieces;
	std::map<int, size_t> used; /* by device */
};

static memory &m(void)
{
	static memory *only = new memory();

	return *only;
}

/* The piece that has all of it; NULL: memory that nobody knows, of the host. *cut: it ends, or begins, within a piece. */
static const piece *find(const void *at, size_t bytes, int *cut)
{
	const char *first = (const char *)at;
	auto above = m().pieces.upper_bound(first);

	*cut = above != m().pieces.end() && above->first < first + bytes;
	if (above == m().pieces.begin())
		return NULL;
	above--;
	if (first >= above->first + above->second.bytes)
		return NULL;
	*cut = first + bytes > above->first + above->second.bytes;
	return &above->second;
}

void emulate::open_memory(int open)
{
	std::unique_lock<std::mutex> held(m().lock);

	if (!by_pages || !guarded())
		return;
	for (auto &p : m().pieces)
		if (p.second.kind == DEVICE)
			(void)mprotect(p.second.mapped, p.second.mapped_bytes - PAGE, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

/* --- what kernels are given --- */

int emulate::reaches(const void *at, size_t bytes)
{
	std::unique_lock<std::mutex> held(m().lock);
	int cut;
	const piece *p = find(at, bytes, &cut);

	return p && !cut && (p->kind != DEVICE || p->ordinal == current_device());
}

/* Of the host, or of another GPU. Whether anything is there at all the kernel knows: what is not mapped is a number. */
static int is_foreign(uintptr_t word, int ordinal)
{
	char *at = (char *)word;
	unsigned char resident;
	const piece *p;
	int cut;

	if (word < ADDRESS_MIN || word > ADDRESS_MAX || (word & 0xffffffff) < NUMBER_MAX)
		return 0;
	p = find(at, 1, &cut);
	return p ? p->kind == DEVICE && p->ordinal != ordinal : !mincore(at - word % PAGE, 1, &resident);
}

enum gn_status gn_emulate_look(const struct gn_cuda_stream *s, const void *given, size_t bytes, const char *name, struct gn_err *err)
{
	int ordinal = gn_cuda_device_info(gn_cuda_stream_device(s))->ordinal;
	std::unique_lock<std::mutex> held(m().lock);

	for (size_t i = 0; i + sizeof(uintptr_t) <= bytes; i += sizeof(uintptr_t)) {
		uintptr_t word;

		memcpy(&word, (const char *)given + i, sizeof word);
		if (is_foreign(word, ordinal))
			return gn_err_set(err, GN_ERR_FAILED, "%s: cuda:%d is given %p, which is not its memory", name, ordinal, (void *)word);
	}
	return GN_OK;
}

/* --- allocation --- */

/* Ends at the page that nobody may touch, as nearly as alignment lets it. */
static char *map(size_t bytes, piece *p)
{
	size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
	void *at = NULL;

	if (!by_pages)
		return posix_memalign(&at, ALIGN, bytes) ? NULL : (char *)memset(at, GARBAGE, bytes < GARBAGE_MAX ? bytes : GARBAGE_MAX);
	p->mapped_bytes = (whole + PAGE - 1) / PAGE * PAGE + PAGE;
	at = mmap(NULL, p->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	p->mapped = (char *)at;
	memset(p->mapped, GARBAGE, whole < GARBAGE_MAX ? whole : GARBAGE_MAX);
	(void)mprotect(p->mapped + p->mapped_bytes - PAGE, PAGE, PROT_NONE);
	if (guarded())
		(void)mprotect(p->mapped, p->mapped_bytes - PAGE, PROT_NONE);
	return p->mapped + p->mapped_bytes - PAGE - whole;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
	MAY_FAIL();
	std::unique_lock<std::mutex> held(m().lock);
	int ordinal = current_device();
	piece p = {bytes, DEVICE, ordinal, NULL, 0};
	char *at;

	if (thread_records())
		return answer(cudaErrorStreamCaptureUnsupported);
	if (bytes > MEMORY_BYTES - m().used[ordinal] || !(at = map(bytes, &p)))
		return answer(cudaErrorMemoryAllocation);
	m().used[ordinal] += bytes;
	m().pieces[at] = p;
	*out = at;
	return cudaSuccess;
}

/* As the runtime's, it waits for the device. */
cudaError_t cudaFree(void *at)
{
	const char *key = (const char *)at;

	if (!at)
		return cudaSuccess;
	if (thread_records())
		return answer(cudaErrorStreamCaptureUnsupported);
	{
		std::unique_lock<std::mutex> held(m().lock);

		if (!m().pieces.count(key) || m().pieces[key].kind != DEVICE)
			return answer(cudaErrorInvalidValue);
	}
	drain_device(current_device());
	std::unique_lock<std::mutex> held(m().lock);
	piece p = m().pieces[key];

	m().pieces.erase(key);
	m().used[p.ordinal] -= p.bytes;
	if (by_pages)
		(void)munmap(p.mapped, p.mapped_bytes);
	else
		free(at);
	MAY_FAIL();
	return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	MAY_FAIL();
	std::unique_lock<std::mutex> held(m().lock);

	*total = MEMORY_BYTES;
	*free_bytes = MEMORY_BYTES - m().used[current_device()];
	return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
	MAY_FAIL();
	std::unique_lock<std::mutex> held(m().lock);

	(void)flags;
	if (thread_records())
		return answer(cudaErrorStreamCaptureUnsupported);
	if (posix_memalign(out, PAGE, bytes))
		return answer(cudaErrorMemoryAllocation);
	m().pieces[(const char *)*out] = piece{bytes, PINNED, -1, NULL, 0};
	return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at)
{
	std::unique_lock<std::mutex> held(m().lock);

	if (!m().pieces.erase((const char *)at))
		return answer(cudaErrorInvalidValue);
	free(at);
	MAY_FAIL();
	return cudaSuccess;
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
	MAY_FAIL();
	std::unique_lock<std::mutex> held(m().lock);
	int cut;

	(void)flags;
	if (thread_records())
		return answer(cudaErrorStreamCaptureUnsupported);
	if (find(at, bytes, &cut) || cut)
		return answer(cudaErrorHostMemoryAlreadyRegistered);
	m().pieces[(const char *)at] = piece{bytes, REGISTERED, -1, NULL, 0};
	return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *at)
{
	std::unique_lock<std::mutex> held(m().lock);

	if (!m().pieces.erase((const char *)at))
		return answer(cudaErrorHostMemoryNotRegistered);
	MAY_FAIL();
	return cudaSuccess;
}

/* --- copies --- */

static cudaError_t fill(void *to, int byte, size_t bytes, cudaStream_t s)
{
	int cut;
	{
		std::unique_lock<std::mutex> held(m().lock);
		const piece *p = find(to, bytes, &cut);

		if (!p || p->kind != DEVICE || cut)
			return answer(cudaErrorInvalidValue);
	}
	return queue(s, [=] { return memset(to, byte, bytes), 1; });
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t s)
{
	MAY_FAIL();
	return fill(to, byte, bytes, s);
}

/* Of the device's memory it returns before it is done. */
cudaError_t cudaMemset(void *to, int byte, size_t bytes)
{
	MAY_FAIL();
	return thread_records() ? answer(cudaErrorStreamCaptureUnsupported) : fill(to, byte, bytes, legacy_stream());
}

/* Where a copy goes is seen from the addresses; kind has to agree. */
static int agrees(enum cudaMemcpyKind kind, const piece *to, const piece *from)
{
	int up = to && to->kind == DEVICE, down = from && from->kind == DEVICE;

	return kind == cudaMemcpyDefault || kind == (up && down ? cudaMemcpyDeviceToDevice : up ? cudaMemcpyHostToDevice :
						     down	 ? cudaMemcpyDeviceToHost :
								   cudaMemcpyHostToHost);
}

static void hold(void)
{
	static std::atomic<int> held;

	if (held++ || setting("PMIX_RANK", 0) != setting("GANNET_EMULATED_HOLD_RANK", -1))
		return;
	usleep((unsigned)setting("GANNET_EMULATED_HOLD_MS", 0) * 1000);
	fprintf(stderr, "emulated: a copy took %d ms\n", setting("GANNET_EMULATED_HOLD_MS", 0));
}

/* Whether a copy to the host is not to begin yet: the others go on. begin: of that copy. */
static int is_late(size_t bytes, std::chrono::steady_clock::time_point *begin)
{
	const std::chrono::milliseconds late(setting("GANNET_EMULATED_LATE_DOWN_MS", 0));
	const auto now = std::chrono::steady_clock::now();

	if (late.count() == 0 || bytes < 4096)
		return 0;
	if (*begin == std::chrono::steady_clock::time_point())
		*begin = now + late;
	return now < *begin;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s)
{
	const auto begin = std::make_shared<std::chrono::steady_clock::time_point>();
	int cut_to, cut_from, known_to, known_from, up, down;
	cudaError_t code;
	{
		std::unique_lock<std::mutex> held(m().lock);
		const piece *t = find(to, bytes, &cut_to), *f = find(from, bytes, &cut_from);

		if (cut_to || cut_from || !agrees(kind, t, f))
			return answer(cudaErrorInvalidValue);
		known_to = t != NULL;
		up = t && t->kind == DEVICE && (!f || f->kind != DEVICE);
		down = f && f->kind == DEVICE && (!t || t->kind != DEVICE);
		known_from = f != NULL;
	}
	/* a graph would read and write it when it is launched */
	if ((!known_to || !known_from) && records(s))
		return answer(cudaErrorStreamCaptureUnsupported);
	code = queue(s, [=] {
		if (down && is_late(bytes, begin.get()))
			return 0;
		if (up)
			hold();
		memcpy(to, from, bytes);
		return 1;
	});
	if (code == cudaSuccess && !known_to)
		drain(s);
	return code;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s)
{
	MAY_FAIL();
	return copy(to, from, bytes, kind, s);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	MAY_FAIL();
	cudaError_t code = thread_records() ? answer(cudaErrorStreamCaptureUnsupported) :
					      copy(to, from, bytes, kind, legacy_stream());

	if (code == cudaSuccess)
		drain(legacy_stream());
	return code;
}
