/* What every plugin has to do for messages between processes that are well. */
#include "tests/transport/plugin/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void check_properties(struct cluster *cluster)
{
	struct plug_properties p;
	struct stat st;
	int count = 0;

	cluster_load(cluster);
	if (!plug_name(&cluster->plug) || !*plug_name(&cluster->plug))
		fail(cluster, "the plugin has no name");
	must(cluster, plug_devices(&cluster->plug, &count), "devices");
	for (int d = 0; d < count; d++) {
		must(cluster, plug_properties(&cluster->plug, d, &p), "getProperties");
		if (!p.name || !*p.name)
			fail(cluster, "device %d has no name", d);
		if (!(p.pointers & GN_NCCL_PTR_HOST))
			fail(cluster, "device %d does not take host memory (ptrSupport %d)", d, p.pointers);
		if (p.speed < 1 || p.max_comms < 1 || p.max_receives < 1 || p.max_receives > GN_NCCL_MAX_REQUESTS)
			fail(cluster, "device %d: speed %d, maxComms %d, maxRecvs %d", d, p.speed, p.max_comms, p.max_receives);
		if (p.device_type != GN_NCCL_DEVICE_HOST)
			fail(cluster, "device %d is of type %d, which this program cannot drive", d, p.device_type);
		if (p.pci_path && stat(p.pci_path, &st))
			fail(cluster, "device %d: pciPath %s does not exist", d, p.pci_path);
		if (cluster->options->version >= 9 && (p.max_p2p_bytes < 1 || p.max_coll_bytes < 1 || p.made_of < 1))
			fail(cluster, "device %d: maxP2pBytes %lld, maxCollBytes %lld, vProps of %d devices", d, p.max_p2p_bytes,
			     p.max_coll_bytes, p.made_of);
	}
	cluster_unload(cluster);
}

static void check_handle(struct cluster *cluster)
{
	unsigned char handle[GN_NCCL_HANDLE_BYTES + 64];
	void *listener;

	cluster_load(cluster);
	memset(handle, 0xa5, sizeof handle);
	listener = cluster_listen(cluster, handle);
	for (size_t i = GN_NCCL_HANDLE_BYTES; i < sizeof handle; i++)
		if (handle[i] != 0xa5)
			fail(cluster, "listen wrote byte %zu of a handle of %d", i, GN_NCCL_HANDLE_BYTES);
	must(cluster, plug_close_listen(&cluster->plug, listener), "closeListen");
	cluster_unload(cluster);
}

