/* Stands for NCCL where GPUs are emulated: sums of their memory between processes of one machine, in shared memory, on the streams
 * of emulate_runtime.h. Linked with --wrap, so that all of nccl.c runs. It cannot show what NCCL computes
 * or how fast; tests/gpu/comm.t asks the real one where there are GPUs, and elsewhere sees it fail.
 *
 * As NCCL does it, communicators that do not block are not there at once, and a call may return before its work is given to
 * the stream; a rank that is gone is not noticed, and work that needs it does not end until the communicator is aborted.
 *
 * GANNET_EMULATED_NCCL=real: NCCL itself, which does without the emulation and finds no GPU.
 * GANNET_EMULATED_NCCL_FAILS=N: sum number N of this process meets an error of the network.
 * GANNET_EMULATED_NCCL_MB_S=N: each sum takes as long as a network of that rate would.
 * Thread safety: as NCCL's.
 */
#include "tests/gpu/emulate_runtime.h"

#include <nccl.h>

extern "C" {
#include "transport/nccl/nccl_api.h"
#include "transport/schedule/types.h"
}

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>

static const int RANKS_MAX = 16;
static const size_t CHUNK_BYTES = 1 << 16;

/* What all ranks see. A round is one chunk of one sum. */
struct shared {
	std::atomic<int> joined;
	struct {
		std::atomic<uint64_t> arrived, left; /* rounds whose chunk is there; from which nothing more is read */
		char chunk[CHUNK_BYTES];
	} ranks[RANKS_MAX];
};

/* Of a communicator; work that is under way has it, too. */
struct meeting {
	shared *all;
	int rank, size;
	uint64_t round;
	std::atomic<int> aborted;

	~meeting()
	{
		munmap(all, sizeof *all);
	}
};

struct ncclComm {
	std::shared_ptr<meeting> with;
	ncclUniqueId id;
	int joined, looks;
	std::function<ncclResult_t()> to_give; /* to its stream, some time after the call has returned */
	ncclResult_t error;
};

/* One allreduce, on its way. */
struct sum {
	std::shared_ptr<meeting> with;
	char *data;
	size_t bytes, done;
	enum gn_dtype type;
	enum gn_reduction reduction;
	int is_there; /* this rank's chunk of the round */
	std::chrono::steady_clock::time_point began;
};

static int have_all(const meeting &w, std::atomic<uint64_t> &(*which)(shared *all, int rank), uint64_t round)
{
	for (int r = 0; r < w.size; r++)
		if (which(w.all, r) < round)
			return 0;
	return 1;
}

static std::atomic<uint64_t> &arrived(shared *all, int rank)
{
	return all->ranks[rank].arrived;
}

static std::atomic<uint64_t> &left(shared *all, int rank)
{
	return all->ranks[rank].left;
}

static void add_up(const meeting &w, const sum &s, size_t bytes)
{
	size_t count = bytes / gn_dtype_bytes(s.type);
	char *to = s.data + s.done;

	memcpy(to, w.all->ranks[0].chunk, bytes);
	for (int r = 1; r < w.size; r++)
		gn_reduce_of(s.type, s.reduction)(to, w.all->ranks[r].chunk, count);
	if (s.reduction == GN_AVERAGE)
		gn_reduce_divide(s.type, to, count, w.size);
}

/* Would a network of so many MB/s have taken that much by now? */
static int is_too_early(sum &s)
{
	static const char *rate = getenv("GANNET_EMULATED_NCCL_MB_S");
	const auto now = std::chrono::steady_clock::now();

	if (s.began == std::chrono::steady_clock::time_point())
		s.began = now;
	return rate && (double)s.done > atof(rate) * 1e6 * std::chrono::duration<double>(now - s.began).count();
}

/* As far as it goes without waiting; nonzero: it is done. */
static int advance(sum &s)
{
	meeting &w = *s.with;

	while (s.done < s.bytes && !w.aborted) {
		size_t bytes = s.bytes - s.done < CHUNK_BYTES ? s.bytes - s.done : CHUNK_BYTES;

		if (!s.is_there && (is_too_early(s) || !have_all(w, left, w.round)))
			return 0;
		if (!s.is_there) {
			memcpy(w.all->ranks[w.rank].chunk, s.data + s.done, bytes);
			w.all->ranks[w.rank].arrived = w.round + 1;
			s.is_there = 1;
		}
		if (!have_all(w, arrived, w.round + 1))
			return 0;
		add_up(w, s, bytes);
		w.all->ranks[w.rank].left = ++w.round;
		s.done += bytes;
		s.is_there = 0;
	}
	return 1;
}

/* --- communicators --- */

static ncclResult_t get_version(int *out)
{
	if (emulate::fails("ncclGetVersion"))
		return ncclInternalError;
	*out = NCCL_VERSION_CODE;
	return ncclSuccess;
}

