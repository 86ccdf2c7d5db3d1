/* What every plugin has to do for messages between processes that are well. */
#include "tests/transport/plugin/lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void check_properties(struct lab *lab)
{
	struct plug_properties p;
	struct stat st;
	int count = 0;

	lab_load(lab);
	if (!plug_name(&lab->plug) || !*plug_name(&lab->plug))
		fail(lab, "the plugin has no name");
	must(lab, plug_devices(&lab->plug, &count), "devices");
	for (int d = 0; d < count; d++) {
		must(lab, plug_properties(&lab->plug, d, &p), "getProperties");
		if (!p.name || !*p.name)
			fail(lab, "device %d has no name", d);
		if (!(p.pointers & GN_NCCL_PTR_HOST))
			fail(lab, "device %d does not take host memory (ptrSupport %d)", d, p.pointers);
		if (p.speed < 1 || p.max_comms < 1 || p.max_receives < 1 || p.max_receives > GN_NCCL_MAX_REQUESTS)
			fail(lab, "device %d: speed %d, maxComms %d, maxRecvs %d", d, p.speed, p.max_comms, p.max_receives);
		if (p.device_type != GN_NCCL_DEVICE_HOST)
			fail(lab, "device %d is of type %d, which this program cannot drive", d, p.device_type);
		if (p.pci_path && stat(p.pci_path, &st))
			fail(lab, "device %d: pciPath %s does not exist", d, p.pci_path);
		if (lab->options->version >= 9 && (p.max_p2p_bytes < 1 || p.max_coll_bytes < 1 || p.made_of < 1))
			fail(lab, "device %d: maxP2pBytes %lld, maxCollBytes %lld, vProps of %d devices", d, p.max_p2p_bytes,
			     p.max_coll_bytes, p.made_of);
	}
	lab_unload(lab);
}

static void check_handle(struct lab *lab)
{
	unsigned char handle[GN_NCCL_HANDLE_BYTES + 64];
	void *listener;

	lab_load(lab);
	memset(handle, 0xa5, sizeof handle);
	listener = lab_listen(lab, handle);
	for (size_t i = GN_NCCL_HANDLE_BYTES; i < sizeof handle; i++)
		if (handle[i] != 0xa5)
			fail(lab, "listen wrote byte %zu of a handle of %d", i, GN_NCCL_HANDLE_BYTES);
	must(lab, plug_close_listen(&lab->plug, listener), "closeListen");
	lab_unload(lab);
}