/* While nobody accepts, connect() has to come back each time, and so has accept() while nobody connects. */
static void check_no_wait(struct cluster *cluster)
{
	char handle[GN_NCCL_HANDLE_BYTES];
	void *listener = NULL, *comm = NULL;
	const double slow_s = cluster->options->limit_s / 50.0;
	double end;
	int calls = 0, slow = 0;

	cluster_load(cluster);
	if (cluster->rank) {
		listener = cluster_listen(cluster, handle);
		for (end = now_s() + 0.2; now_s() < end;) {
			must(cluster, plug_accept(&cluster->plug, listener, &comm), "accept");
			if (comm)
				fail(cluster, "accept found a connection that nobody has made");
		}
		tell(cluster, 0, handle, sizeof handle);
	} else {
		hear(cluster, 1, handle, sizeof handle);
		/* the first one may open a network, and any one may fall into a moment in which this machine stands still */
		for (end = now_s() + 0.5; (now_s() < end || calls < 4) && !comm; calls++) {
			double before = now_s();

			must(cluster, plug_connect(&cluster->plug, cluster->context, cluster->device, handle, &comm), "connect");
			slow += calls && now_s() - before > slow_s;
		}
		if (slow > 1)
			fail(cluster, "%d of %d calls of connect blocked for more than %.1f s", slow, calls, slow_s);
	}
	meet(cluster);
	if (cluster->rank)
		comm = cluster_accept(cluster, listener);
	else if (!comm)
		comm = cluster_connect(cluster, handle);
	if (cluster->rank)
		must(cluster, plug_close_listen(&cluster->plug, listener), "closeListen");
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

/* The sender overwrites its buffer as soon as it may. */
static void transfer(struct cluster *cluster, void *comm, size_t sent, size_t posted, uint64_t seed)
{
	enum { GUARD = 64 };
	unsigned char *buffer = malloc(posted + GUARD);
	int size = -1;
	void *mhandle;

	if (!buffer)
		fail(cluster, "no memory");
	memset(buffer, 0x5c, posted + GUARD);
	mhandle = reg(cluster, comm, buffer, posted + GUARD);
	if (!cluster->rank) {
		fill(buffer, sent, seed);
		await(cluster, send_one(cluster, comm, buffer, sent, 7, mhandle), &size);
		memset(buffer, 0, posted);
	} else {
		await(cluster, receive_one(cluster, comm, buffer, posted, 7, mhandle), &size);
		if (wrong(buffer, sent, seed) >= 0)
			fail(cluster, "a message of %zu bytes is wrong from byte %ld on", sent, wrong(buffer, sent, seed));
		for (size_t i = sent; i < posted + GUARD; i++)
			if (buffer[i] != 0x5c)
				fail(cluster, "a message of %zu bytes changed byte %zu of the buffer", sent, i);
	}
	if ((size_t)size != sent)
		fail(cluster, "test tells %d bytes for a message of %zu (buffer: %zu)", size, sent, posted);
	dereg(cluster, comm, mhandle);
	free(buffer);
}

static void check_transfer(struct cluster *cluster)
{
	static const size_t sizes[] = {1, 2, 7, 8, 63, 64, 511, 4096, 8191, 8192, 8193, 65535, 65536, 262144, 1048577, 4194304};
	void *comm;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		transfer(cluster, comm, sizes[i], sizes[i], i + 1);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

static void check_empty(struct cluster *cluster)
{
	void *comm;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	transfer(cluster, comm, 0, 4096, 1);
	transfer(cluster, comm, 100, 100, 2);
	transfer(cluster, comm, 0, 1, 3);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

static void check_unequal(struct cluster *cluster)
{
	static const size_t sizes[][2] = {{1, 2}, {100, 4096}, {4095, 65536}, {9000, 524288}, {300000, 524288}, {524287, 524288}};
	void *comm;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		transfer(cluster, comm, sizes[i][0], sizes[i][1], 50 + i);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

/* As many requests as NCCL has under way, for a while. */
static void check_pipeline(struct cluster *cluster)
{
	enum { DEPTH = GN_NCCL_MAX_REQUESTS, COUNT = 400, BYTES = 20000 };
	void *comm, *mhandle, *requests[DEPTH] = {0};
	unsigned char *buffers = malloc((size_t)DEPTH * BYTES);
	int posted = 0, finished = 0;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffers, (size_t)DEPTH * BYTES);
	while (finished < COUNT) {
		int slot = posted % DEPTH, tag = 3, done = 0, size = 0;
		void *data = buffers + (size_t)slot * BYTES, *request = NULL;
		size_t bytes = BYTES;

		if (posted < COUNT && posted - finished < DEPTH) {
			bytes = cluster->rank ? BYTES : (size_t)(posted * 37 % BYTES) + 1;
			if (!cluster->rank)
				fill(data, bytes, (uint64_t)posted);
			if (!cluster->rank)
				must(cluster, plug_isend(&cluster->plug, comm, data, bytes, tag, mhandle, &request), "isend");
			else
				must(cluster, plug_irecv(&cluster->plug, comm, 1, &data, &bytes, &tag, &mhandle, &request), "irecv");
			requests[slot] = request;
			posted += request != NULL;
		}
		/* as NCCL does: the oldest first */
		slot = finished % DEPTH;
		if (finished == posted)
			continue;
		must(cluster, plug_test(&cluster->plug, requests[slot], &done, &size), "test");
		if (done && cluster->rank && (size != finished * 37 % BYTES + 1 ||
					  wrong(buffers + (size_t)slot * BYTES, (size_t)size, (uint64_t)finished) >= 0))
			fail(cluster, "message %d is another one, or wrong (%d bytes)", finished, size);
		finished += done;
	}
	dereg(cluster, comm, mhandle);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	free(buffers);
	cluster_unload(cluster);
}

/* That many receptions have to fit before any of them is served. */
static void check_depth(struct cluster *cluster)
{
	enum { DEPTH = GN_NCCL_MAX_REQUESTS, BYTES = 100 };
	void *comm, *mhandle, *requests[DEPTH];
	unsigned char buffers[DEPTH][BYTES];
	double end;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffers, sizeof buffers);
	for (int i = 0; cluster->rank && i < DEPTH; i++) {
		void *data = buffers[i];
		size_t bytes = BYTES;
		int tag = 0;

		requests[i] = NULL;
		for (end = now_s() + cluster->options->limit_s / 10.0; !requests[i];) {
			must(cluster, plug_irecv(&cluster->plug, comm, 1, &data, &bytes, &tag, &mhandle, &requests[i]), "irecv");
			if (now_s() > end)
				fail(cluster, "irecv takes only %d requests, NCCL has up to %d", i, DEPTH);
		}
	}
	meet(cluster);
	for (int i = 0; i < DEPTH; i++) {
		if (!cluster->rank) {
			fill(buffers[i], BYTES, (uint64_t)i);
			requests[i] = send_one(cluster, comm, buffers[i], BYTES, 0, mhandle);
		}
	}
	for (int i = 0; i < DEPTH; i++) {
		await(cluster, requests[i], NULL);
		if (wrong(buffers[i], BYTES, (uint64_t)i) >= 0)
			fail(cluster, "message %d is wrong", i);
	}
	dereg(cluster, comm, mhandle);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

static int group_size(const struct cluster *cluster)
{
	return cluster->properties.max_receives < 8 ? cluster->properties.max_receives : 8;
}

/* Sends in the reverse order of the tags, each of another size. */
static void check_group(struct cluster *cluster)
{
	enum { BYTES = 30000, ROUNDS = 4 };
	unsigned char *buffers = malloc(8 * BYTES);
	void *comm, *mhandle, *mhandles[8], *data[8], *requests[8], *request;
	size_t posted[8];
	int tags[8], sizes[8 + 1], n;

	cluster_load(cluster);
	n = group_size(cluster);
	if (n < 2)
		skip(cluster, "the plugin groups no receptions (maxRecvs %d)", n);
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffers, 8 * BYTES);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < n; i++) {
			data[i] = buffers + i * BYTES;
			posted[i] = BYTES;
			tags[i] = 100 + i;
			mhandles[i] = mhandle;
		}
		for (int i = n - 1; i >= 0 && !cluster->rank; i--) {
			fill(data[i], (size_t)(1 + i * 3500), (uint64_t)(100 * round + i));
			requests[i] = send_one(cluster, comm, data[i], (size_t)(1 + i * 3500), tags[i], mhandle);
		}
		for (int i = 0; i < n && !cluster->rank; i++)
			await(cluster, requests[i], NULL);
		if (!cluster->rank)
			continue;
		request = NULL;
		while (!request)
			must(cluster, plug_irecv(&cluster->plug, comm, n, data, posted, tags, mhandles, &request), "irecv");
		memset(sizes, 0xff, sizeof sizes);
		await(cluster, request, sizes);
		for (int i = 0; i < n; i++)
			if (sizes[i] != 1 + i * 3500 || wrong(data[i], (size_t)sizes[i], (uint64_t)(100 * round + i)) >= 0)
				fail(cluster, "part %d of a group has %d bytes, not %d, or is another tag's", i, sizes[i], 1 + i * 3500);
		if (sizes[n] != -1)
			fail(cluster, "test tells more sizes than the group of %d has parts", n);
	}
	dereg(cluster, comm, mhandle);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	free(buffers);
	cluster_unload(cluster);
}

