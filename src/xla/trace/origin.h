#pragma once
#include <ATen/core/TensorBody.h>

#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "ivme/error.h"
#include "xla/programs.h"

namespace ivme::xla {

// Where in the user's program the operation comes from that this thread records now. An operation of the
// backward pass runs on autograd's thread, where nothing of the user's is on the stack: it belongs to the
// call of its forward operation, or else to that of backward.
CallSite origin();

// While it lives, what this thread records knows its origin, if that is wanted.
class Origin {
 public:
  explicit Origin(bool wanted) {
    if (wanted && !SiteOfNodes::current()) site_.emplace(origin());
  }

 private:
  std::optional<SiteOfNodes> site_;
};

// An Error whose message begins with the line of the user's call: "train.cpp:87: …".
class ErrorAtLine : public Error {
 public:
  using Error::Error;
};
[[noreturn]] void throw_at_line(const Error& error);

// Calls, and adds the line to an Error that has none.
template <class Call>
decltype(auto) with_line(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const ErrorAtLine&) {
    throw;
  } catch (const Error& error) {
    throw_at_line(error);
  }
}

// Whether the recording that the tensor belongs to wants lines; nothing if it belongs to none.
std::optional<bool> wants_lines(const at::Tensor& tensor);

// The same for the first of these that is a tensor and says so; else whether any recording wants them.
template <class... Arguments>
bool wants_lines_of(const Arguments&... arguments) {
  if (!WantOfLines::any()) return false;
  std::optional<bool> wanted;
  const auto look = [&](const auto& argument) {
    if constexpr (std::is_same_v<decltype(argument), const at::Tensor&>)
      if (!wanted) wanted = wants_lines(argument);
  };
  (look(arguments), ...);
  return wanted.value_or(true);
}

// A kernel whose nodes know their origin, and whose errors their line: library.impl("view",
// Located<view>::call).
template <auto kernel>
struct Located;
template <class Result, class... Arguments, Result (*kernel)(Arguments...)>
struct Located<kernel> {
  static Result call(Arguments... arguments) {
    const Origin here(wants_lines_of(arguments...));
    return with_line([&]() -> Result { return kernel(std::forward<Arguments>(arguments)...); });
  }
};

}  // namespace ivme::xla
