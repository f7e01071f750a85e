#pragma once
#include <cstddef>
#include <functional>

namespace ivme::xla {

// Runs `compile` and says on stderr that it runs: on a terminal with a running clock, else in one line at the
// end. A program that the cache had is not worth a line: `compile` returns whether it was compiled.
void with_notice(size_t operations, const std::function<bool()>& compile);

}  // namespace ivme::xla
