#include "reduce.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace gannet {

using Op = c10d::ReduceOp;

template <typename T, typename F> static void apply(void *acc, const void *in, size_t count)
{
	T *a = static_cast<T *>(acc);
	const T *b = static_cast<const T *>(in);

	for (size_t i = 0; i < count; i++)
		a[i] = F()(a[i], b[i]);
}

struct Min {
	template <typename T> T operator()(T a, T b) const { return b < a ? b : a; }
};
struct Max {
	template <typename T> T operator()(T a, T b) const { return a < b ? b : a; }
};
struct Add {
	template <typename T> T operator()(T a, T b) const { return static_cast<T>(a + b); }
};
struct Multiply {
	template <typename T> T operator()(T a, T b) const { return static_cast<T>(a * b); }
};
struct And {
	template <typename T> T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
struct Or {
	template <typename T> T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
struct Xor {
	template <typename T> T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};

template <typename T> static gannet_reduce_fn real(Op::RedOpType op)
{
	switch (op) {
	case Op::SUM:
		return apply<T, Add>;
	case Op::PRODUCT:
		return apply<T, Multiply>;
	case Op::MIN:
		return apply<T, Min>;
	case Op::MAX:
		return apply<T, Max>;
	default:
		return nullptr;
	}
}

template <typename T> static gannet_reduce_fn integer(Op::RedOpType op)
{
	switch (op) {
	case Op::BAND:
		return apply<T, And>;
	case Op::BOR:
		return apply<T, Or>;
	case Op::BXOR:
		return apply<T, Xor>;
	default:
		return real<T>(op);
	}
}

// A bool's sum is its or, as Gloo's.
static gannet_reduce_fn truth(Op::RedOpType op)
{
	switch (op) {
	case Op::SUM:
	case Op::MAX:
	case Op::BOR:
		return apply<uint8_t, Or>;
	case Op::PRODUCT:
	case Op::MIN:
	case Op::BAND:
		return apply<uint8_t, And>;
	case Op::BXOR:
		return apply<uint8_t, Xor>;
	default:
		return nullptr;
	}
}

static bool built_in(Op::RedOpType op, gannet_reduction *out)
{
	switch (op) {
	case Op::SUM:
		*out = GANNET_SUM;
		return true;
	case Op::AVG:
		*out = GANNET_AVERAGE;
		return true;
	case Op::MIN:
		*out = GANNET_MIN;
		return true;
	case Op::MAX:
		*out = GANNET_MAX;
		return true;
	default:
		return false;
	}
}

// Floating types have sums, averages, minima and maxima of libgannet; the rest is ours.
static bool native(at::ScalarType type, Op::RedOpType op, Reduction &r)
{
	switch (type) {
	case at::kFloat:
		r.type = GANNET_F32;
		break;
	case at::kDouble:
		r.type = GANNET_F64;
		break;
	case at::kHalf:
		r.type = GANNET_F16;
		break;
	case at::kBFloat16:
		r.type = GANNET_BF16;
		break;
	case at::kInt:
		r.type = GANNET_I32;
		break;
	case at::kLong:
		r.type = GANNET_I64;
		break;
	case at::kComplexFloat:
	case at::kComplexDouble:
		r.type = type == at::kComplexFloat ? GANNET_F32 : GANNET_F64;
		r.per_element = 2;
		return (op == Op::SUM || op == Op::AVG) && built_in(op, &r.reduction);
	default:
		return false;
	}
	return built_in(op, &r.reduction);
}

static gannet_reduce_fn function_of(at::ScalarType type, Op::RedOpType op, gannet_type *as)
{
	switch (type) {
	case at::kFloat:
		return real<float>(op);
	case at::kDouble:
		return real<double>(op);
	case at::kHalf:
		return real<at::Half>(op);
	case at::kBFloat16:
		return real<at::BFloat16>(op);
	case at::kInt:
		return integer<int32_t>(op);
	case at::kLong:
		return integer<int64_t>(op);
	case at::kByte:
		*as = GANNET_BYTES;
		return integer<uint8_t>(op);
	case at::kChar:
		*as = GANNET_BYTES;
		return integer<int8_t>(op);
	case at::kShort:
		*as = GANNET_F16; /* two bytes each */
		return integer<int16_t>(op);
	case at::kBool:
		*as = GANNET_BYTES;
		return truth(op);
	default:
		return nullptr;
	}
}

Reduction reduction_of(at::ScalarType type, const c10d::ReduceOp &op)
{
	static const char *const names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
	const size_t number = static_cast<size_t>(op.op_);
	Reduction r;

	if (native(type, op.op_, r))
		return r;
	r.function = function_of(type, op.op_, &r.type);
	TORCH_CHECK(r.function, "gannet has no reduction ", number < std::size(names) ? names[number] : "", " of torch.distributed.ReduceOp for ", type);
	return r;
}

} // namespace gannet
