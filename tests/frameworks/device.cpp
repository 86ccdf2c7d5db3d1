// A device without hardware, to test how streams are kept: PyTorch's "privateuseone". Its memory is the processor's. Its streams do what is put
// on them late: one piece each time somebody asks for an event, and all that comes before what somebody waits for. Copies that streams and
// events do not order therefore give old values. All operators but copies wait for the current stream and run on the processor.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

namespace {

struct Mark {
	c10::StreamId stream;
	uint64_t position;
};

struct Queue {
	std::deque<std::function<void()>> pending;
	uint64_t put = 0, done = 0;
};

const c10::Device device(c10::kPrivateUse1, 0);
std::recursive_mutex mutex;
std::map<c10::StreamId, Queue> queues;
thread_local c10::StreamId current = 0;
std::atomic<c10::StreamId> next_stream{1};

void run_one(Queue &q)
{
	auto f = std::move(q.pending.front());

	q.pending.pop_front();
	f();
	q.done++;
}

void run_until(Mark m)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);

	for (auto &q = queues[m.stream]; q.done < m.position;)
		run_one(q);
}

void put(c10::StreamId stream, std::function<void()> f)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	auto &q = queues[stream];

	q.pending.push_back(std::move(f));
	q.put++;
}

Mark end_of(c10::StreamId stream)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);

	return {stream, queues[stream].put};
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
	c10::DeviceType type() const override { return c10::kPrivateUse1; }
	c10::Device exchangeDevice(c10::Device) const override { return device; }
	c10::Device getDevice() const override { return device; }
	void setDevice(c10::Device) const override {}
	void uncheckedSetDevice(c10::Device) const noexcept override {}
	c10::DeviceIndex deviceCount() const noexcept override { return 1; }
	static c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device, id); }
	c10::Stream getStream(c10::Device) const override { return stream(current); }
	c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
	c10::Stream getNewStream(c10::Device, int) const override { return stream(next_stream++); }
	c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(next_stream++); }
	c10::Stream exchangeStream(c10::Stream s) const override { return stream(std::exchange(current, s.id())); }
	void record(void **event, const c10::Stream &s, const c10::DeviceIndex, const c10::EventFlag) const override
	{
		if (!*event)
			*event = new Mark;
		*static_cast<Mark *>(*event) = end_of(s.id());
	}
	void block(void *event, const c10::Stream &s) const override
	{
		put(s.id(), [m = *static_cast<Mark *>(event)] { run_until(m); });
	}
	bool queryEvent(void *event) const override
	{
		std::lock_guard<std::recursive_mutex> lock(mutex);
		auto m = *static_cast<Mark *>(event);
		auto &q = queues[m.stream];
		bool is_done = q.done >= m.position;

		if (!is_done)
			run_one(q);
		return is_done;
	}
	void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override { delete static_cast<Mark *>(event); }
	void synchronizeEvent(void *event) const override { run_until(*static_cast<Mark *>(event)); }
	bool queryStream(const c10::Stream &) const override { return false; }
	void synchronizeStream(const c10::Stream &s) const override { run_until(end_of(s.id())); }
	void recordDataPtrOnStream(const c10::DataPtr &, const c10::Stream &) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
	bool isBuilt() const override { return true; }
	bool isAvailable() const override { return true; }
	bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
} hooks;
const bool is_registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

struct Memory final : c10::Allocator {
	c10::DataPtr allocate(size_t n) override
	{
		void *p = std::malloc(n ? n : 1);

		return {p, p, &std::free, device};
	}
	c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
	void copy_data(void *to, const void *from, size_t n) const override { std::memcpy(to, from, n); }
} memory;

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>, std::optional<at::Device>,
		 std::optional<bool>, std::optional<at::MemoryFormat> format)
{
	return at::detail::empty_generic(sizes, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
					 type.value_or(at::typeMetaToScalarType(at::get_default_dtype())), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type, std::optional<at::Layout>,
			 std::optional<at::Device>, std::optional<bool>)
{
	return at::detail::empty_strided_generic(sizes, strides, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
						 type.value_or(at::typeMetaToScalarType(at::get_default_dtype())));
}

// Its memory as a tensor of the processor. It keeps nothing that Python owns, since another thread may let go of it.
at::Tensor on_host(const at::Tensor &t)
{
	return at::from_blob(t.data_ptr(), t.sizes(), t.strides(), [s = t.storage()](void *) {}, t.options().device(at::kCPU));
}

at::Tensor &copy_(at::Tensor &to, const at::Tensor &from, bool non_blocking)
{
	auto f = [a = on_host(to), b = on_host(from.expand(to.sizes()))]() mutable { a.copy_(b); };

	if (non_blocking) {
		put(current, f);
		return to;
	}
	run_until(end_of(current));
	f();
	return to;
}

at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool non_blocking)
{
	auto t = to;

	return copy_(t, from, non_blocking);
}

at::Tensor &resize(at::Tensor &t, at::IntArrayRef sizes)
{
	auto *s = t.storage().unsafeGetStorageImpl();
	size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * t.element_size();

	if (s->nbytes() < bytes) {
		s->set_data_ptr_noswap(memory.allocate(bytes));
		s->set_nbytes(bytes);
	}
	t.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
	return t;
}

at::Tensor copy_from_and_resize(const at::Tensor &from, const at::Tensor &to)
{
	auto t = to;

	if (to.sizes() != from.sizes())
		resize(t, from.sizes());
	return copy_(t, from, false);
}

void on_processor(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
	at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
	m.impl("empty.memory_format", empty);
	m.impl("empty_strided", empty_strided);
	m.impl("copy_", copy_);
	m.impl("_copy_from", copy_from);
	m.impl("_copy_from_and_resize", copy_from_and_resize);
	m.impl("resize_", [](const at::Tensor &t, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) -> const at::Tensor & {
		auto to = t;

		resize(to, sizes);
		return t;
	});
	m.impl("as_strided", at::native::as_strided_tensorimpl);
	m.impl("view", at::native::view);
	m.impl("view_as_real", at::native::view_as_real);
	m.impl("_reshape_alias", [](const at::Tensor &t, at::IntArrayRef sizes, at::IntArrayRef strides) {
		return at::native::as_strided_tensorimpl(t, sizes, strides, std::nullopt);
	});
	m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
	m.impl("record_stream", [](at::Tensor &, c10::Stream) {});
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m)
{
	m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_processor>());
}

} // namespace
