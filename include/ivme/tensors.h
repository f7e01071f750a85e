#pragma once
#include <ATen/core/TensorBody.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ivme {

// What for_each_tensor calls on each tensor: a reference to a callable, not owning it.
class TensorVisitor {
 public:
  template <class F>
    requires std::is_invocable_v<F&, at::Tensor&> && (!std::is_same_v<std::remove_cvref_t<F>, TensorVisitor>)
  TensorVisitor(F&& visit)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(visit)))),
        call_([](void* object, at::Tensor& tensor) {
          (*static_cast<std::remove_reference_t<F>*>(object))(tensor);
        }) {}
  void operator()(at::Tensor& tensor) const { call_(object_, tensor); }

 private:
  void* object_;
  void (*call_)(void*, at::Tensor&);
};

namespace detail {
template <class T>
concept Leaf = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>;
template <class T>
concept HasVisit = requires(T& value, const TensorVisitor& visit) { for_each_tensor(value, visit); };
template <class T>
concept Example = requires(T& value) {
  value.data;
  value.target;
};
// torch::data::Example without a target, as torch::data::datasets::TensorDataset gives it.
template <class T>
concept DataOnlyExample = std::is_void_v<typename T::TargetType> && requires(T& value) { value.data; };
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsMap : std::false_type {};
template <class K, class V, class... R>
struct IsMap<std::map<K, V, R...>> : std::true_type {};
template <class K, class V, class... R>
struct IsMap<std::unordered_map<K, V, R...>> : std::true_type {};
template <class T>
concept Sequence = requires(T& value) {
  value.begin();
  value.end();
};
template <class T>
concept TupleLike = requires { std::tuple_size<T>::value; };
template <class>
inline constexpr bool no_tensors_known = false;
}  // namespace detail

// Calls `visit` on every tensor inside `value`, in order, by reference so that it may be replaced.
//
// Known: at::Tensor; std::tuple, pair, array, vector, map, unordered_map and optional of known types, nested;
// torch::data::Example and any type with public members `data` and `target`; numbers, enums and strings,
// which hold no tensor. For another type T write, in T's namespace or in ivme,
//     void for_each_tensor(T& value, const ivme::TensorVisitor& visit);
// Without it compilation stops with a message that names T.
template <class T>
void visit_tensors(T& value, const TensorVisitor& visit) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(value);
  } else if constexpr (detail::HasVisit<T>) {
    for_each_tensor(value, visit);
  } else if constexpr (detail::Leaf<T>) {
  } else if constexpr (detail::IsOptional<T>::value) {
    if (value) visit_tensors(*value, visit);
  } else if constexpr (detail::IsMap<T>::value) {
    for (auto& entry : value) visit_tensors(entry.second, visit);
  } else if constexpr (detail::Sequence<T>) {
    if constexpr (!detail::Leaf<typename T::value_type>)
      for (auto& element : value) visit_tensors(element, visit);
  } else if constexpr (detail::TupleLike<T>) {
    std::apply([&](auto&... elements) { (visit_tensors(elements, visit), ...); }, value);
  } else if constexpr (detail::Example<T>) {
    visit_tensors(value.data, visit);
    visit_tensors(value.target, visit);
  } else if constexpr (detail::DataOnlyExample<T>) {
    visit_tensors(value.data, visit);
  } else {
    static_assert(detail::no_tensors_known<T>,
                  "ivme does not know which tensors this type holds: write "
                  "void for_each_tensor(T&, const ivme::TensorVisitor&) for it");
  }
}

}  // namespace ivme
