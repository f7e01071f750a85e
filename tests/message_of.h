#pragma once
#include <exception>
#include <string>

#include "ivme/error.h"

namespace ivme::test {

// What the ivme::Error says that `call` throws.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& other) {
    return std::string("no ivme::Error but: ") + other.what();
  }
  return "nothing was thrown";
}

}  // namespace ivme::test
