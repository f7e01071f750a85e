// Every row against PyTorch: cases/rows.json holds what PyTorch computed (cases/record.py), and is replayed
// here on the plugin that find_plugin finds.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "xla/lower/op.h"
#include "xla/lower/run_graph.h"

namespace ivme::xla {
namespace {

using Json = nlohmann::json;

const Json& cases() {
  static const Json all = [] {
    std::ifstream file(std::string(IVME_SOURCE_DIR) + "/src/xla/lower/cases/rows.json");
    return Json::parse(file);
  }();
  return all;
}

Dtype dtype_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(Dtype::boolean); ++i) {
    if (name == name_of(static_cast<Dtype>(i))) return static_cast<Dtype>(i);
  }
  throw std::runtime_error("no dtype " + name);
}

double value_of(const Json& json) {
  if (!json.is_string())
    return json.is_boolean() ? static_cast<double>(json.get<bool>()) : json.get<double>();
  return json == "nan" ? NAN : json == "inf" ? INFINITY : -INFINITY;
}

std::vector<double> values_of(const Json& tensor) {
  std::vector<double> values;
  for (const Json& value : tensor["values"]) values.push_back(value_of(value));
  return values;
}

// One recorded call, as the recorder passes it: Scalars that may vary are numbers of the run.
class Replay {
 public:
  explicit Replay(const Json& recorded) : op_(*find_op(recorded["op"].get<std::string>())) {
    for (const Json& tensor : recorded["operands"]) {
      operands_.push_back(make_tensor(dtype_named(tensor["dtype"]), tensor["dims"], values_of(tensor)));
      floating_ = floating_ || is_floating(operands_.back().shape().dtype);
      double_ = double_ || operands_.back().shape().dtype == Dtype::f64;
    }
    for (const Json& argument : recorded["arguments"]) add(argument);
    node_ = make_operation(op_, operands_, arguments_);
  }

  const std::shared_ptr<Node>& node() const { return node_; }

 private:
  void add(const Json& json) {
    bool varies = (op_.run_time_scalars >> arguments_.size() & 1) != 0;
    bool is_number =
        json.is_object() && (json.contains("integer") || json.contains("real") || json.contains("boolean"));
    if (varies && is_number)
      arguments_.push_back(run_time(json));
    else
      arguments_.push_back(plain(json));
  }

  Argument run_time(const Json& json) {
    double value = value_of(json.begin().value());
    bool is_real = json.contains("real") || floating_;
    Dtype dtype = double_ ? Dtype::f64 : Dtype::f32;
    operands_.push_back(
        {is_real ? make_number(dtype, value) : make_number(Dtype::i64, static_cast<int64_t>(value))});
    return operand(static_cast<int64_t>(operands_.size()) - 1, true);
  }

  static Argument plain(const Json& json) {
    if (json.is_null()) return {};
    if (json.contains("operand")) return operand(json["operand"]);
    if (json.contains("integers")) return list(json["integers"]);
    if (json.contains("text")) return word(json["text"]);
    if (json.contains("dtype")) return of_dtype(dtype_named(json["dtype"]));
    if (json.contains("real")) return real(value_of(json["real"]));
    Argument argument;
    if (json.contains("operands")) {
      argument.kind = Argument::Kind::operands;
      argument.integer = json["operands"];
      argument.integers = json["defined"].get<Dims>();
      return argument;
    }
    bool is_boolean = json.contains("boolean");
    argument.kind = is_boolean ? Argument::Kind::boolean : Argument::Kind::integer;
    argument.integer =
        is_boolean ? static_cast<int64_t>(json["boolean"].get<bool>()) : json["integer"].get<int64_t>();
    return argument;
  }

  const Op& op_;
  std::vector<Value> operands_;
  std::vector<Argument> arguments_;
  std::shared_ptr<Node> node_;
  bool floating_ = false, double_ = false;
};

double tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return 1e-12;
    case Dtype::f32:
      return 3e-6;
    case Dtype::bf16:
      return 8e-3;
    case Dtype::f16:
      return 1e-3;
    default:
      return 0;
  }
}

void expect_close(const std::vector<double>& got, const Json& output, const std::string& what) {
  const std::vector<double> wanted = values_of(output);
  const double relative = tolerance(dtype_named(output["dtype"]));
  double scale = 0;
  for (double value : wanted)
    scale += std::isfinite(value) ? std::abs(value) / static_cast<double>(wanted.size()) : 0;
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = got[i] == wanted[i] || (std::isnan(got[i]) && std::isnan(wanted[i]));
    EXPECT_TRUE(same || std::abs(got[i] - wanted[i]) <= relative * (std::abs(wanted[i]) + scale))
        << what << ", element " << i << ": " << got[i] << ", and PyTorch's is " << wanted[i];
  }
}

void replay(size_t begin, size_t end) {
  std::vector<Value> roots;
  std::vector<std::pair<const Json*, std::string>> wanted;
  for (size_t c = begin; c < end; ++c) {
    const Json& recorded = cases()[c];
    const auto node = Replay(recorded).node();
    const std::string name = recorded["op"].get<std::string>() + " (case " + std::to_string(c) + ")";
    ASSERT_EQ(node->shapes.size(), recorded["outputs"].size()) << name;
    for (int i = 0; i < static_cast<int>(node->shapes.size()); ++i) {
      const Json& output = recorded["outputs"][static_cast<size_t>(i)];
      if (output.is_null()) continue;
      const Shape shape{dtype_named(output["dtype"]), output["dims"]};
      ASSERT_EQ(to_string(node->shapes[static_cast<size_t>(i)]), to_string(shape))
          << name << ", output " << i;
      roots.push_back({node, i});
      wanted.emplace_back(&output, name + ", output " + std::to_string(i));
    }
  }
  const auto results = run(roots);
  for (size_t i = 0; i < results.size(); ++i) expect_close(results[i], *wanted[i].first, wanted[i].second);
}

TEST(Rows, agree_with_pytorch_in_shape_dtype_and_value) {
  constexpr size_t at_once = 8;
  ASSERT_GT(cases().size(), 400U);
  for (size_t begin = 0; begin < cases().size(); begin += at_once) {
    replay(begin, std::min(begin + at_once, cases().size()));
    if (HasFatalFailure()) return;
  }
}

TEST(Rows, all_of_aten_have_a_case) {
  std::set<std::string> recorded;
  for (const Json& one : cases()) recorded.insert(one["op"].get<std::string>());
  for (std::string_view name : op_names()) {
    const bool is_recorded = recorded.contains(std::string(name)) || name.starts_with("ivme::");
    EXPECT_TRUE(is_recorded) << name;
  }
}

}  // namespace
}  // namespace ivme::xla
