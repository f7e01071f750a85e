#pragma once
#include <stdexcept>
#include <string>

namespace ivme {

// What the library throws. The message is one or more sentences in three parts:
// what was asked, what is the case, what to do. The library never exits or aborts
// (but for IVME_PROBE and IVME_MAX_STEPS, see docs/run_record.md).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace ivme
