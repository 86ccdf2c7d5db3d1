#include "backend.h"

#include <torch/csrc/utils/pybind.h>

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
	auto unlocked = py::call_guard<py::gil_scoped_release>();

	m.def("start", [](const std::string &rendezvous, int rank, int size) { gannet::Engine::get().start(rendezvous, rank, size); }, unlocked);
	m.def("started", [] { return gannet::Engine::get().started(); });
	m.def("stop", [] { gannet::Engine::get().stop(); }, unlocked);
	py::class_<gannet::Backend, c10d::Backend, c10::intrusive_ptr<gannet::Backend>>(m, "Backend")
		.def(py::init<int, int, const std::vector<int> &, const std::string &, bool, int64_t>(), unlocked);
}
