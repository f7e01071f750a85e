#include "record/step_join.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace ivme::record {
namespace {

auto first_of(std::deque<StepEntry>& entries, int optimizer) {
  return std::find_if(entries.begin(), entries.end(),
                      [&](const StepEntry& entry) { return entry.optimizer == optimizer; });
}

// `parts` in the order of ranks, null where a rank did not make the step; at least one is there.
WholeStep join(const std::vector<const StepEntry*>& parts) {
  WholeStep whole;
  int made = 0;
  double loss = 0;
  for (const StepEntry* part : parts) {
    whole.micro_losses.push_back(part ? part->micro_losses : std::vector<double>());
    if (!part) continue;
    loss += part->loss;
    if (made++ == 0) {
      whole.line = *part;
      continue;
    }
    whole.line.samples += part->samples;
    whole.line.order += part->order;
    if (part->tokens) whole.line.tokens = whole.line.tokens.value_or(0) + *part->tokens;
  }
  whole.line.loss = loss / made;
  return whole;
}

}  // namespace

StepJoin::StepJoin(int world_size) : ranks_(static_cast<std::size_t>(world_size)) {}

void StepJoin::add(int rank, StepEntry entry) {
  ranks_.at(static_cast<std::size_t>(rank)).entries.push_back(std::move(entry));
}

void StepJoin::end(int rank) { ranks_.at(static_cast<std::size_t>(rank)).ended = true; }

bool StepJoin::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });
}

std::optional<WholeStep> StepJoin::next() {
  const auto guide = std::find_if(ranks_.begin(), ranks_.end(),
                                  [](const Rank& rank) { return !rank.ended || !rank.entries.empty(); });
  if (guide == ranks_.end() || guide->entries.empty()) return std::nullopt;
  const int optimizer = guide->entries.front().optimizer;
  int64_t step = guide->entries.front().step;
  for (Rank& rank : ranks_) {
    const auto entry = first_of(rank.entries, optimizer);
    if (entry != rank.entries.end())
      step = std::min(step, entry->step);
    else if (!rank.ended)
      return std::nullopt;
  }

  std::vector<const StepEntry*> parts;
  for (Rank& rank : ranks_) {
    const auto entry = first_of(rank.entries, optimizer);
    parts.push_back(entry != rank.entries.end() && entry->step == step ? &*entry : nullptr);
  }
  WholeStep whole = join(parts);
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (parts[r]) ranks_[r].entries.erase(first_of(ranks_[r].entries, optimizer));
  whole.line.samples = samples_[optimizer] += whole.line.samples;
  return whole;
}

// CBOR keeps every double, also those that are not finite.
std::string pack(const Block& block) {
  const auto optional = [](const auto& value) { return value ? nlohmann::json(*value) : nlohmann::json(); };
  auto entries = nlohmann::json::array();
  for (const StepEntry& e : block.entries)
    entries.push_back({e.optimizer, e.step, e.samples, e.loss, e.lr, e.grad_norm, optional(e.param_norm),
                       optional(e.update_norm), e.order, optional(e.tokens), e.seconds, e.micro_losses});
  std::string bytes;
  nlohmann::json::to_cbor(nlohmann::json{{"entries", std::move(entries)}, {"last", block.last}}, bytes);
  return bytes;
}

Block unpack(const std::string& bytes) {
  const nlohmann::json json = nlohmann::json::from_cbor(bytes);
  Block block;
  block.last = json.at("last").get<bool>();
  for (const nlohmann::json& fields : json.at("entries")) {
    StepEntry e;
    e.optimizer = fields.at(0).get<int>();
    e.step = fields.at(1).get<int64_t>();
    e.samples = fields.at(2).get<int64_t>();
    e.loss = fields.at(3).get<double>();
    e.lr = fields.at(4).get<double>();
    e.grad_norm = fields.at(5).get<double>();
    if (!fields.at(6).is_null()) e.param_norm = fields[6].get<double>();
    if (!fields.at(7).is_null()) e.update_norm = fields[7].get<double>();
    e.order = fields.at(8).get<uint64_t>();
    if (!fields.at(9).is_null()) e.tokens = fields[9].get<int64_t>();
    e.seconds = fields.at(10).get<double>();
    e.micro_losses = fields.at(11).get<std::vector<double>>();
    block.entries.push_back(std::move(e));
  }
  return block;
}

}  // namespace ivme::record