/* While nobody accepts, connect() has to come back each time, and so has accept() while nobody connects. */
static void check_no_wait(struct lab *lab)
{
	char handle[GN_NCCL_HANDLE_BYTES];
	void *listener = NULL, *comm = NULL;
	double end;
	int calls = 0, slow = 0;

	lab_load(lab);
	if (lab->rank) {
		listener = lab_listen(lab, handle);
		for (end = now_s() + 0.2; now_s() < end;) {
			must(lab, plug_accept(&lab->plug, listener, &comm), "accept");
			if (comm)
				fail(lab, "accept found a connection that nobody has made");
		}
		tell(lab, 0, handle, sizeof handle);
	} else {
		hear(lab, 1, handle, sizeof handle);
		/* the first one may open a network, and any one may fall into a moment in which this machine stands still */
		for (end = now_s() + 0.5; (now_s() < end || calls < 4) && !comm; calls++) {
			double before = now_s();

			must(lab, plug_connect(&lab->plug, lab->context, lab->device, handle, &comm), "connect");
			slow += calls && now_s() - before > 0.4;
		}
		if (slow > 1)
			fail(lab, "%d of %d calls of connect blocked for more than 0.4 s", slow, calls);
	}
	meet(lab);
	if (lab->rank)
		comm = lab_accept(lab, listener);
	else if (!comm)
		comm = lab_connect(lab, handle);
	if (lab->rank)
		must(lab, plug_close_listen(&lab->plug, listener), "closeListen");
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

/* The sender overwrites its buffer as soon as it may. */
static void transfer(struct lab *lab, void *comm, size_t sent, size_t posted, uint64_t seed)
{
	enum { GUARD = 64 };
	unsigned char *buffer = malloc(posted + GUARD);
	int size = -1;
	void *mhandle;

	if (!buffer)
		fail(lab, "no memory");
	memset(buffer, 0x5c, posted + GUARD);
	mhandle = reg(lab, comm, buffer, posted + GUARD);
	if (!lab->rank) {
		fill(buffer, sent, seed);
		await(lab, send_one(lab, comm, buffer, sent, 7, mhandle), &size);
		memset(buffer, 0, posted);
	} else {
		await(lab, receive_one(lab, comm, buffer, posted, 7, mhandle), &size);
		if (wrong(buffer, sent, seed) >= 0)
			fail(lab, "a message of %zu bytes is wrong from byte %ld on", sent, wrong(buffer, sent, seed));
		for (size_t i = sent; i < posted + GUARD; i++)
			if (buffer[i] != 0x5c)
				fail(lab, "a message of %zu bytes changed byte %zu of the buffer", sent, i);
	}
	if ((size_t)size != sent)
		fail(lab, "test tells %d bytes for a message of %zu (buffer: %zu)", size, sent, posted);
	dereg(lab, comm, mhandle);
	free(buffer);
}

static void check_transfer(struct lab *lab)
{
	static const size_t sizes[] = {1, 2, 7, 8, 63, 64, 511, 4096, 8191, 8192, 8193, 65535, 65536, 262144, 1048577, 4194304};
	void *comm;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		transfer(lab, comm, sizes[i], sizes[i], i + 1);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

static void check_empty(struct lab *lab)
{
	void *comm;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	transfer(lab, comm, 0, 4096, 1);
	transfer(lab, comm, 100, 100, 2);
	transfer(lab, comm, 0, 1, 3);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

static void check_unequal(struct lab *lab)
{
	static const size_t sizes[][2] = {{1, 2}, {100, 4096}, {4095, 65536}, {9000, 524288}, {300000, 524288}, {524287, 524288}};
	void *comm;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		transfer(lab, comm, sizes[i][0], sizes[i][1], 50 + i);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

/* As many requests as NCCL has under way, for a while. */
static void check_pipeline(struct lab *lab)
{
	enum { DEPTH = GN_NCCL_MAX_REQUESTS, COUNT = 400, BYTES = 20000 };
	void *comm, *mhandle, *requests[DEPTH] = {0};
	unsigned char *buffers = malloc((size_t)DEPTH * BYTES);
	int posted = 0, finished = 0;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffers, (size_t)DEPTH * BYTES);
	while (finished < COUNT) {
		int slot = posted % DEPTH, tag = 3, done = 0, size = 0;
		void *data = buffers + (size_t)slot * BYTES, *request = NULL;
		size_t bytes = BYTES;

		if (posted < COUNT && posted - finished < DEPTH) {
			bytes = lab->rank ? BYTES : (size_t)(posted * 37 % BYTES) + 1;
			if (!lab->rank)
				fill(data, bytes, (uint64_t)posted);
			if (!lab->rank)
				must(lab, plug_isend(&lab->plug, comm, data, bytes, tag, mhandle, &request), "isend");
			else
				must(lab, plug_irecv(&lab->plug, comm, 1, &data, &bytes, &tag, &mhandle, &request), "irecv");
			requests[slot] = request;
			posted += request != NULL;
		}
		/* as NCCL does: the oldest first */
		slot = finished % DEPTH;
		if (finished == posted)
			continue;
		must(lab, plug_test(&lab->plug, requests[slot], &done, &size), "test");
		if (done && lab->rank && (size != finished * 37 % BYTES + 1 ||
					  wrong(buffers + (size_t)slot * BYTES, (size_t)size, (uint64_t)finished) >= 0))
			fail(lab, "message %d is another one, or wrong (%d bytes)", finished, size);
		finished += done;
	}
	dereg(lab, comm, mhandle);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	free(buffers);
	lab_unload(lab);
}

/* That many receptions have to fit before any of them is served. */
static void check_depth(struct lab *lab)
{
	enum { DEPTH = GN_NCCL_MAX_REQUESTS, BYTES = 100 };
	void *comm, *mhandle, *requests[DEPTH];
	unsigned char buffers[DEPTH][BYTES];
	double end;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffers, sizeof buffers);
	for (int i = 0; lab->rank && i < DEPTH; i++) {
		void *data = buffers[i];
		size_t bytes = BYTES;
		int tag = 0;

		requests[i] = NULL;
		for (end = now_s() + lab->options->limit_s / 10.0; !requests[i];) {
			must(lab, plug_irecv(&lab->plug, comm, 1, &data, &bytes, &tag, &mhandle, &requests[i]), "irecv");
			if (now_s() > end)
				fail(lab, "irecv takes only %d requests, NCCL has up to %d", i, DEPTH);
		}
	}
	meet(lab);
	for (int i = 0; i < DEPTH; i++) {
		if (!lab->rank) {
			fill(buffers[i], BYTES, (uint64_t)i);
			requests[i] = send_one(lab, comm, buffers[i], BYTES, 0, mhandle);
		}
	}
	for (int i = 0; i < DEPTH; i++) {
		await(lab, requests[i], NULL);
		if (wrong(buffers[i], BYTES, (uint64_t)i) >= 0)
			fail(lab, "message %d is wrong", i);
	}
	dereg(lab, comm, mhandle);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

static int group_size(const struct lab *lab)
{
	return lab->properties.max_receives < 8 ? lab->properties.max_receives : 8;
}

/* Sends in the reverse order of the tags, each of another size. */
static void check_group(struct lab *lab)
{
	enum { BYTES = 30000, ROUNDS = 4 };
	unsigned char *buffers = malloc(8 * BYTES);
	void *comm, *mhandle, *mhandles[8], *data[8], *requests[8], *request;
	size_t posted[8];
	int tags[8], sizes[8 + 1], n;

	lab_load(lab);
	n = group_size(lab);
	if (n < 2)
		skip(lab, "the plugin groups no receptions (maxRecvs %d)", n);
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffers, 8 * BYTES);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < n; i++) {
			data[i] = buffers + i * BYTES;
			posted[i] = BYTES;
			tags[i] = 100 + i;
			mhandles[i] = mhandle;
		}
		for (int i = n - 1; i >= 0 && !lab->rank; i--) {
			fill(data[i], (size_t)(1 + i * 3500), (uint64_t)(100 * round + i));
			requests[i] = send_one(lab, comm, data[i], (size_t)(1 + i * 3500), tags[i], mhandle);
		}
		for (int i = 0; i < n && !lab->rank; i++)
			await(lab, requests[i], NULL);
		if (!lab->rank)
			continue;
		request = NULL;
		while (!request)
			must(lab, plug_irecv(&lab->plug, comm, n, data, posted, tags, mhandles, &request), "irecv");
		memset(sizes, 0xff, sizeof sizes);
		await(lab, request, sizes);
		for (int i = 0; i < n; i++)
			if (sizes[i] != 1 + i * 3500 || wrong(data[i], (size_t)sizes[i], (uint64_t)(100 * round + i)) >= 0)
				fail(lab, "part %d of a group has %d bytes, not %d, or is another tag's", i, sizes[i], 1 + i * 3500);
		if (sizes[n] != -1)
			fail(lab, "test tells more sizes than the group of %d has parts", n);
	}
	dereg(lab, comm, mhandle);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	free(buffers);
	lab_unload(lab);
}

