#pragma once
#include <sys/types.h>

#include <vector>

namespace ivme::launch {

// The processes that descend from `ancestor` now, in no order, from /proc. A snapshot: while they live they
// may start others.
std::vector<pid_t> descendants(pid_t ancestor);

}  // namespace ivme::launch
