#include "precision/autocast.h"

#include <ATen/autocast_mode.h>

namespace ivme {

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype)
    : device_(device),
      enabled_before_(at::autocast::is_autocast_enabled(device)),
      dtype_before_(at::autocast::get_autocast_dtype(device)),
      cache_before_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
  at::autocast::set_autocast_cache_enabled(true);
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, enabled_before_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
  at::autocast::set_autocast_cache_enabled(cache_before_);
}

}  // namespace ivme
