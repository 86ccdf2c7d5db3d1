/* What happens in a training step after the first, counted: allocations, mutexes and changes of layout. The C library's and
 * oneDNN's functions are replaced by ones that count and pass on. */
#include "tests/test.h"

#include "src/base/alloc.h"
#include "src/train/plan/weight_layouts.h"
#include "src/train/model/init.h"
#include "src/train/optim/optimizer.h"
#include "src/train/plan/device.h"
#include "src/train/plan/plan.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

/* Inside: while oneDNN runs a primitive, on any thread. Its maps of arguments (some five small allocations a primitive) and
 * what its matrix products lock are its own affair, and are told apart. */
static atomic_int counting, inside, allocations, inside_allocations, mutexes, inside_mutexes, reorders, primitives;

#if !defined SANITIZED && defined __GLIBC__
static void count_allocation(void)
{
	if (atomic_load(&counting))
		atomic_fetch_add(atomic_load(&inside) ? &inside_allocations : &allocations, 1);
}

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
	count_allocation();
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	count_allocation();
	return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
	count_allocation();
	return __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	count_allocation();
	return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
	count_allocation();
	*memory = __libc_memalign(alignment, size);
	return *memory ? 0 : 12;
}
#endif

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	static int (*next)(pthread_mutex_t *);

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "pthread_mutex_lock");
	if (atomic_load(&counting))
		atomic_fetch_add(atomic_load(&inside) ? &inside_mutexes : &mutexes, 1);
	return next(mutex);
}

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
				     const dnnl_exec_arg_t *args)
{
	static dnnl_status_t (*next)(const_dnnl_primitive_t, dnnl_stream_t, int, const dnnl_exec_arg_t *);
	const_dnnl_primitive_desc_t desc;
	dnnl_primitive_kind_t kind = dnnl_undefined_primitive;
	dnnl_status_t status;

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
	dnnl_primitive_get_primitive_desc(primitive, &desc);
	dnnl_primitive_desc_query(desc, dnnl_query_primitive_kind, 0, &kind);
	atomic_fetch_add(&primitives, atomic_load(&counting));
	atomic_fetch_add(&reorders, atomic_load(&counting) && kind == dnnl_reorder);
	atomic_store(&inside, 1);
	status = next(primitive, stream, count, args);
	atomic_store(&inside, 0);
	return status;
}

struct run {
	struct gn_model *model;
	struct gn_plan *plan;
	struct gn_weight_layouts *arrange;
	struct gn_plan_device device;
	struct gn_optimizer *optimizer;
	float *params, *grads, *buffers, *images;
	int32_t labels[2];
};

static void run_init(struct run *r, const char *model, const char *optimizer, int arranged, int bf16)
{
	struct gn_optimizer_options oo = {.name = optimizer, .momentum = 0.9, .beta2 = 0.999, .trust = 0.001,
					  .weight_decay = 1e-4, .eps = -1, .clip = 1};
	struct gn_plan_options po = {.backend = GN_BACKEND_HOST, .batch = 2, .training = 1, .bf16 = bf16, .dropout = 1};
	struct gn_optimizer_arrays arrays;
	struct gn_err err;
	size_t count;

	assert_ok(gn_plan_device_open(&po, &r->device, &err));
	po.device = &r->device;
	assert_ok(gn_model_create(model, 16, 0, 64, &r->model, &err));
	count = gn_model_param_elements(r->model);
	r->params = gn_alloc_aligned(count * sizeof(float));
	r->grads = gn_alloc_aligned(count * sizeof(float));
	r->buffers = gn_alloc_aligned(gn_model_buffer_elements(r->model) * sizeof(float) + 1);
	r->images = gn_alloc_aligned(2 * 3 * 64 * 64 * sizeof(float));
	assert_true(r->params && r->grads && r->buffers && r->images);
	gn_init_formula_batch(2, 3, 64, 16, r->images, r->labels);
	assert_ok(gn_init_params(r->model, "seed:1", r->params, r->buffers, &err));
	assert_ok(gn_weight_layouts_create(r->model, &r->arrange, &err));
	if (arranged)
		po.weights = gn_weight_layouts_layouts(r->arrange);
	assert_ok(gn_plan_create(r->model, &po, r->params, r->grads, r->buffers, &r->plan, &err));
	assert_ok(gn_weight_layouts_take(r->arrange, r->plan, &err));
	gn_weight_layouts_in(r->arrange, r->params);
	arrays = (struct gn_optimizer_arrays){.params = r->params, .grads = r->grads, .buffers = r->buffers, .ranks = 1};
	assert_ok(gn_optimizer_create(r->model, &oo, &arrays, r->device.compute, &r->optimizer, &err));
}

