#pragma once
#include <string>

#include "ivme/error.h"

namespace ivme::xla {

// For tests: the sentence that `action` throws as Error; "" if it throws nothing.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace ivme::xla
