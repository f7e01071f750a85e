// Breaks the wall through a header of its own, so that tests/wall_test.cmake can be seen to notice.
#include "planted.h"