/* Tags choose within the first group alone: of two messages with tag 1 the second is the next group's, even when the first
 * group still waits for its tag 2. */
static void check_group_order(struct lab *lab)
{
	enum { BYTES = 64 };
	static const int wanted[2][2] = {{1, 2}, {1, 3}};
	unsigned char buffers[4][BYTES];
	void *comm, *mhandle, *requests[4] = {0}, *groups[2] = {0};
	int done[4] = {0}, tags_sent[4] = {1, 1, 2, 3}, sizes[2];
	double end;

	lab_load(lab);
	if (group_size(lab) < 2)
		skip(lab, "the plugin groups no receptions");
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffers, sizeof buffers);
	for (int g = 0; lab->rank && g < 2; g++) {
		void *data[2] = {buffers[2 * g], buffers[2 * g + 1]}, *mhandles[2] = {mhandle, mhandle};
		size_t bytes[2] = {BYTES, BYTES};
		int tags[2] = {wanted[g][0], wanted[g][1]};

		while (!groups[g])
			must(lab, plug_irecv(&lab->plug, comm, 2, data, bytes, tags, mhandles, &groups[g]), "irecv");
	}
	meet(lab);
	for (int i = 0; !lab->rank && i < 4; i++)
		fill(buffers[i], BYTES, (uint64_t)i);
	end = now_s() + lab->options->limit_s / 4.0;
	/* the second may be refused (no request) or queued; both are right */
	while (!lab->rank && !(done[0] && done[1] && done[2] && done[3])) {
		for (int i = 0; i < 4; i++) {
			if (!requests[i] && !done[i] && (i != 1 || requests[0] || done[0]) && (i != 3 || requests[1] || done[1]))
				must(lab, plug_isend(&lab->plug, comm, buffers[i], BYTES, tags_sent[i], mhandle, &requests[i]),
				     "isend");
			if (requests[i] && !done[i])
				must(lab, plug_test(&lab->plug, requests[i], &done[i], NULL), "test");
			if (done[i])
				requests[i] = NULL;
		}
		if (now_s() > end)
			fail(lab, "messages for two groups do not all leave");
	}
	for (int g = 0; lab->rank && g < 2; g++)
		await(lab, groups[g], sizes);
	if (lab->rank && (wrong(buffers[0], BYTES, 0) >= 0 || wrong(buffers[1], BYTES, 2) >= 0 || wrong(buffers[2], BYTES, 1) >= 0 ||
			  wrong(buffers[3], BYTES, 3) >= 0))
		fail(lab, "a message went to another group than the first that waits for its tag");
	dereg(lab, comm, mhandle);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

