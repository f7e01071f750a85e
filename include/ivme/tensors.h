#pragma once
#include <ATen/core/TensorBody.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ivme {

// What for_each_tensor calls on each tensor: a reference to a callable, not owning it. The callable takes the
// tensor, and if it likes its name within the value: "data", "1.mask", "" for a value that is a tensor.
class TensorVisitor {
 public:
  template <class F>
    requires(std::is_invocable_v<F&, at::Tensor&> || std::is_invocable_v<F&, at::Tensor&, std::string>) &&
                (!std::is_same_v<std::remove_cvref_t<F>, TensorVisitor>)
  TensorVisitor(F&& visit)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(visit)))),
        call_([](void* object, at::Tensor& tensor, const TensorVisitor& place) {
          auto& callable = *static_cast<std::remove_reference_t<F>*>(object);
          if constexpr (std::is_invocable_v<F&, at::Tensor&>)
            callable(tensor);
          else
            callable(tensor, place.name());
        }) {}

  void operator()(at::Tensor& tensor) const { call_(object_, tensor, *this); }
  // A member, which messages of the library call so.
  void operator()(at::Tensor& tensor, std::string_view name) const { within(name)(tensor); }
  // For what is inside a member, or an element, counted from 0. Not to outlive this one.
  TensorVisitor within(std::string_view member) const { return TensorVisitor(*this, member, 0); }
  TensorVisitor within(size_t element) const { return TensorVisitor(*this, {}, element); }

  std::string name() const {
    if (!outer_) return {};
    const std::string outer = outer_->name(),
                      own = member_.empty() ? std::to_string(element_) : std::string(member_);
    return outer.empty() ? own : outer + "." + own;
  }

 private:
  TensorVisitor(const TensorVisitor& outer, std::string_view member, size_t element)
      : object_(outer.object_), call_(outer.call_), outer_(&outer), member_(member), element_(element) {}

  void* object_;
  void (*call_)(void*, at::Tensor&, const TensorVisitor&);
  const TensorVisitor* outer_ = nullptr;
  std::string_view member_;
  size_t element_ = 0;
};

namespace detail {
template <class T>
concept Leaf = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>;
template <class T>
concept HasVisit = requires(T& value, const TensorVisitor& visit) { for_each_tensor(value, visit); };
template <class T>
concept HasVisitTargets = requires(T& value, const TensorVisitor& visit) { for_each_target(value, visit); };
template <class T>
concept HasTarget = requires(T& value) { value.target; };
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
template <class K>
TensorVisitor within_entry(const TensorVisitor& visit, const K& key, size_t place) {
  if constexpr (std::is_convertible_v<const K&, std::string_view>)
    return visit.within(std::string_view(key));
  else
    return visit.within(place);
}
}  // namespace detail

// Calls `visit` on every tensor inside `value`, in order, by reference so that it may be replaced.
//
// Known: at::Tensor; std::tuple, pair, array, vector, map, unordered_map and optional of known types, nested;
// torch::data::Example and any type with public members `data` and `target`; numbers, enums and strings,
// which hold no tensor. For another type T write, in T's namespace or in ivme,
//     void for_each_tensor(T& value, const ivme::TensorVisitor& visit) { visit(value.image, "image"); … }
// The name, which may be left out, is what messages call the tensor. Without the function compilation stops
// with a message that names T.
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
    size_t place = 0;
    for (auto& entry : value) visit_tensors(entry.second, detail::within_entry(visit, entry.first, place++));
  } else if constexpr (detail::Sequence<T>) {
    if constexpr (!detail::Leaf<typename T::value_type>)
      for (size_t place = 0; auto& element : value) visit_tensors(element, visit.within(place++));
  } else if constexpr (detail::TupleLike<T>) {
    size_t place = 0;
    std::apply([&](auto&... elements) { (visit_tensors(elements, visit.within(place++)), ...); }, value);
  } else if constexpr (detail::Example<T>) {
    visit_tensors(value.data, visit.within("data"));
    visit_tensors(value.target, visit.within("target"));
  } else if constexpr (detail::DataOnlyExample<T>) {
    visit_tensors(value.data, visit.within("data"));
  } else {
    static_assert(detail::no_tensors_known<T>,
                  "ivme does not know which tensors this type holds: write "
                  "void for_each_tensor(T&, const ivme::TensorVisitor&) for it");
  }
}

// Calls `visit` on the tensors of a batch that are its targets, not its data: in a type with a public member
// `target`, that member; in a pair, or a tuple of two, the second; in a map whose keys are strings, the
// entries "target" and "labels". In anything else there are none. For another type T write, in T's namespace
// or in ivme,
//     void for_each_target(T& value, const ivme::TensorVisitor& visit);
// Only a loader that pads a short batch on xla asks (ivme/data_loader.h).
template <class T>
void visit_targets(T& value, const TensorVisitor& visit) {
  if constexpr (detail::HasVisitTargets<T>) {
    for_each_target(value, visit);
  } else if constexpr (detail::HasTarget<T>) {
    visit_tensors(value.target, visit);
  } else if constexpr (detail::IsMap<T>::value) {
    if constexpr (std::is_convertible_v<typename T::key_type, std::string>)
      for (auto& entry : value)
        if (std::string name = entry.first; name == "target" || name == "labels")
          visit_tensors(entry.second, visit);
  } else if constexpr (detail::TupleLike<T> && !detail::Sequence<T>) {
    if constexpr (std::tuple_size_v<T> == 2) visit_tensors(std::get<1>(value), visit);
  }
}

}  // namespace ivme
