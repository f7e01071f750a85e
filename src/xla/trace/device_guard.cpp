// What libtorch wants to know of a device type: there is one xla device, with one stream. A mesh of cores is
// inside it.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "xla/trace/record.h"

namespace ivme::xla {
namespace {

class DeviceGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  at::DeviceType type() const override { return at::kXLA; }
  at::Device exchangeDevice(at::Device) const override { return {at::kXLA, 0}; }
  at::Device getDevice() const override { return {at::kXLA, 0}; }
  void setDevice(at::Device) const override {}
  void uncheckedSetDevice(at::Device) const noexcept override {}
  c10::Stream getStream(at::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(at::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

C10_REGISTER_GUARD_IMPL(XLA, DeviceGuard);

}  // namespace

void register_device_guard() {}

}  // namespace ivme::xla
