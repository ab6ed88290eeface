// Runs an AOTInductor artifact without Python: computes the opening of its stream and the frames of its sample, carries
// state between the calls as the manifest defines, and prints latency and error. The artifact contains code: run `bakeoff verify DIR` first.
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "artifact.h"

using Loader = torch::inductor::AOTIModelPackageLoader;
constexpr int kWarmUp = 3, kCalls = 20;  // of each program, before and within its median

template <typename Call>
double timed_ms(Call call) {
  const auto started = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - started;
  return taken.count();
}

int main(int count, char** arguments) try {
  TORCH_CHECK(count == 2, "usage: rollout ARTIFACT");
  const std::string folder = std::string(arguments[1]) + "/";
  Manifest manifest = read_manifest(read_file(folder + "manifest.json"));
  const std::string sample_data = read_file(folder + "sample.safetensors");
  const Tensors sample = read_tensors(sample_data);

  std::map<std::string, std::string> weights;  // by file; the loaders point into them, so they must outlive these
  std::map<std::string, std::unique_ptr<Loader>> loaders;
  std::vector<std::string> calls = manifest.opening;  // of frame 0, in order; later frames call those of `each` only
  calls.insert(calls.end(), manifest.each.begin(), manifest.each.end());
  for (const auto& name : calls) {
    auto& loader = loaders[name] = std::make_unique<Loader>(folder + name + ".pt2");
    const auto& files = manifest.programs.at(name).constants;
    if (files.empty()) continue;
    Tensors all;
    for (const auto& file : files) {
      if (!weights.count(file)) weights[file] = read_file(folder + file);
      all.merge(read_tensors(weights[file]));
    }
    std::unordered_map<std::string, at::Tensor> used;
    for (const auto& fqn : loader->get_constant_fqns()) used[fqn] = all.at(fqn);
    loader->load_constants(used, /*use_inactive=*/false, /*check_full_update=*/true, /*user_managed=*/true);
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
          state[name][port.name] = repeated(given->second, port);
      std::vector<at::Tensor>& inputs = last_inputs[name];
      inputs.clear();
      for (const Port& port : program.inputs) inputs.push_back(state[name].at(port.name));
      std::vector<at::Tensor> outputs;
      const double taken_ms = timed_ms([&] { outputs = loaders[name]->run(inputs); });
      first_ms.emplace(name, taken_ms);
      for (size_t index = 0; index < outputs.size(); ++index) {
        const std::string& output = program.outputs[index].name;
        const auto wanted = sample.at(of_frame + name + "/out/" + output).to(at::kDouble).flatten();
        const int64_t all = outputs[index].numel(), step = (all + wanted.numel() - 1) / wanted.numel();
        const auto found = outputs[index].to(at::kDouble).flatten().slice(0, 0, all, step);
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
      const double taken_ms = timed_ms([&] { loaders[name]->run(last_inputs[name]); });
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
