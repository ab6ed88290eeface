// The class of an engine and the operator that runs one, as torch_tensorrt's runtime registers them
// (core/runtime/register_jit_hooks.cpp in 2.13.0), without TensorRT: an engine doubles its input.
#include <ATen/ops/add.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using Pair = std::tuple<std::string, std::string>;

struct Engine : torch::CustomClassHolder {
  explicit Engine(std::vector<std::string> info) : info(std::move(info)) {}

  std::vector<std::string> info;  // name, serialized engine
  int64_t device_memory_budget = 1000;
  bool use_pre_allocated_outputs = false;
  bool output_tensors_are_unowned = false;
};

using Held = c10::intrusive_ptr<Engine>;

auto registered =
    torch::class_<Engine>("tensorrt", "Engine")
        .def(torch::init<std::vector<std::string>>())
        .def("__obj_flatten__",
             [](const Held& self) { return std::tuple<Pair, Pair>({"name", self->info[0]}, {"engine", self->info[1]}); })
        .def("set_output_tensors_as_unowned", [](const Held& self, bool on) { self->output_tensors_are_unowned = on; })
        .def("are_output_tensors_unowned", [](const Held& self) { return self->output_tensors_are_unowned; })
        .def_readwrite("use_pre_allocated_outputs", &Engine::use_pre_allocated_outputs)
        .def_readwrite("device_memory_budget", &Engine::device_memory_budget)
        .def_property("automatic_device_memory_budget", [](const Held&) -> int64_t { return 600; })
        .def_pickle([](const Held& self) { return self->info; },
                    [](std::vector<std::string> info) { return c10::make_intrusive<Engine>(std::move(info)); });

std::vector<at::Tensor> execute_engine(std::vector<at::Tensor> inputs, Held) {
  return {at::add(inputs[0], inputs[0])};
}

}  // namespace

TORCH_LIBRARY(tensorrt, m) {
  m.def("execute_engine(Tensor[] input_tensors, __torch__.torch.classes.tensorrt.Engine engine) -> Tensor[]");
}

TORCH_LIBRARY_IMPL(tensorrt, CompositeExplicitAutograd, m) {
  m.impl("execute_engine", execute_engine);
}
