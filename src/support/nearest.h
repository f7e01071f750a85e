#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ivme {

// The choice that `word` was most likely meant to be: at most a third of its letters (at least one) wrong,
// missing, too many or swapped with their neighbour; or, if none is that near, the only choice that begins
// with `word`. Upper and lower case, and `-` and `_`, count as equal. Nothing when no choice is near.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> choices);

// "unknown precision 'bf61'; did you mean 'bf16'? (no, bf16, fp16)", or without a near choice
// "unknown precision 'x' (no, bf16, fp16)". `kind` is the noun: "precision".
std::string unknown_word(std::string_view kind, std::string_view word, std::span<const std::string> choices);

}  // namespace ivme
