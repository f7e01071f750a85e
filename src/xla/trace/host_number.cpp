#include "xla/trace/host_number.h"

#include <ATen/ScalarOps.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymNodeImpl.h>

#include <utility>

#include "ivme/compiled_step.h"
#include "xla/replay/capture.h"

namespace ivme::xla {
namespace {

using Source = std::shared_ptr<const HostNumber>;

struct TensorLabel : c10::BackendMeta {
  explicit TensorLabel(Source from) : source(std::move(from)) {}
  Source source;
};

// A symbolic number that is willing to be its value wherever it is asked.
class ScalarLabel : public c10::SymNodeImpl {
 public:
  ScalarLabel(double value, Source from) : source(std::move(from)), value_(value) {}

  bool is_int() override { return false; }
  bool is_bool() override { return false; }
  bool is_float() override { return true; }
  double guard_float(const char*, int64_t) override { return value_; }
  bool has_hint() override { return true; }
  std::string str() override { return std::to_string(value_); }

  const Source source;

 private:
  double value_;
};

}  // namespace

void carry(const at::Tensor& number, Source source) {
  number.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<TensorLabel>(std::move(source)));
}

at::Scalar carry(double value, Source source) {
  return c10::SymFloat(c10::SymNode(c10::make_intrusive<ScalarLabel>(value, std::move(source))));
}

bool asks_optimizers() {
  const Capture* capture = Capture::current();
  return capture && capture->is_in_action();
}

Source source_of(const at::Tensor& number) {
  auto* label = dynamic_cast<TensorLabel*>(number.unsafeGetTensorImpl()->get_backend_meta());
  return label ? label->source : nullptr;
}

Source source_of(const c10::IValue& number) {
  if (!number.isSymFloat()) return nullptr;
  auto node = number.toSymFloat().toSymNodeImpl();
  auto* label = dynamic_cast<ScalarLabel*>(node.get());
  return label ? label->source : nullptr;
}

}  // namespace ivme::xla

namespace ivme {

at::Tensor host_scalar(std::function<double()> value) {
  at::Tensor number = at::native::wrapped_scalar_tensor(value());
  xla::carry(number, std::make_shared<const xla::HostNumber>([value = std::move(value)] { return value(); }));
  return number;
}

}  // namespace ivme