/* Tags choose within the first group alone: of two messages with tag 1 the second is the next group's, even when the first
 * group still waits for its tag 2. */
static void check_group_order(struct cluster *cluster)
{
	enum { BYTES = 64 };
	static const int wanted[2][2] = {{1, 2}, {1, 3}};
	unsigned char buffers[4][BYTES];
	void *comm, *mhandle, *requests[4] = {0}, *groups[2] = {0};
	int done[4] = {0}, tags_sent[4] = {1, 1, 2, 3}, sizes[2];
	double end;

	cluster_load(cluster);
	if (group_size(cluster) < 2)
		skip(cluster, "the plugin groups no receptions");
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffers, sizeof buffers);
	for (int g = 0; cluster->rank && g < 2; g++) {
		void *data[2] = {buffers[2 * g], buffers[2 * g + 1]}, *mhandles[2] = {mhandle, mhandle};
		size_t bytes[2] = {BYTES, BYTES};
		int tags[2] = {wanted[g][0], wanted[g][1]};

		while (!groups[g])
			must(cluster, plug_irecv(&cluster->plug, comm, 2, data, bytes, tags, mhandles, &groups[g]), "irecv");
	}
	meet(cluster);
	for (int i = 0; !cluster->rank && i < 4; i++)
		fill(buffers[i], BYTES, (uint64_t)i);
	end = now_s() + cluster->options->limit_s / 4.0;
	/* the second may be refused (no request) or queued; both are right */
	while (!cluster->rank && !(done[0] && done[1] && done[2] && done[3])) {
		for (int i = 0; i < 4; i++) {
			if (!requests[i] && !done[i] && (i != 1 || requests[0] || done[0]) && (i != 3 || requests[1] || done[1]))
				must(cluster, plug_isend(&cluster->plug, comm, buffers[i], BYTES, tags_sent[i], mhandle, &requests[i]),
				     "isend");
			if (requests[i] && !done[i])
				must(cluster, plug_test(&cluster->plug, requests[i], &done[i], NULL), "test");
			if (done[i])
				requests[i] = NULL;
		}
		if (now_s() > end)
			fail(cluster, "messages for two groups do not all leave");
	}
	for (int g = 0; cluster->rank && g < 2; g++)
		await(cluster, groups[g], sizes);
	if (cluster->rank && (wrong(buffers[0], BYTES, 0) >= 0 || wrong(buffers[1], BYTES, 2) >= 0 || wrong(buffers[2], BYTES, 1) >= 0 ||
			  wrong(buffers[3], BYTES, 3) >= 0))
		fail(cluster, "a message went to another group than the first that waits for its tag");
	dereg(cluster, comm, mhandle);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