static void run_release(struct run *r)
{
	gn_optimizer_destroy(r->optimizer);
	gn_plan_destroy(r->plan);
	gn_plan_device_close(&r->device);
	gn_weight_layouts_destroy(r->arrange);
	gn_model_destroy(r->model);
	free(r->params);
	free(r->grads);
	free(r->buffers);
	free(r->images);
}

static void step(struct run *r, uint64_t number)
{
	struct gn_optim_update u = {.lr = 0.001, .grad_scale = 1, .step = number + 1};
	const float *logits;
	struct gn_err err;
	struct gn_update_result result;
	double loss;

	assert_ok(gn_plan_forward(r->plan, r->images, number, &logits, &err));
	assert_ok(gn_plan_loss(r->plan, r->labels, &loss, &err));
	assert_ok(gn_plan_backward(r->plan, NULL, NULL, &err));
	assert_ok(gn_optimizer_step(r->optimizer, &u, &result, &err));
	assert_int_equal(result.skipped, 0);
}

/* Two steps after a first one. */
static void count_steps(const char *model, const char *optimizer, int arranged, int bf16)
{
	struct run r = {0};

	run_init(&r, model, optimizer, arranged, bf16);
	step(&r, 0);
	allocations = inside_allocations = mutexes = inside_mutexes = reorders = primitives = 0;
	atomic_store(&counting, 1);
	step(&r, 1);
	step(&r, 2);
	atomic_store(&counting, 0);
	print_message("# %s, %s, %s: %d primitives, %d reorders, %d allocations and %d mutexes; %d and %d more within primitives\n",
		      model, optimizer, bf16 ? "bf16" : "fp32", primitives, reorders, allocations, mutexes, inside_allocations, inside_mutexes);
	run_release(&r);
}

static int has_avx512(void)
{
	return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

static int has_amx(void)
{
	return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
}

static void test_step(void **state)
{
	static const char *const models[] = {"resnet18", "resnet50", "resnet20"}, *const rules[] = {"sgd", "lars", "lamb"};

	(void)state;
#if defined SANITIZED
	skip(); /* the sanitizer has replaced the same functions */
#endif
	for (size_t i = 0; i < 6; i++) {
		if (i > 2 && !gn_backend_has_bf16(GN_BACKEND_HOST))
			break;
		count_steps(models[i % 3], rules[i % 3], 1, i > 2);
		assert_true(primitives > 30);
		assert_int_equal(allocations, 0);
		assert_int_equal(mutexes, 0);
		/* Without AVX-512 some weight gradients want plain layouts; with AMX those of bf16 do. */
		assert_true(reorders == 0 || (!has_avx512() && reorders < primitives / 4) || (i > 2 && has_amx() && reorders < primitives / 2));
		assert_true(inside_allocations < 8 * primitives);
	}
}

/* The counters do count. */
static void test_counters(void **state)
{
	void *memory;
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

	(void)state;
#if defined SANITIZED
	skip();
#endif
	count_steps("resnet18", "sgd", 0, 0);
	assert_true(reorders > 20); /* weights in torch's order have to be changed */
	allocations = mutexes = 0;
	atomic_store(&counting, 1);
	memory = gn_alloc_aligned(100);
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	atomic_store(&counting, 0);
	free(memory);
	assert_int_equal(allocations, 1);
	assert_int_equal(mutexes, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_step), cmocka_unit_test(test_counters)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
