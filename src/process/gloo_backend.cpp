#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "process/backend.h"

namespace ivme {

void add_gloo_backend(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                      const c10::intrusive_ptr<c10d::Store>& store, std::chrono::milliseconds timeout,
                      bool one_host) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(one_host ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                      : c10d::ProcessGroupGloo::createDefaultDevice());
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, group->getRank(), group->getSize(), options);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
}

}  // namespace ivme