static ncclResult_t get_unique_id(ncclUniqueId *out)
{
	if (emulate::fails("ncclGetUniqueId"))
		return ncclInternalError;
	static int made;

	memset(out, 0, sizeof *out);
	snprintf(out->internal, sizeof out->internal, "/gannet-emulated-nccl.%d.%d", (int)getpid(), made++);
	return ncclSuccess;
}

static ncclResult_t init_rank(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	if (emulate::fails("ncclCommInitRankConfig"))
		return ncclInternalError;
	int file = size > RANKS_MAX ? -1 : shm_open(id.internal, O_RDWR | O_CREAT, 0600);
	std::shared_ptr<meeting> w = std::make_shared<meeting>();
	void *at = MAP_FAILED;

	if (config->blocking || !size)
		return ncclInvalidUsage;
	if (file >= 0 && !ftruncate(file, sizeof(shared)))
		at = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (file >= 0)
		close(file);
	if (at == MAP_FAILED)
		return ncclSystemError;
	w->all = (shared *)at;
	w->rank = rank;
	w->size = size;
	w->all->joined++;
	*out = new ncclComm{w, id, 0, 0, {}, ncclSuccess};
	return ncclInProgress;
}

/* Moves forward what calls have left behind. */
static ncclResult_t get_async_error(ncclComm_t c, ncclResult_t *out)
{
	ncclResult_t given = ncclSuccess;

	*out = ncclInProgress;
	if (!c->joined && c->with->all->joined == c->with->size) {
		shm_unlink(c->id.internal);
		c->joined = 1;
	}
	if (!c->joined || ++c->looks % 3)
		return ncclSuccess;
	if (emulate::fails("ncclCommGetAsyncError"))
		return ncclInternalError;
	if (c->to_give)
		given = c->to_give();
	c->to_give = {};
	*out = given != ncclSuccess ? given : c->error;
	return ncclSuccess;
}

static ncclResult_t destroy(ncclComm_t c)
{
	delete c;
	return emulate::fails("ncclCommDestroy") ? ncclInternalError : ncclSuccess;
}

static ncclResult_t finalize(ncclComm_t c)
{
	if (emulate::fails("ncclCommFinalize"))
		return ncclInternalError;
	(void)c;
	return ncclInProgress;
}

/* Its work ends. */
static ncclResult_t abort_comm(ncclComm_t c)
{
	c->with->aborted = 1;
	if (!c->joined)
		shm_unlink(c->id.internal);
	return destroy(c);
}

static const char *error_string(ncclResult_t rc)
{
	return rc == ncclRemoteError ? "remote process exited or there was a network error" : "an emulated error of NCCL";
}

static const char *last_error(ncclComm_t c)
{
	(void)c;
	return "";
}

/* --- sums --- */

static int find_type(ncclDataType_t type, enum gn_dtype *out)
{
	*out = type == ncclFloat32    ? GN_F32
	       : type == ncclFloat64  ? GN_F64
	       : type == ncclInt32    ? GN_I32
	       : type == ncclInt64    ? GN_I64
	       : type == ncclFloat16  ? GN_F16
	       : type == ncclBfloat16 ? GN_BF16
				      : GN_DTYPE_COUNT;
	return *out != GN_DTYPE_COUNT;
}

static ncclResult_t all_reduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
			       cudaStream_t stream)
{
	if (emulate::fails("ncclAllReduce"))
		return ncclInternalError;
	static int calls;
	const char *fails = getenv("GANNET_EMULATED_NCCL_FAILS");
	std::shared_ptr<sum> s = std::make_shared<sum>();

	/* one call after another: the one before must be over */
	if (!c->joined || c->to_give || from != to || !find_type(type, &s->type))
		return ncclInvalidUsage;
	if (!emulate::reaches(to, count * gn_dtype_bytes(s->type)))
		return ncclInvalidArgument;
	if (fails && ++calls == atoi(fails))
		c->error = ncclRemoteError;
	s->with = c->with;
	s->data = (char *)to;
	s->bytes = count * gn_dtype_bytes(s->type);
	s->reduction = op == ncclMax ? GN_MAX : op == ncclMin ? GN_MIN : op == ncclAvg ? GN_AVERAGE : GN_SUM;
	c->to_give = [=] {
		return emulate::queue(stream, [=] { return advance(*s); }) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
	};
	return ncclInProgress;
}

extern "C" enum gn_status __real_gn_nccl_api_load(struct gn_nccl_api *out, struct gn_err *err);
extern "C" enum gn_status __wrap_gn_nccl_api_load(struct gn_nccl_api *out, struct gn_err *err);

enum gn_status __wrap_gn_nccl_api_load(struct gn_nccl_api *out, struct gn_err *err)
{
	const char *which = getenv("GANNET_EMULATED_NCCL");

	if (which && !strcmp(which, "real"))
		return __real_gn_nccl_api_load(out, err);
	*out = gn_nccl_api{NULL,    get_version,     get_unique_id, init_rank,	finalize,  destroy,
			   abort_comm, get_async_error, error_string,  last_error, all_reduce, NCCL_VERSION_CODE};
	return GN_OK;
}
