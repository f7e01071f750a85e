#include "xla/compile/signature.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "ivme/error.h"

namespace ivme::xla {
namespace {

constexpr std::array all_dtypes = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16, Dtype::i64,
                                   Dtype::i32, Dtype::i16, Dtype::i8,  Dtype::u8,   Dtype::boolean};

class Reader {
 public:
  Reader(std::string_view text, size_t at) : text_(text), at_(at) {}

  bool take(std::string_view word) {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  void expect(std::string_view word) {
    if (!take(word)) fail("`" + std::string(word) + "`");
  }

  void skip_name() { at_ = std::min(text_.find_first_of(": \n", at_), text_.size()); }

  // tensor<2x3xf32>
  Shape shape() {
    expect("tensor<");
    Shape shape;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      int64_t size = 0;
      const auto [end, failure] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (failure != std::errc()) fail("a dimension");
      at_ = static_cast<size_t>(end - text_.data());
      expect("x");
      shape.dims.push_back(size);
    }
    const size_t end = std::min(text_.find('>', at_), text_.size());
    const std::string_view element = text_.substr(at_, end - at_);
    for (const Dtype dtype : all_dtypes) {
      if (element != name_of(dtype)) continue;
      shape.dtype = dtype;
      at_ = end;
      expect(">");
      return shape;
    }
    fail("a tensor of static shape and of a type that ivme has");
  }

  // {name = value, ...}, or nothing.
  std::string_view attributes() {
    if (!take("{")) return {};
    const size_t begin = at_;
    bool in_string = false;
    for (int depth = 1; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"' && text_[at_ - 1] != '\\') in_string = !in_string;
      if (in_string) continue;
      if (c == '{') ++depth;
      if (c == '}' && --depth == 0) return text_.substr(begin, at_++ - begin);
    }
    fail("`}`");
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    throw Error("The program's @main cannot be read: " + wanted + " was expected at character " +
                std::to_string(at_) + ", before `" + std::string(text_.substr(at_, 40)) +
                "`. Its arguments and results are to be tensors of static shape, as in %0: tensor<2x3xf32>.");
  }

  std::string_view text_;
  size_t at_;
};

int alias_in(std::string_view attributes) {
  constexpr std::string_view name = "tf.aliasing_output = ";
  const size_t at = attributes.find(name);
  int result = -1;
  if (at != std::string_view::npos)
    std::from_chars(attributes.data() + at + name.size(), attributes.data() + attributes.size(), result);
  return result;
}

void read_arguments(Reader& reader, Signature& signature) {
  reader.expect("(");
  if (reader.take(")")) return;
  do {
    reader.expect("%");
    reader.skip_name();
    reader.expect(":");
    signature.arguments.push_back(reader.shape());
    signature.aliases.push_back(alias_in(reader.attributes()));
  } while (reader.take(","));
  reader.expect(")");
}

void read_results(Reader& reader, Signature& signature) {
  if (!reader.take("->")) return;
  if (!reader.take("(")) {
    signature.results.push_back(reader.shape());
    return;
  }
  if (reader.take(")")) return;
  do {
    signature.results.push_back(reader.shape());
    reader.attributes();
  } while (reader.take(","));
  reader.expect(")");
}

}  // namespace

Signature read_signature(std::string_view program) {
  constexpr std::string_view name = "@main(";
  const size_t at = program.find(name);
  if (at == std::string_view::npos)
    throw Error("A program was to be compiled that has no function @main: `" +
                std::string(program.substr(0, 40)) +
                "`. Give the text of a StableHLO module with func.func @main(...).");
  Reader reader(program, at + name.size() - 1);
  Signature signature;
  read_arguments(reader, signature);
  read_results(reader, signature);
  return signature;
}

}  // namespace ivme::xla
