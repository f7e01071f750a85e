#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "process/backend.h"

namespace ivme {

void add_nccl_backend(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                      const c10::intrusive_ptr<c10d::Store>& store, std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, group->getRank(), group->getSize(), options);
  group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, nccl);
}

}  // namespace ivme
