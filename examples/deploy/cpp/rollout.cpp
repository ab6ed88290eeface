// Runs an AOTInductor artifact without Python: computes the opening of its stream and the frames of its sample, carries
// state between the calls as the manifest defines, and prints latency and error. The artifact contains code: run `bakeoff verify DIR` first.
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "artifact.h"

constexpr int kWarmUp = 3, kCalls = 20;  // of each program, before and within its median

// A program for the thread of its first call alone. It runs single-threaded: otherwise the host would wait in each call
// until the GPU has finished the call before (torch/csrc/inductor/aoti_runtime/model_container.h), and so it has no lock.
class Runner {
 public:
  explicit Runner(const std::string& path) : loader(path, "model", /*run_single_threaded=*/true), name_(path) {}

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) {
    std::thread::id first;  // no thread
    const auto here = std::this_thread::get_id();
    TORCH_CHECK(owner_.compare_exchange_strong(first, here) || first == here, name_,
                " was called in another thread first; call it in that thread alone, or open it once in each");
    return loader.run(inputs);
  }

  torch::inductor::AOTIModelPackageLoader loader;

 private:
  std::string name_;
  std::atomic<std::thread::id> owner_{};
};

template <typename Call>
double timed_ms(bool cuda, Call call) {
  if (cuda) torch::cuda::synchronize();  // earlier work, such as copies, is not the call's
  const auto started = std::chrono::steady_clock::now();
  call();
  if (cuda) torch::cuda::synchronize();  // a call returns before the GPU has finished
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - started;
  return taken.count();
}

int main(int count, char** arguments) try {
  TORCH_CHECK(count == 2, "usage: rollout ARTIFACT");
  const std::string folder = std::string(arguments[1]) + "/";
  Manifest manifest = read_manifest(read_file(folder + "manifest.json"));
  const bool cuda = manifest.device == "cuda";
  TORCH_CHECK(manifest.format == "aoti", "the artifact's format is ", manifest.format, "; give one of aoti");
  TORCH_CHECK(cuda || manifest.device == "cpu", "the artifact is for ", manifest.device, "; give one for cpu or cuda");
  TORCH_CHECK(!cuda || torch::cuda::is_available(), "the artifact is for cuda, and this libtorch finds no GPU; "
              "use a CUDA build of it on a host with a GPU, or export the artifact for cpu");
  const at::Device device(cuda ? at::kCUDA : at::kCPU);
  const std::string sample_data = read_file(folder + "sample.safetensors");
  const Tensors sample = read_tensors(sample_data);

  std::map<std::string, std::string> data;  // by file; on a CPU the weights, which the programs read, point into it
  std::map<std::string, Tensors> weights;   // by file, on the device
  std::map<std::string, std::unique_ptr<Runner>> runners;
  std::vector<std::string> calls = manifest.opening;  // of frame 0, in order; later frames call those of `each` only
  calls.insert(calls.end(), manifest.each.begin(), manifest.each.end());
  for (const auto& name : calls) {
    auto& loader = (runners[name] = std::make_unique<Runner>(folder + name + ".pt2"))->loader;
    const auto& files = manifest.programs.at(name).constants;
    if (files.empty()) continue;
    Tensors all;
    for (const auto& file : files) {
      if (!weights.count(file)) {
        weights[file] = read_tensors(data[file] = read_file(folder + file));
        for (auto& [fqn, tensor] : weights[file]) tensor = tensor.to(device);
        if (cuda) data.erase(file);
      }
      all.insert(weights[file].begin(), weights[file].end());
    }
    std::unordered_map<std::string, at::Tensor> used;
    for (const auto& fqn : loader.get_constant_fqns()) used[fqn] = all.at(fqn);
    loader.load_constants(used, /*use_inactive=*/false, /*check_full_update=*/true, /*user_managed=*/true);
  }

  std::map<std::string, Tensors> state;  // for each program, the inputs of its next call
  std::map<std::string, double> first_ms;
  std::map<std::string, std::vector<at::Tensor>> last_inputs;
  double worst = 0;
  std::string over;  // name of an output whose error exceeds its limit
  for (int64_t frame = 0; frame < manifest.frames; ++frame) {
    const std::string of_frame = std::to_string(frame) + "/";
    for (const auto& name : frame == 0 ? calls : manifest.each) {
      const Program& program = manifest.programs.at(name);
      for (const Port& port : program.inputs)  // frame 0 of the sample has all, in place of carried state
        if (const auto given = sample.find(of_frame + name + "/in/" + port.name); given != sample.end())
          state[name][port.name] = repeated(given->second, port).to(device);
      std::vector<at::Tensor>& inputs = last_inputs[name];
      inputs.clear();
      for (const Port& port : program.inputs) inputs.push_back(state[name].at(port.name));
      std::vector<at::Tensor> outputs;
      const double taken_ms = timed_ms(cuda, [&] { outputs = runners[name]->run(inputs); });
      first_ms.emplace(name, taken_ms);
      for (size_t index = 0; index < outputs.size(); ++index) {
        const std::string& output = program.outputs[index].name;
        const auto wanted = sample.at(of_frame + name + "/out/" + output).to(at::kDouble).flatten();
        const int64_t all = outputs[index].numel(), step = (all + wanted.numel() - 1) / wanted.numel();
        const auto found = outputs[index].to(at::kCPU, at::kDouble).flatten().slice(0, 0, all, step);
        const double error = ((found - wanted).norm() / wanted.norm()).item<double>();
        if (!(error <= worst)) worst = error;  // NaN stays
        if (!(error <= manifest.limits.at(name + "/" + output))) over = name + "/" + output;
        for (const Carry& one : manifest.carries) {
          if (one.from != name || one.output != output) continue;
          auto& taker = state[one.to][one.input];
          const int64_t added = one.axis < 0 ? 0 : outputs[index].size(one.axis);
          taker = one.axis < 0 ? outputs[index] : at::cat({taker.slice(one.axis, added), outputs[index]}, one.axis);
        }
      }
    }
  }
  for (const auto& name : calls) {
    std::vector<double> times;
    for (int call = 0; call < kWarmUp + kCalls; ++call) {
      const double taken_ms = timed_ms(cuda, [&] { runners[name]->run(last_inputs[name]); });
      if (call >= kWarmUp) times.push_back(taken_ms);
    }
    std::sort(times.begin(), times.end());
    const double median = (times[(kCalls - 1) / 2] + times[kCalls / 2]) / 2;
    std::printf("%-12s first call %.2f ms, median of %d warm calls %.2f ms\n", name.c_str(), first_ms[name], kCalls, median);
  }
  std::printf("%d frames, largest relative error of an output %.2e\n", int(manifest.frames), worst);
  TORCH_CHECK(over.empty(), over, " differs by more than its limit");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "rollout: %s\n", std::string(error.what()).substr(0, std::string(error.what()).find('\n')).c_str());
  return 1;
}
