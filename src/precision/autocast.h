#pragma once
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace ivme {

// torch's autocast for one device type, from construction to destruction; what was set before comes back.
// Nests. For the thread that made it.
class Autocast {
 public:
  Autocast(c10::DeviceType device, c10::ScalarType dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool enabled_before_;
  c10::ScalarType dtype_before_;
  bool cache_before_;
};

}  // namespace ivme
