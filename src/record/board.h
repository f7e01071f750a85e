#pragma once
#include <optional>
#include <string>

namespace ivme::record {

// A place where any rank leaves a value and rank 0 picks it up; the library implements it on c10d::Store.
// Neither call may wait for another rank. Both may throw: the record then ends there and says so on stderr.
// Called by the thread that trains.
class Board {
 public:
  virtual ~Board() = default;

  // `value` holds arbitrary bytes. A key is used once.
  virtual void set(const std::string& key, const std::string& value) = 0;

  // The value, which is deleted; nothing if it is not there yet.
  virtual std::optional<std::string> take(const std::string& key) = 0;
};

}  // namespace ivme::record
