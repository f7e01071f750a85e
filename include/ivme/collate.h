#pragma once
#include <cstdint>

#include "ivme/tensors.h"

namespace ivme {

// A batch of samples: what the default collate makes of examples whose target is a number.
struct Batch {
  at::Tensor data;
  at::Tensor target;
  // bool [rows of the batch]: true for samples, false for rows that a loader on xla added to a short batch.
  // Set by the loader, on its device; as DataLoader::mask().
  at::Tensor mask = {};
};
inline void for_each_tensor(Batch& batch, const TensorVisitor& visit) {
  visit(batch.data);
  visit(batch.target);
  if (batch.mask.defined()) visit(batch.mask);
}

namespace detail {
at::Tensor stack(
    const std::vector<at::Tensor>& tensors);  // along a new dimension 0; throws Error listing unequal shapes
at::Tensor tensor_of(const std::vector<int64_t>& values);  // int64
at::Tensor tensor_of(const std::vector<bool>& values);     // bool
at::Tensor tensor_of(const std::vector<float>& values);    // float32
at::Tensor tensor_of(const std::vector<double>& values);   // float64

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class>
inline constexpr bool cannot_collate = false;

template <class Item, class Project>
auto project(const std::vector<Item>& items, Project&& pick) {
  std::vector<std::remove_cvref_t<decltype(pick(items.front()))>> picked;
  picked.reserve(items.size());
  for (const Item& item : items) picked.push_back(pick(item));
  return picked;
}
}  // namespace detail

// Samples of one batch to the batch, as Python's default_collate does: tensors are stacked along a new
// dimension 0; numbers become a tensor (bool; integers int64; float float32; double float64);
// torch::data::Example, pair, tuple, vector and map are collated field by field, strings are kept in a
// vector.
template <class Item>
auto default_collate(const std::vector<Item>& items) {
  if constexpr (std::is_same_v<Item, at::Tensor>) {
    return detail::stack(items);
  } else if constexpr (std::is_same_v<Item, bool> || std::is_same_v<Item, float> ||
                       std::is_same_v<Item, double>) {
    return detail::tensor_of(items);
  } else if constexpr (std::is_integral_v<Item> || std::is_enum_v<Item>) {
    return detail::tensor_of(detail::project(items, [](Item item) { return static_cast<int64_t>(item); }));
  } else if constexpr (std::is_same_v<Item, std::string>) {
    return items;
  } else if constexpr (detail::Example<Item>) {
    auto data = default_collate(detail::project(items, [](const Item& item) { return item.data; }));
    auto target = default_collate(detail::project(items, [](const Item& item) { return item.target; }));
    if constexpr (std::is_constructible_v<Item, decltype(data), decltype(target)>)
      return Item{std::move(data), std::move(target)};
    else
      return Batch{std::move(data), std::move(target)};
  } else if constexpr (detail::DataOnlyExample<Item>) {
    return Item(default_collate(detail::project(items, [](const Item& item) { return item.data; })));
  } else if constexpr (detail::IsVector<Item>::value) {
    size_t width = items.empty() ? 0 : items.front().size();
    std::vector<decltype(default_collate(Item{}))> columns;
    for (size_t i = 0; i < width; ++i)
      columns.push_back(
          default_collate(detail::project(items, [i](const Item& item) { return item.at(i); })));
    return columns;
  } else if constexpr (detail::IsMap<Item>::value) {
    std::map<typename Item::key_type, decltype(default_collate(std::vector<typename Item::mapped_type>{}))>
        batch;
    if (!items.empty())
      for (const auto& [key, value] : items.front()) {
        const auto& k = key;
        batch.emplace(k,
                      default_collate(detail::project(items, [&k](const Item& item) { return item.at(k); })));
      }
    return batch;
  } else if constexpr (detail::TupleLike<Item>) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return std::tuple{
          default_collate(detail::project(items, [](const Item& item) { return std::get<I>(item); }))...};
    }(std::make_index_sequence<std::tuple_size_v<Item>>{});
  } else {
    static_assert(detail::cannot_collate<Item>,
                  "ivme cannot collate this type of sample: give data_loader a collate function");
  }
}

}  // namespace ivme
