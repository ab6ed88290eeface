// Reads manifest.json and safetensors files of an artifact, without a JSON library. This relies on the exact layout in
// which bakeoff writes them, so run `bakeoff verify` on the artifact first: it checks every byte.
#pragma once
#include <ATen/ATen.h>

#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <vector>

using Tensors = std::map<std::string, at::Tensor>;

struct Port {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
};

struct Program {
  std::vector<std::string> constants;  // files of separate weights; if two files hold a name, the first counts
  std::vector<Port> inputs, outputs;
};

struct Carry {
  std::string from, output, to, input;
  int64_t axis;  // -1: replaces the input; else appended to the input, a window along this axis
};

struct Manifest {
  std::string format, device;  // of the programs, and of their tensors and weights
  std::map<std::string, Program> programs;
  std::vector<std::string> opening;  // the programs that are called once, in order, before those of the first frame
  std::vector<std::string> each;     // the programs of a frame, in order
  std::vector<Carry> carries;
  int64_t frames;
  std::map<std::string, double> limits;  // program/output to its largest allowed relative error
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file, "cannot read ", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::smatch> matches(const std::string& text, const char* expression) {
  const std::regex pattern(expression);
  return {std::sregex_iterator(text.begin(), text.end(), pattern), {}};
}

inline std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> found;
  for (const auto& one : matches(text, "[0-9]+")) found.push_back(std::stoll(one.str()));
  return found;
}

inline Manifest read_manifest(const std::string& text) {
  static const std::map<std::string, at::ScalarType> kinds{
      {"float32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf}, {"int64", at::kLong},
      {"int32", at::kInt},     {"int16", at::kShort},       {"int8", at::kChar},    {"uint8", at::kByte},
      {"bool", at::kBool}};
  Manifest found;
  const auto word = [&text](const char* expression) { return matches(text, expression).at(0)[1].str(); };
  found.format = word(R"re(\n "artifact": "([^"]+)")re");
  found.device = word(R"re(\n "device": "([^"]+)")re");
  Program* program = nullptr;
  bool in_outputs = false;
  for (const auto& one : matches(text, R"re("file": "([\w.-]+)\.pt2",\s*"constants": \[([^\]]*)\]|"(inputs|outputs)": \[|)re"
                                       R"re("name": "([^"]+)",\s*"dtype": "(\w+)",\s*"shape": \[([^\]]*)\])re")) {
    if (one[1].matched) {
      program = &found.programs[one[1]];
      const std::string names = one[2];  // matches point into it
      for (const auto& name : matches(names, R"re("([^"]+)")re")) program->constants.push_back(name[1]);
    } else if (one[3].matched) {
      in_outputs = one[3] == "outputs";
    } else {
      (in_outputs ? program->outputs : program->inputs).push_back({one[4], kinds.at(one[5]), numbers(one[6])});
    }
  }
  for (const auto& one : matches(text, R"re("workload": "([^"]+)",\s*"output": "([^"]+)",\s*"to": "([^"]+)",\s*)re"
                                       R"re("input": "([^"]+)",\s*"axis": (null|\d+))re"))
    found.carries.push_back({one[1], one[2], one[3], one[4], one[5] == "null" ? -1 : std::stoll(one[5])});
  for (const auto& list : matches(text, R"re("(opening|each)": \[([^\]]*)\])re")) {
    const std::string names = list[2];  // matches point into it
    for (const auto& one : matches(names, R"re("([^"]+)")re"))
      (list[1] == "opening" ? found.opening : found.each).push_back(one[1]);
  }
  if (found.each.empty()) found.each.push_back(word(R"re("main": "([^"]+)")re"));
  const std::string limits = text.substr(text.find("\"limits\""));
  const std::string of_outputs = limits.substr(0, limits.find('}'));
  for (const auto& one : matches(of_outputs, R"re("([^"/]+/[^"]+)": ([-+.e\d]+))re")) found.limits[one[1]] = std::stod(one[2]);
  found.frames = std::stoll(word(R"re("frames": (\d+))re"));
  return found;
}

// Eight bytes of length, a JSON header, then the tensors (github.com/huggingface/safetensors). The returned tensors
// point into `data`, which must outlive them.
inline Tensors read_tensors(const std::string& data) {
  static const std::map<std::string, at::ScalarType> kinds{
      {"F32", at::kFloat}, {"BF16", at::kBFloat16}, {"F16", at::kHalf}, {"I64", at::kLong},
      {"I32", at::kInt},   {"I16", at::kShort},     {"I8", at::kChar},  {"U8", at::kByte},
      {"BOOL", at::kBool}};
  const uint64_t length = *reinterpret_cast<const uint64_t*>(data.data());
  const std::string header = data.substr(8, length);
  Tensors found;
  for (const auto& one : matches(header, R"re("([^"]+)":\{"dtype":"(\w+)","shape":\[([^\]]*)\],"data_offsets":\[(\d+),)re"))
    found[one[1]] = at::from_blob(const_cast<char*>(data.data()) + 8 + length + std::stoull(one[4]), numbers(one[3]),
                                  at::TensorOptions().dtype(kinds.at(one[2])));
  return found;
}

// An input of the sample: its stored elements, repeated until the shape is full, as numpy.resize does.
inline at::Tensor repeated(const at::Tensor& block, const Port& port) {
  int64_t count = 1;
  for (int64_t length : port.shape) count *= length;
  const int64_t times = (count + block.numel() - 1) / block.numel();
  return block.flatten().repeat({times}).slice(0, 0, count).reshape(port.shape).to(port.dtype);
}
