#pragma once
#include <memory>
#include <vector>

#include "xla/compile/executable.h"
#include "xla/run/buffer.h"

namespace ivme::xla {

// Starts the program and returns its results, in order; their shapes are those of its signature. Usually
// returns before the device is done: the results are then still being computed, and may be passed on at once.
//
// `arguments`: one for each argument of @main, of its shape, on device 0 of the executable's client.
// `donated`: one for each argument, or empty for none: whether the program may consume it. It does so where
// the argument has tf.aliasing_output; the buffer is then deleted. All other arguments stay whole, whatever
// the program says. A buffer that is passed twice is never consumed.
//
// Throws Error: for a null, deleted or misplaced argument, a wrong number or shape, an executable for several
// devices (nothing has been touched then); when the execution fails at once, with the plugin's text (what was
// donated may be deleted). An execution that fails later throws where a result is waited for or downloaded.
std::vector<std::shared_ptr<Buffer>> execute(const Executable& executable,
                                             const std::vector<std::shared_ptr<Buffer>>& arguments,
                                             const std::vector<bool>& donated = {});

}  // namespace ivme::xla