/* A message that nobody waits for yet: refused, or kept, but not lost and not early. */
static void check_early_send(struct lab *lab)
{
	enum { BYTES = 3000 };
	unsigned char buffer[BYTES];
	void *comm, *mhandle, *request = NULL;
	int size = 0, done = 0;
	double end;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffer, BYTES);
	if (!lab->rank) {
		fill(buffer, BYTES, 9);
		for (end = now_s() + 0.3; now_s() < end && !done;) {
			if (!request)
				must(lab, plug_isend(&lab->plug, comm, buffer, BYTES, 0, mhandle, &request), "isend");
			if (request)
				must(lab, plug_test(&lab->plug, request, &done, &size), "test");
		}
		meet(lab);
		if (!request)
			request = send_one(lab, comm, buffer, BYTES, 0, mhandle);
		if (!done)
			await(lab, request, &size);
	} else {
		meet(lab);
		memset(buffer, 0, BYTES);
		await(lab, receive_one(lab, comm, buffer, BYTES, 0, mhandle), &size);
		if (wrong(buffer, BYTES, 9) >= 0)
			fail(lab, "a message that was sent before it was waited for is wrong");
	}
	if (size != BYTES)
		fail(lab, "a message that was sent before it was waited for has %d bytes, not %d", size, BYTES);
	dereg(lab, comm, mhandle);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

/* For its low-latency protocols NCCL says, in *request, that completion of a reception need not be exact. */
static void check_optional(struct lab *lab)
{
	enum { BYTES = 2048, COUNT = 50 };
	unsigned char buffer[BYTES];
	void *comm, *mhandle, *data = buffer, *request;
	size_t bytes = BYTES;
	int tag = 0;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffer, BYTES);
	for (int i = 0; i < COUNT; i++) {
		double end = now_s() + 5;

		if (!lab->rank) {
			fill(buffer, BYTES, (uint64_t)i);
			await(lab, send_one(lab, comm, buffer, BYTES, 0, mhandle), NULL);
			meet(lab);
			continue;
		}
		memset(buffer, 0, BYTES);
		do {
			request = (void *)(uintptr_t)GN_NCCL_OPTIONAL_RECV;
			must(lab, plug_irecv(&lab->plug, comm, 1, &data, &bytes, &tag, &mhandle, &request), "irecv");
			if (request == (void *)(uintptr_t)GN_NCCL_OPTIONAL_RECV)
				fail(lab, "irecv left 0x1 as the request, which test cannot take");
		} while (!request);
		await(lab, request, NULL);
		/* the data itself says when it is there */
		while (wrong(buffer, BYTES, (uint64_t)i) >= 0)
			if (now_s() > end)
				fail(lab, "message %d did not arrive", i);
		meet(lab);
	}
	dereg(lab, comm, mhandle);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

