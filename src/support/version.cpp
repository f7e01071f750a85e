#include "ivme/version.h"

namespace ivme {
const char* version() { return IVME_VERSION; }
}  // namespace ivme
