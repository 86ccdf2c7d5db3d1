#include "tests/gpu/fixture.h"
#include "tests/kernels/ref_optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS 7
#define STEPS 3

static const size_t counts[TENSORS] = {1, 3, 64, 1000, GN_CUDA_CHUNK_ELEMENTS, GN_CUDA_CHUNK_ELEMENTS + 1, 20002};

struct job {
	enum gn_cuda_type type;
	struct gn_optim rule;
	int copies, skip, clip;
};

struct side {
	struct fixture_tensor *params[TENSORS], *grads[TENSORS], *slots[TENSORS][2], *copies[TENSORS];
	struct gn_cuda_optim_tensor tensors[TENSORS];
	struct gn_ref_optim_tensor ref[TENSORS];
};

static int make(struct fixture *b, const struct job *j, struct side *s)
{
	memset(s, 0, sizeof *s);
	for (int i = 0; i < TENSORS; i++) {
		struct gn_cuda_optim_tensor *t = &s->tensors[i];

		s->params[i] = fixture_input(b, GN_CUDA_F32, counts[i], 0, 1);
		s->grads[i] = fixture_input(b, j->type, counts[i], 0, 1);
		s->slots[i][0] = fixture_input(b, GN_CUDA_F32, counts[i], 0, 0);
		s->slots[i][1] = j->rule.kind == GN_OPTIM_LAMB ? fixture_input(b, GN_CUDA_F32, counts[i], 0, 0) : NULL;
		/* a third of the tensors has none */
		s->copies[i] = j->copies && i % 3 != 1 ? fixture_output(b, j->type, counts[i]) : NULL;
		if (b->why[0])
			return 0;
		*t = (struct gn_cuda_optim_tensor){s->params[i]->data,
						   s->grads[i]->data,
						   {s->slots[i][0]->data, NULL},
						   s->copies[i] ? s->copies[i]->data : NULL,
						   counts[i],
						   i % 2 ? 1e-2 : 0,
						   i % 2,
						   i % 3 ? 1 : 0.5};
		if (s->slots[i][1])
			t->slots[1] = s->slots[i][1]->data;
		s->ref[i] = (struct gn_ref_optim_tensor){fixture_doubles(counts[i]),
							 fixture_doubles(counts[i]),
							 {fixture_doubles(counts[i]), fixture_doubles(counts[i])},
							 counts[i],
							 t->weight_decay,
							 t->adapt,
							 t->lr_scale};
		memcpy(s->ref[i].params, s->params[i]->host, counts[i] * sizeof(double));
		memcpy((double *)s->ref[i].grads, s->grads[i]->host, counts[i] * sizeof(double));
	}
	return 1;
}

static void release(struct side *s)
{
	for (int i = 0; i < TENSORS; i++) {
		free(s->ref[i].params);
		free((double *)s->ref[i].grads);
		free(s->ref[i].slots[0]);
		free(s->ref[i].slots[1]);
	}
}

static void compare(struct fixture *b, const struct job *j, struct side *s)
{
	for (int i = 0; i < TENSORS; i++) {
		fixture_compare(b, s->params[i], s->ref[i].params, 2e-5, "parameters");
		if (s->copies[i] && !j->skip)
			fixture_compare(b, s->copies[i], s->ref[i].params, 2 * fixture_tolerance(j->type), "copies");
		for (int k = 0; k < 2; k++)
			if (s->slots[i][k])
				fixture_compare(b, s->slots[i][k], s->ref[i].slots[k], 2e-5, "slots");
	}
}

/* So long are the gradients said to be: half of it would do. */
static const double squares[2] = {3, 0.5}, more[1] = {0.5};

static enum gn_status set(struct fixture *b, const struct job *j, struct gn_cuda_optim *o, struct gn_optim_update *u)
{
	double norm = u->grad_scale * 2, limit = u->step % 2 ? norm / 2 : norm * 2;
	enum gn_status status = gn_cuda_optim_set(o, b->stream, u, &b->err);

