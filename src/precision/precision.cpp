#include "ivme/precision.h"

#include <array>

#include "ivme/error.h"
#include "support/nearest.h"

namespace ivme {

const char* name(Precision precision) {
  switch (precision) {
    case Precision::no:
      return "no";
    case Precision::bf16:
      return "bf16";
    case Precision::fp16:
      return "fp16";
  }
  return "no";
}

Precision parse_precision(const std::string& word) {
  for (Precision precision : {Precision::no, Precision::bf16, Precision::fp16})
    if (word == name(precision)) return precision;
  const std::array<std::string, 3> choices = {"no", "bf16", "fp16"};
  auto close = nearest(word, choices);
  throw Error("unknown precision '" + word + "'" + (close ? "; did you mean '" + *close + "'?" : ".") +
              " (no, bf16, fp16)");
}

}  // namespace ivme
