#include "support/nearest.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace ivme {
namespace {

std::string folded(std::string_view word) {
  std::string result(word);
  for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours cost 1 each.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> choices) {
  const std::string meant = folded(word.substr(0, 64));
  size_t best = std::max<size_t>(1, meant.size() / 3) + 1;
  std::optional<std::string> result;
  for (const auto& choice : choices) {
    const size_t d = distance(meant, folded(choice));
    if (d >= best || d >= choice.size()) continue;
    best = d;
    result = choice;
  }
  if (result || meant.size() < 2) return result;
  for (const auto& choice : choices) {
    if (!folded(choice).starts_with(meant)) continue;
    if (result) return std::nullopt;
    result = choice;
  }
  return result;
}

std::string unknown_word(std::string_view kind, std::string_view word, std::span<const std::string> choices) {
  std::string sentence = "unknown " + std::string(kind) + " '" + std::string(word) + "'";
  if (const auto near = nearest(word, choices)) sentence += "; did you mean '" + *near + "'?";
  std::string list;
  for (const auto& choice : choices) list += (list.empty() ? "" : ", ") + choice;
  return sentence + " (" + list + ")";
}

}  // namespace ivme