/* A message that nobody waits for yet: refused, or kept, but not lost and not early. */
static void check_early_send(struct cluster *cluster)
{
	enum { BYTES = 3000 };
	unsigned char buffer[BYTES];
	void *comm, *mhandle, *request = NULL;
	int size = 0, done = 0;
	double end;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffer, BYTES);
	if (!cluster->rank) {
		fill(buffer, BYTES, 9);
		for (end = now_s() + 0.3; now_s() < end && !done;) {
			if (!request)
				must(cluster, plug_isend(&cluster->plug, comm, buffer, BYTES, 0, mhandle, &request), "isend");
			if (request)
				must(cluster, plug_test(&cluster->plug, request, &done, &size), "test");
		}
		meet(cluster);
		if (!request)
			request = send_one(cluster, comm, buffer, BYTES, 0, mhandle);
		if (!done)
			await(cluster, request, &size);
	} else {
		meet(cluster);
		memset(buffer, 0, BYTES);
		await(cluster, receive_one(cluster, comm, buffer, BYTES, 0, mhandle), &size);
		if (wrong(buffer, BYTES, 9) >= 0)
			fail(cluster, "a message that was sent before it was waited for is wrong");
	}
	if (size != BYTES)
		fail(cluster, "a message that was sent before it was waited for has %d bytes, not %d", size, BYTES);
	dereg(cluster, comm, mhandle);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

/* For its low-latency protocols NCCL says, in *request, that completion of a reception need not be exact. */
static void check_optional(struct cluster *cluster)
{
	enum { BYTES = 2048, COUNT = 50 };
	unsigned char buffer[BYTES];
	void *comm, *mhandle, *data = buffer, *request;
	size_t bytes = BYTES;
	int tag = 0;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffer, BYTES);
	for (int i = 0; i < COUNT; i++) {
		double end = now_s() + cluster->options->limit_s / 4.0;

		if (!cluster->rank) {
			fill(buffer, BYTES, (uint64_t)i);
			await(cluster, send_one(cluster, comm, buffer, BYTES, 0, mhandle), NULL);
			meet(cluster);
			continue;
		}
		memset(buffer, 0, BYTES);
		do {
			request = (void *)(uintptr_t)GN_NCCL_OPTIONAL_RECV;
			must(cluster, plug_irecv(&cluster->plug, comm, 1, &data, &bytes, &tag, &mhandle, &request), "irecv");
			if (request == (void *)(uintptr_t)GN_NCCL_OPTIONAL_RECV)
				fail(cluster, "irecv left 0x1 as the request, which test cannot take");
		} while (!request);
		await(cluster, request, NULL);
		/* the data itself says when it is there */
		while (wrong(buffer, BYTES, (uint64_t)i) >= 0)
			if (now_s() > end)
				fail(cluster, "message %d did not arrive", i);
		meet(cluster);
	}
	dereg(cluster, comm, mhandle);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

static void check_flush(struct cluster *cluster)
{
	unsigned char buffer[512];
	void *comm, *mhandle, *data = buffer, *request = NULL;
	int size = 0;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffer, sizeof buffer);
	if (!cluster->rank) {
		fill(buffer, sizeof buffer, 4);
		await(cluster, send_one(cluster, comm, buffer, sizeof buffer, 0, mhandle), NULL);
	} else {
		await(cluster, receive_one(cluster, comm, buffer, sizeof buffer, 0, mhandle), &size);
		must(cluster, plug_iflush(&cluster->plug, comm, 1, &data, &size, &mhandle, &request), "iflush");
		if (request)
			await(cluster, request, NULL);
		if (wrong(buffer, sizeof buffer, 4) >= 0)
			fail(cluster, "iflush changed the data");
	}
	dereg(cluster, comm, mhandle);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

