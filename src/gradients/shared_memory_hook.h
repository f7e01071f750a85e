#pragma once
#include <memory>

namespace c10d {
class CommHookInterface;
}

namespace ivme {

class SharedAverage;

// A hook for c10d::Reducer that averages buckets of float32 or float64 through shared memory. A thread of its
// own does the work, so that backward goes on meanwhile. All hooks of one SharedAverage take turns in the
// order of their calls, which is the same on all ranks.
std::unique_ptr<c10d::CommHookInterface> shared_memory_hook(const std::shared_ptr<SharedAverage>& average);

}  // namespace ivme
