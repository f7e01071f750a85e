#pragma once
#include <string>

#include "ivme/error.h"

namespace ivme::launch {

// Wrong usage of the tool: what is the case, and what to try. Printed as two lines, exit code 2.
class UsageError : public Error {
 public:
  UsageError(const std::string& fact, const std::string& remedy)
      : Error(fact + ". Try " + remedy + "."), fact_(fact), remedy_(remedy) {}
  const std::string& fact() const { return fact_; }
  const std::string& remedy() const { return remedy_; }

 private:
  std::string fact_, remedy_;
};

}  // namespace ivme::launch
