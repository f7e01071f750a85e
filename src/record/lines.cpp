#include "record/lines.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "support/hash.h"

namespace ivme::record {
namespace {

using Json = nlohmann::ordered_json;

const char* not_finite(double value) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(not_finite(value)); }

Json hex_float(double value) {
  if (!std::isfinite(value)) return not_finite(value);
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

Json object(const Numbers& numbers) {
  Json json = Json::object();
  for (const auto& [name, value] : numbers) json[name] = number(value);
  return json;
}

Json object(const Strings& strings) {
  Json json = Json::object();
  for (const auto& [name, value] : strings) json[name] = value;
  return json;
}

std::string line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string facts_line(const Facts& f) {
  Json json = {{"kind", "facts"}, {"format", 1}};
  const auto optional = [&](const char* name, const auto& value) {
    if (value) json[name] = *value;
  };
  json["seed"] = f.seed ? Json(*f.seed) : Json();
  json["device"] = f.device;
  json["workers"] = f.workers;
  json["host_processes"] = f.host_processes;
  optional("per_worker_batch", f.per_worker_batch);
  optional("split_batches", f.split_batches);
  json["accumulation"] = f.accumulation;
  optional("observed_batch", f.observed_batch);
  if (f.optimizer) {
    json["optimizer"] = {{"name", f.optimizer->name}};
    json["optimizer"].update(object(f.optimizer->values));
  }
  json["scheduler"] = Json();
  if (f.scheduler) {
    json["scheduler"] = {{"name", f.scheduler->name}};
    if (f.scheduler->total) json["scheduler"]["total"] = *f.scheduler->total;
    json["scheduler"]["steps_per_update"] = f.scheduler->steps_per_update;
  }
  json["precision"] = f.precision;
  json["sampler"] = f.sampler;
  optional("order", f.order);
  optional("init", f.init);
  json["batch_norm"] = f.batch_norm;
  json["dropout"] = f.dropout;
  json["versions"] = object(f.versions);
  json["command"] = f.command;
  json["environment"] = object(f.environment);
  return line(json);
}

std::string step_line(const StepEntry& s) {
  Json json = {{"kind", "step"},
               {"optimizer", s.optimizer},
               {"step", s.step},
               {"samples", s.samples},
               {"loss", number(s.loss)},
               {"lr", number(s.lr)},
               {"grad_norm", number(s.grad_norm)}};
  if (s.param_norm) json["param_norm"] = number(*s.param_norm);
  if (s.update_norm) json["update_norm"] = number(*s.update_norm);
  json["order"] = hex16(s.order);
  if (s.tokens) json["tokens"] = *s.tokens;
  json["seconds"] = number(s.seconds);
  return line(json);
}

std::string micro_lines(int64_t first, const std::vector<std::vector<double>>& losses) {
  std::size_t count = 0;
  for (const auto& rank : losses) count = std::max(count, rank.size());
  std::string text;
  for (std::size_t k = 0; k < count; ++k) {
    Json ranks = Json::array();
    for (const auto& rank : losses) ranks.push_back(k < rank.size() ? hex_float(rank[k]) : Json());
    text += line(
        {{"kind", "micro"}, {"micro", first + static_cast<int64_t>(k)}, {"loss_ranks", std::move(ranks)}});
  }
  return text;
}

std::string final_line(const Numbers& metrics) {
  return line({{"kind", "final"}, {"metrics", object(metrics)}, {"complete", true}});
}

}  // namespace ivme::record
