#include "support/paths.h"

#include <cstdlib>

namespace weft::support {

std::string TestData(const std::string& below) {
    return WEFT_TEST_DATA + below;
}

std::string WeftProgram() {
    const char* other = std::getenv("WEFT_TEST_PROGRAM");
    return other != nullptr ? other : WEFT_PROGRAM;
}

}  // namespace weft::support