	if (status || !j->clip)
		return status;
	if (norm > limit)
		u->grad_scale *= limit / (norm + 1e-6);
	return gn_cuda_optim_clip(o, b->stream, fixture_bytes(b, squares, sizeof squares), 2, fixture_bytes(b, more, sizeof more), 1, limit,
				  &b->err);
}

static void steps(struct fixture *b, const struct job *j, struct side *s, struct gn_cuda_optim *o)
{
	int32_t found = 1, *skip = j->skip ? fixture_bytes(b, &found, sizeof found) : NULL;

	for (uint64_t step = 1; step <= STEPS; step++) {
		struct gn_optim_update u = {0.1 / (double)step, 0.25, step};

		if (!fixture_ok(b, set(b, j, o, &u), "set") ||
		    !fixture_ok(b, gn_cuda_optim_step(o, b->stream, skip, &b->err), "step"))
			return;
		for (int i = 0; !j->skip && i < TENSORS; i++)
			gn_ref_optim_step(&j->rule, &u, &s->ref[i]);
	}
	compare(b, j, s);
}

static void check(struct fixture *b, const struct job *j)
{
	struct gn_cuda_optim *o = NULL;
	struct side s;

	fixture_begin(b);
	if (make(b, j, &s) &&
	    fixture_ok(b, gn_cuda_optim_create(b->stream, &j->rule, j->type, s.tensors, TENSORS, &o, &b->err), "create"))
		steps(b, j, &s, o);
	gn_cuda_optim_destroy(o);
	release(&s);
	fixture_end(b, "%s %s, momentum %g%s%s%s%s", gn_optim_name(j->rule.kind), gn_cuda_type_name(j->type),
		j->rule.momentum, j->rule.nesterov ? ", Nesterov" : "", j->copies ? ", copies" : "",
		j->skip ? ", skipped" : "", j->clip ? ", clipped" : "");
}

static void check_average(struct fixture *b, size_t count, int skipped)
{
	double *want = fixture_doubles(count);
	struct fixture_tensor *average, *x;
	float decay = 0.75f;
	int32_t skip = skipped;

	fixture_begin(b);
	average = fixture_input(b, GN_CUDA_F32, count, 0, 1);
	x = fixture_input(b, GN_CUDA_F32, count, 1, 1);
	for (size_t i = 0; i < count && x; i++)
		want[i] = skipped ? average->host[i] : 0.75 * average->host[i] + 0.25 * x->host[i];
	if (!b->why[0] && fixture_ok(b, gn_cuda_average(b->stream, average->data, x->data, count, fixture_bytes(b, &decay, sizeof decay),
						    fixture_bytes(b, &skip, sizeof skip), &b->err), "average"))
		fixture_compare(b, average, want, fixture_tolerance(GN_CUDA_F32), "average");
	fixture_end(b, "moving average, %zu%s", count, skipped ? ", skipped" : "");
	free(want);
}

void check_optim(struct fixture *b)
{
	static const size_t sizes[] = {1, 3, 1000, 70001};

	static const struct gn_optim rules[] = {
		{GN_OPTIM_SGD, 0.9, 0, 0, 0, 0},	{GN_OPTIM_SGD, 0.9, 0, 0, 0, 1},
		{GN_OPTIM_SGD, 0, 0, 0, 0, 0},		{GN_OPTIM_LARS, 0.9, 0, 1e-9, 1e-3, 0},
		{GN_OPTIM_LARS, 0.9, 0, 1e-9, 1e-3, 1}, {GN_OPTIM_LAMB, 0.9, 0.999, 1e-6, 0, 0},
	};

	for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++)
		check_average(b, sizes[i / 2], (int)(i % 2));
	for (int type = GN_CUDA_F32; type <= GN_CUDA_F16; type++) {
		for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
			struct job j = {type, rules[i], type != GN_CUDA_F32 || i % 2, 0, 0};

			check(b, &j);
			j.clip = 1;
			check(b, &j);
			j.clip = 0;
			j.skip = 1;
			check(b, &j);
		}
	}
}
