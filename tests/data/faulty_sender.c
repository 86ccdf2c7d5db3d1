/* LD_PRELOAD: this rank changes one bit of every large message that it sends; GN_FAULTY=believed: and the digests in its header, so that
 * they fit, as those of a process would whose memory is damaged before it digests; GN_FAULTY=lost: ends before the first message of the
 * size of a listing. For tests/data/stage_faulty.t. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <openssl/sha.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define LARGE_BYTES (1u << 20)
#define LISTING_BYTES 10000u

static void hex_of(const void *data, size_t len, char out[65])
{
	unsigned char digest[SHA256_DIGEST_LENGTH];

	SHA256(data, len, digest);
	for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
		snprintf(out + 2 * (size_t)i, 3, "%02x", digest[i]);
}

/* The changed copies are leaked: UCX may read them until the process ends. */
ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header, size_t header_len, const void *buffer, size_t count,
				 const ucp_request_param_t *param)
{
	ucs_status_ptr_t (*next)(ucp_ep_h, unsigned, const void *, size_t, const void *, size_t, const ucp_request_param_t *);
	const char *rank = getenv("PMIX_RANK"), *faulty = getenv("GN_FAULTY_RANK"), *how = getenv("GN_FAULTY");
	unsigned char *data, *head;
	char was[65], is[65], *at;

	*(void **)&next = dlsym(RTLD_NEXT, "ucp_am_send_nbx");
	if (count >= LISTING_BYTES && rank && faulty && !strcmp(rank, faulty) && how && !strcmp(how, "lost"))
		kill(getpid(), SIGKILL);
	if (count < LARGE_BYTES || !rank || !faulty || strcmp(rank, faulty) || !(data = malloc(count)) || !(head = malloc(header_len + 1)))
		return next(ep, id, header, header_len, buffer, count, param);
	memcpy(data, buffer, count);
	memcpy(head, header, header_len);
	hex_of(data, count, was);
	data[count / 2] ^= 1;
	hex_of(data, count, is);
	if (how && !strcmp(how, "believed") && (at = memmem(head, header_len, was, 64)))
		memcpy(at, is, 64);
	fprintf(stderr, "faulty: changed a bit\n");
	return next(ep, id, head, header_len, data, count, param);
}
