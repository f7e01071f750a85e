#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "xla/graph.h"

namespace ivme::xla {

// The StableHLO module that computes a graph. Its @main takes the leaves, in order, and then the numbers as
// pack_numbers packs them; it gives the roots, in order. An argument whose memory a root may take
// (Graph::aliases) carries tf.aliasing_output with the root's index. Throws Error when a row refuses its
// arguments. Graphs of one key have one text.
std::string lower(const Graph& graph);

// A number as it is passed: f32 in the lower half, f64 or i64.
struct NumberBits {
  Dtype dtype = Dtype::f32;
  uint64_t bits = 0;

  bool operator==(const NumberBits&) const = default;
};
NumberBits bits_of(const Node& number);

// Numbers of one dtype as one 1-dimensional argument, in their order.
struct PackedNumbers {
  Shape shape;
  std::vector<std::byte> bytes;
};
// For each group of numbers (Graph::number_groups) one for each dtype that occurs: f32, f64, i64. The updates
// of parameters of one shape then read their numbers from the same places of an argument, each of its own,
// and XLA compiles them once; from one array of all numbers each read other places.
std::vector<PackedNumbers> pack_numbers(const std::vector<NumberBits>& numbers,
                                        const std::vector<size_t>& groups);
std::vector<PackedNumbers> pack_numbers(const Graph& graph);

}  // namespace ivme::xla
