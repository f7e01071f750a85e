#pragma once
#include <ATen/core/TensorBody.h>

#include <any>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ivme/tensors.h"

namespace ivme {

// A number for tensors to be combined with, `loss * ivme::host_scalar(weight)`, asked for in every call of a
// compiled step, also where the step's code does not run: a loss weight that is annealed, the decay of an
// average. On all devices a 0-dimensional CPU tensor that behaves as a plain number.
at::Tensor host_scalar(std::function<double()> value);

struct CompileOptions {
  // Calls in a row that must record the same before the step is replayed; at least 3. What changes less often
  // than this is only found out later, by the calls that are recorded in between to compare.
  int traced_calls = 32;
};

namespace detail {
struct AcceleratorState;

// What a value holds besides tensors, as bytes that are equal for equal values. Of a type with a
// for_each_tensor of its own only the tensors are known.
template <class T>
void append_plain(std::string& text, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    text += value + '\0';
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
  } else if constexpr (std::is_same_v<T, at::Tensor> || HasVisit<T>) {
  } else if constexpr (IsOptional<T>::value) {
    text += value ? '+' : '-';
    if (value) append_plain(text, *value);
  } else if constexpr (IsMap<T>::value) {
    for (const auto& [key, element] : value) {
      append_plain(text, key);
      append_plain(text, element);
    }
  } else if constexpr (Sequence<T>) {
    for (const auto& element : value) append_plain(text, element);
    text += ';';
  } else if constexpr (TupleLike<T>) {
    std::apply([&](const auto&... elements) { (append_plain(text, elements), ...); }, value);
  }
}

// Decides call for call whether the step is recorded or replayed.
class StepReplay {
 public:
  StepReplay(std::shared_ptr<AcceleratorState> accelerator, CompileOptions options,
             std::source_location where);
  ~StepReplay();

  // Moves what is on the CPU.
  void place(at::Tensor& argument) const;
  // The results of a replay, or nothing: then the step is to be called, between begin and end. `plain`: the
  // types, and what the arguments hold besides the tensors.
  std::optional<std::vector<at::Tensor>> replay(std::vector<at::Tensor> tensors, std::string plain);
  // The number of the specialization that is at hand.
  size_t specialization() const;
  void begin();
  // Detaches the results. `plain`: what else the call returns.
  void end(const std::vector<at::Tensor*>& results, const std::string& plain);
  void abandon();  // the call has thrown

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
}  // namespace detail

// What Accelerator::compile returns: called like the step, with the same result. See there.
template <class Step>
class CompiledStep {
 public:
  // `replay` is null where the step is simply called.
  CompiledStep(Step step, std::shared_ptr<detail::StepReplay> replay)
      : step_(std::move(step)), replay_(std::move(replay)) {}

  template <class... Args>
  auto operator()(Args&&... args) {
    if (!replay_) return std::invoke(step_, std::forward<Args>(args)...);
    using Own = std::tuple<std::decay_t<Args>...>;
    using Result = decltype(std::apply(step_, std::declval<Own&>()));
    Own own(std::forward<Args>(args)...);
    std::string plain = typeid(std::pair<Own, std::type_identity<Result>>).name();
    detail::append_plain(plain, own);
    std::vector<at::Tensor> arguments;
    visit_tensors(own, [&](at::Tensor& tensor) {
      replay_->place(tensor);
      arguments.push_back(tensor);
    });
    if (auto tensors = replay_->replay(std::move(arguments), std::move(plain)))
      return result_of<Result>(*tensors);
    Call call(*replay_);
    if constexpr (std::is_void_v<Result>) {
      std::apply(step_, own);
      call.end({}, "");
    } else {
      std::decay_t<Result> result = std::apply(step_, own);
      std::vector<at::Tensor*> tensors;
      visit_tensors(result, [&](at::Tensor& tensor) { tensors.push_back(&tensor); });
      std::string others;
      detail::append_plain(others, result);
      call.end(tensors, others);
      std::decay_t<Result> form = result;
      visit_tensors(form, [](at::Tensor& tensor) { tensor = at::Tensor(); });
      (*forms_)[replay_->specialization()] = std::move(form);
      return result;
    }
  }

 private:
  // A call that is recorded.
  class Call {
   public:
    explicit Call(detail::StepReplay& replay) : replay_(replay) { replay_.begin(); }
    ~Call() {
      if (!ended_) replay_.abandon();
    }
    void end(const std::vector<at::Tensor*>& results, const std::string& plain) {
      replay_.end(results, plain);
      ended_ = true;
    }

   private:
    detail::StepReplay& replay_;
    bool ended_ = false;
  };

  template <class Result>
  auto result_of(const std::vector<at::Tensor>& tensors) {
    if constexpr (!std::is_void_v<Result>) {
      auto result = std::any_cast<std::decay_t<Result>>(forms_->at(replay_->specialization()));
      size_t next = 0;
      visit_tensors(result, [&](at::Tensor& tensor) { tensor = tensors[next++]; });
      return result;
    }
  }

  Step step_;
  std::shared_ptr<detail::StepReplay> replay_;
  using Forms = std::unordered_map<size_t, std::any>;
  std::shared_ptr<Forms> forms_ =
      std::make_shared<Forms>();  // what a specialization returns, without tensors
};

}  // namespace ivme
