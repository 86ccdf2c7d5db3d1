/* Allreduce by two binary trees, each of which reduces and then broadcasts one half of the buffer. Almost every rank is an inner
 * node of one tree and a leaf of the other (Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
 * and scan", 2009): depth log2(size), and with many pieces each rank sends as much as in a ring. */
#include "transport/schedule/algo_part.h"

struct node {
	int parent, children[2]; /* ranks; -1: none */
};

/* In-order numbering of 0 .. size - 1 with root 0: the children of v, whose lowest set bit is b, are v - b/2 and v + b/2; a right
 * child that does not exist is replaced by its nearest existing descendant. */
static struct node node_of(int v, int size)
{
	struct node n = {-1, {-1, -1}};
	int bit = 1;

	while (bit < size && !(v & bit))
		bit *= 2;
	if (v) {
		n.parent = (v ^ bit) | bit * 2;
		if (n.parent >= size)
			n.parent = v ^ bit;
		if (bit > 1)
			n.children[0] = v - bit / 2;
	}
	for (int b = bit / 2; b && n.children[1] < 0; b /= 2)
		if (v + b < size)
			n.children[1] = v + b;
	return n;
}

/* The second tree is the first one mirrored, or shifted by one for odd sizes: inner nodes become leaves. */
static int place_in(int tree, int rank, int size)
{
	if (!tree)
		return rank;
	return size % 2 ? (rank + size - 1) % size : size - 1 - rank;
}

static int rank_in(int tree, int place, int size)
{
	if (!tree || place < 0)
		return place;
	return size % 2 ? (place + 1) % size : size - 1 - place;
}

static struct node tree_node(int tree, int rank, int size)
{
	struct node n = node_of(place_in(tree, rank, size), size);

	n.parent = rank_in(tree, n.parent, size);
	n.children[0] = rank_in(tree, n.children[0], size);
	n.children[1] = rank_in(tree, n.children[1], size);
	return n;
}

static void write_up(struct gn_schedule *s, const struct node *n, uint32_t chunk, uint32_t message)
{
	for (int k = 0; k < 2; k++)
		if (n->children[k] >= 0)
			gn_schedule_recv_reduce(s, n->children[k], chunk, message, 0);
	if (n->parent >= 0)
		gn_schedule_send(s, n->parent, chunk, message);
}

static void write_down(struct gn_schedule *s, const struct node *n, uint32_t chunk, uint32_t message)
{
	if (n->parent >= 0)
		gn_schedule_recv(s, n->parent, chunk, message);
	for (int k = 0; k < 2; k++)
		if (n->children[k] >= 0)
			gn_schedule_send(s, n->children[k], chunk, message);
}

/* Two ranks may be parent and child in one tree and child and parent in the other: message numbers distinguish trees and
 * directions. */
void gn_write_double_tree(struct gn_schedule *s, const struct gn_algo_args *a)
{
	struct node trees[2] = {tree_node(0, a->rank, a->size), tree_node(1, a->rank, a->size)};

	for (uint32_t i = 0; i < a->pieces; i++) {
		for (uint32_t t = 0; t < 2; t++)
			write_up(s, &trees[t], t * a->pieces + i, 2 * t * a->pieces + i);
		for (uint32_t t = 0; t < 2; t++)
			write_down(s, &trees[t], t * a->pieces + i, (2 * t + 1) * a->pieces + i);
	}
}