static void check_flush(struct lab *lab)
{
	unsigned char buffer[512];
	void *comm, *mhandle, *data = buffer, *request = NULL;
	int size = 0;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffer, sizeof buffer);
	if (!lab->rank) {
		fill(buffer, sizeof buffer, 4);
		await(lab, send_one(lab, comm, buffer, sizeof buffer, 0, mhandle), NULL);
	} else {
		await(lab, receive_one(lab, comm, buffer, sizeof buffer, 0, mhandle), &size);
		must(lab, plug_iflush(&lab->plug, comm, 1, &data, &size, &mhandle, &request), "iflush");
		if (request)
			await(lab, request, NULL);
		if (wrong(buffer, sizeof buffer, 4) >= 0)
			fail(lab, "iflush changed the data");
	}
	dereg(lab, comm, mhandle);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

static void check_registration(struct lab *lab)
{
	enum { COUNT = 200, BYTES = 10000 };
	unsigned char *memory = malloc((size_t)COUNT * BYTES);
	void *comm, *mhandles[COUNT], *none = NULL;
	int size;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	for (int i = 0; i < COUNT; i++)
		mhandles[i] = reg(lab, comm, memory + (size_t)i * BYTES, BYTES);
	/* from the middle of a region, which need not be aligned */
	for (int i = 0; i < COUNT; i += 40) {
		unsigned char *at = memory + (size_t)i * BYTES + 13;

		fill(at, 777, lab->rank ? 0 : (uint64_t)i);
		await(lab, lab->rank ? receive_one(lab, comm, at, 777, 0, mhandles[i]) : send_one(lab, comm, at, 777, 0, mhandles[i]),
		      &size);
		if (size != 777 || wrong(at, 777, (uint64_t)i) >= 0)
			fail(lab, "a message into the middle of a registered region is wrong");
	}
	if (!(lab->properties.pointers & GN_NCCL_PTR_CUDA) &&
	    !plug_reg(&lab->plug, comm, memory, BYTES, GN_NCCL_PTR_CUDA, &none))
		fail(lab, "regMr takes GPU memory, which no device claims to support");
	for (int i = 0; i < COUNT; i++)
		dereg(lab, comm, mhandles[i]);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	free(memory);
	lab_unload(lab);
}

/* A message that is longer than the buffer: an error, or cut, but nothing behind the buffer is touched. */
static void check_too_long(struct lab *lab)
{
	unsigned char buffer[8192];
	void *comm, *mhandle, *request = NULL;
	int size = 0, done = 0, rc = 0;
	double end = now_s() + 0.7;

	lab_load(lab);
	memset(buffer, 0x33, sizeof buffer);
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffer, sizeof buffer);
	if (lab->rank)
		request = receive_one(lab, comm, buffer, 1000, 0, mhandle);
	while (now_s() < end && !rc && !done) {
		if (!lab->rank && !request)
			rc = plug_isend(&lab->plug, comm, buffer, 4000, 0, mhandle, &request);
		if (request && !rc)
			rc = plug_test(&lab->plug, request, &done, &size);
	}
	if (lab->rank && !rc && done && size > 1000)
		fail(lab, "a message of 4000 bytes for a buffer of 1000 is told to have %d", size);
	for (int i = 1000; lab->rank && i < 8192; i++)
		if (buffer[i] != 0x33)
			fail(lab, "a message of 4000 bytes for a buffer of 1000 changed byte %d", i);
	dereg(lab, comm, mhandle);
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

const struct lab_check checks_basic[] = {
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