static void check_registration(struct cluster *cluster)
{
	enum { COUNT = 200, BYTES = 10000 };
	unsigned char *memory = malloc((size_t)COUNT * BYTES);
	void *comm, *mhandles[COUNT], *none = NULL;
	int size;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	for (int i = 0; i < COUNT; i++)
		mhandles[i] = reg(cluster, comm, memory + (size_t)i * BYTES, BYTES);
	/* from the middle of a region, which need not be aligned */
	for (int i = 0; i < COUNT; i += 40) {
		unsigned char *at = memory + (size_t)i * BYTES + 13;

		fill(at, 777, cluster->rank ? 0 : (uint64_t)i);
		await(cluster, cluster->rank ? receive_one(cluster, comm, at, 777, 0, mhandles[i]) : send_one(cluster, comm, at, 777, 0, mhandles[i]),
		      &size);
		if (size != 777 || wrong(at, 777, (uint64_t)i) >= 0)
			fail(cluster, "a message into the middle of a registered region is wrong");
	}
	if (!(cluster->properties.pointers & GN_NCCL_PTR_CUDA) &&
	    !plug_reg(&cluster->plug, comm, memory, BYTES, GN_NCCL_PTR_CUDA, &none))
		fail(cluster, "regMr takes GPU memory, which no device claims to support");
	for (int i = 0; i < COUNT; i++)
		dereg(cluster, comm, mhandles[i]);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	free(memory);
	cluster_unload(cluster);
}

/* A message that is longer than the buffer: an error, or cut, but nothing behind the buffer is touched. */
static void check_too_long(struct cluster *cluster)
{
	unsigned char buffer[8192];
	void *comm, *mhandle, *request = NULL;
	int size = 0, done = 0, rc = 0;
	double end = now_s() + 0.7;

	cluster_load(cluster);
	memset(buffer, 0x33, sizeof buffer);
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffer, sizeof buffer);
	if (cluster->rank)
		request = receive_one(cluster, comm, buffer, 1000, 0, mhandle);
	while (now_s() < end && !rc && !done) {
		if (!cluster->rank && !request)
			rc = plug_isend(&cluster->plug, comm, buffer, 4000, 0, mhandle, &request);
		if (request && !rc)
			rc = plug_test(&cluster->plug, request, &done, &size);
	}
	if (cluster->rank && !rc && done && size > 1000)
		fail(cluster, "a message of 4000 bytes for a buffer of 1000 is told to have %d", size);
	for (int i = 1000; cluster->rank && i < 8192; i++)
		if (buffer[i] != 0x33)
			fail(cluster, "a message of 4000 bytes for a buffer of 1000 changed byte %d", i);
	dereg(cluster, comm, mhandle);
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

const struct cluster_check checks_basic[] = {
	{"properties", "name, devices and their properties make sense", 1, 0, 0, check_properties},
	{"handle", "listen writes no more than 128 bytes of handle", 1, 0, 0, check_handle},
	{"no-wait", "connect and accept come back at once, and go on", 2, 0, 0, check_no_wait},
	{"transfer", "messages of 1 byte to 4 MiB arrive whole, with their size, and nothing around them", 2, 0, 0, check_transfer},
	{"empty", "messages of 0 bytes", 2, 0, 0, check_empty},
	{"unequal", "a message shorter than the buffer is told with its true size", 2, 0, 0, check_unequal},
	{"pipeline", "32 requests at once, in order", 2, 0, 0, check_pipeline},
	{"depth", "32 receptions can wait", 2, 0, 0, check_depth},
	{"group", "a grouped reception: parts by tag, a size for each", 2, 0, 0, check_group},
	{"group-order", "tags choose within the first group that waits", 2, 0, 0, check_group_order},
	{"early-send", "a message that nobody waits for yet is neither lost nor wrong", 2, 0, 0, check_early_send},
	{"optional", "*request may be 0x1 on entry of irecv", 2, 0, 0, check_optional},
	{"flush", "iflush ends, or is not needed", 2, 0, 0, check_flush},
	{"registration", "many registrations, messages from their middle; memory that is not supported is refused", 2, 0, 0,
	 check_registration},
	{"too-long", "a message longer than its buffer touches nothing behind it", 2, 0, 0, check_too_long},
	{0},
};
