#include "kernels/optim.h"

#include <string.h>

static const char *const names[] = {"sgd", "lars", "lamb", "adamw", "rmsprop"};

const char *gn_optim_name(enum gn_optim_kind kind)
{
	return names[kind];
}

int gn_optim_find(const char *name)
{
	for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
		if (!strcmp(names[i], name))
			return i;
	return -1;
}

int gn_optim_slots(enum gn_optim_kind kind)
{
	return kind == GN_OPTIM_SGD || kind == GN_OPTIM_LARS ? 1 : 2;
}

const char *gn_optim_slot_name(int slot)
{
	return slot ? "variance" : "momentum";
}
