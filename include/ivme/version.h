#pragma once

namespace ivme {
// "MAJOR.MINOR.PATCH" of the library that is linked.
const char* version();
}  // namespace ivme
