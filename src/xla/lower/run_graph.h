#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "xla/lower/emitter.h"

namespace ivme::xla {

// For tests: graphs that are run on the plugin that find_plugin finds. Values go and come as doubles.

// A leaf of this dtype, through f64 on the device (so whole numbers must be below 2⁵³).
Value make_tensor(Dtype dtype, const Dims& dims, const std::vector<double>& values);
Value apply(std::string_view op, std::vector<Value> operands, std::vector<Argument> arguments,
            int output = 0);

Argument operand(int64_t index, bool weak = false);
Argument whole(int64_t value);
Argument real(double value);
Argument list(Dims values);
Argument of_dtype(Dtype dtype);
Argument word(std::string text);

std::vector<std::vector<double>> run(const std::vector<Value>& roots);
inline std::vector<double> run(const Value& root) { return run(std::vector{root})[0]; }

}  // namespace ivme::xla
