// Gloo over tcp, at its best: halving and doubling for small messages, its ring for large ones. Ranks meet in the directory
// GLOO_STORE; they are RANK of WORLD_SIZE, or Slurm's. GLOO_INTERFACE names the network device.
#include "bench/peers/peer.h"

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>

namespace {

// or GLOO_RING_FROM: on loopback its ring is slower at all sizes
size_t ring_from = 512 << 10;

struct Gloo {
	std::shared_ptr<gloo::rendezvous::Context> context;
	// the algorithm of the small size at hand
	std::unique_ptr<gloo::AllreduceHalvingDoubling<float>> small;
	float *small_out = nullptr;
	size_t small_count = 0;
};

Gloo *state;

int number(const char *name, const char *other)
{
	const char *text = getenv(name);

	if (!text)
		text = getenv(other);
	if (!text)
		peer_fail("neither %s nor %s is set", name, other);
	return atoi(text);
}

template <typename T>
void ring(T *data, const T *in, size_t count, void (*reduce)(void *, const void *, const void *, size_t))
{
	gloo::AllreduceOptions options(state->context);

	options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
	if (in)
		options.setInput(const_cast<T *>(in), count);
	options.setOutput(data, count);
	options.setReduceFunction(reduce);
	gloo::allreduce(options);
}

void small_sum(const float *in, float *out, size_t count)
{
	if (!state->small || state->small_out != out || state->small_count != count) {
		state->small.reset();
		state->small.reset(new gloo::AllreduceHalvingDoubling<float>(state->context, {out}, int(count)));
		state->small_out = out;
		state->small_count = count;
	}
	if (in)
		memcpy(out, in, count * sizeof *out);
	state->small->run();
}

} // namespace

void peer_open(int *, char ***, int, size_t buffer_bytes, struct peer *p)
try {
	const char *store = getenv("GLOO_STORE"), *device = getenv("GLOO_INTERFACE");
	gloo::transport::tcp::attr attr;

	if (!store || !device)
		peer_fail("GLOO_STORE and GLOO_INTERFACE have to be set");
	p->rank = number("RANK", "SLURM_PROCID");
	p->size = number("WORLD_SIZE", "SLURM_NTASKS");
	if (getenv("GLOO_RING_FROM"))
		ring_from = strtoull(getenv("GLOO_RING_FROM"), nullptr, 10);
	attr.iface = device;
	state = new Gloo;
	state->context = std::make_shared<gloo::rendezvous::Context>(p->rank, p->size);
	gloo::rendezvous::FileStore files(store);
	auto tcp = gloo::transport::tcp::CreateDevice(attr);
	state->context->connectFullMesh(files, tcp);
	p->in = static_cast<float *>(aligned_alloc(4096, (buffer_bytes + 4095) / 4096 * 4096));
	p->out = static_cast<float *>(aligned_alloc(4096, (buffer_bytes + 4095) / 4096 * 4096));
	if (!p->in || !p->out)
		peer_fail("no memory");
} catch (const std::exception &e) {
	peer_fail("gloo: %s", e.what());
}

void peer_sum(struct peer *, const float *in, float *out, size_t count)
try {
	if (count * sizeof *out < ring_from)
		small_sum(in, out, count);
	else
		ring<float>(out, in, count, &gloo::sum<float>);
} catch (const std::exception &e) {
	peer_fail("gloo: %s", e.what());
}

void peer_max(struct peer *, double *values, size_t count)
try {
	ring<double>(values, nullptr, count, &gloo::max<double>);
} catch (const std::exception &e) {
	peer_fail("gloo: %s", e.what());
}

void peer_close(struct peer *p)
{
	free(p->in);
	free(p->out);
	delete state;
}
