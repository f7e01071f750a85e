#pragma once
// For the sources of compile/ and run/ only: what touches the C API itself.
#include <pjrt_c_api.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "xla/compile/pjrt_api.h"

namespace ivme::xla {

// One of the API's structs, zeroed, with its size filled in.
template <class Struct>
Struct sized() {
  Struct made{};
  made.struct_size = sizeof(Struct);
  return made;
}

struct Failure {
  PJRT_Error_Code code;
  std::string text;  // the plugin's words
};

// The content of `error`, which is freed; nothing for null.
std::optional<Failure> failure_of(const PjrtApi& api, PJRT_Error* error);

// Throws Error: "ASKED failed in the PJRT plugin PATH: TEXT. REMEDY".
[[noreturn]] void throw_failure(const PjrtApi& api, const Failure& failure, std::string_view asked,
                                std::string_view remedy = {});
[[noreturn]] void throw_missing(const PjrtApi& api, std::string_view asked);

// Whether the plugin's table, which may be older than our header, has this function.
template <class Function>
bool has(const PjrtApi& api, Function* PJRT_Api::* slot) {
  const auto* table = reinterpret_cast<const std::byte*>(api.table);
  const auto end = reinterpret_cast<const std::byte*>(&(api.table->*slot) + 1) - table;
  return api.table->struct_size >= static_cast<size_t>(end) && api.table->*slot != nullptr;
}

// Calls a function that returns PJRT_Error*. `asked` is what the message begins with: "Compiling the
// program". Throws Error when the plugin has no such function.
template <class Args>
std::optional<Failure> try_call(const PjrtApi& api, PJRT_Error* (*PJRT_Api::*slot)(Args*), Args& args,
                                std::string_view asked) {
  if (!has(api, slot)) throw_missing(api, asked);
  return failure_of(api, (api.table->*slot)(&args));
}

// The same, and throws Error for a failure.
template <class Args>
void call(const PjrtApi& api, PJRT_Error* (*PJRT_Api::*slot)(Args*), Args& args, std::string_view asked,
          std::string_view remedy = {}) {
  if (auto failure = try_call(api, slot, args, asked)) throw_failure(api, *failure, asked, remedy);
}

// Waits for `event` and frees it; null counts as done.
std::optional<Failure> await(const PjrtApi& api, PJRT_Event* event);
// Whether waiting would take no time; null counts as done.
bool is_done(const PjrtApi& api, PJRT_Event* event);

}  // namespace ivme::xla
