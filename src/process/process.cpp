#include "ivme/process.h"

namespace ivme {

const char* name(DistributedType type) {
  switch (type) {
    case DistributedType::NO:
      return "NO";
    case DistributedType::MULTI_CPU:
      return "MULTI_CPU";
    case DistributedType::MULTI_GPU:
      return "MULTI_GPU";
    case DistributedType::XLA:
      return "XLA";
  }
  return "NO";
}

}  // namespace ivme
