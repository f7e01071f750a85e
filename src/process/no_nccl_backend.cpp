#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ivme/error.h"
#include "process/backend.h"

namespace ivme {

void add_nccl_backend(const c10::intrusive_ptr<c10d::ProcessGroup>&, const c10::intrusive_ptr<c10d::Store>&,
                      std::chrono::milliseconds) {
  throw Error(
      "Several processes on GPUs were asked for, but this libtorch has no NCCL. "
      "Build ivme against a CUDA build of libtorch, or use --cpu.");
}

}  // namespace ivme
