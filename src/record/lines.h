#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "record/entry.h"

namespace ivme::record {

// The lines of a record (docs/run_record.md), each with its newline. Doubles are written so that reading
// gives the same double; those that are not finite are the strings "nan", "inf" and "-inf". Bytes that are
// not UTF-8 are replaced by U+FFFD.
std::string facts_line(const Facts& facts);

// `step.samples` and the other fields are those of the whole run.
std::string step_line(const StepEntry& step);

// One micro line per micro-batch of a step. losses[r][k] is the loss of rank r in micro-batch k; ranks may
// have fewer, those places are null. Micro-batches are numbered from `first`.
std::string micro_lines(int64_t first, const std::vector<std::vector<double>>& losses);

std::string final_line(const Numbers& metrics);

}  // namespace ivme::record
