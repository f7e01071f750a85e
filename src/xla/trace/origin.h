#pragma once
#include <exception>
#include <optional>
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

// A kernel whose nodes know their origin, and whose errors their line: library.impl("view",
// Located<view>::call).
template <auto kernel>
struct Located;
template <class Result, class... Arguments, Result (*kernel)(Arguments...)>
struct Located<kernel> {
  static Result call(Arguments... arguments) {
    const Origin here(WantOfLines::any());
    return with_line([&]() -> Result { return kernel(std::forward<Arguments>(arguments)...); });
  }
};

}  // namespace ivme::xla
