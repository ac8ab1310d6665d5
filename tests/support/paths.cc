#include "support/paths.h"

namespace weft::support {

std::string TestData(const std::string& below) {
    return WEFT_TEST_DATA + below;
}

std::string WeftProgram() {
    return WEFT_PROGRAM;
}

}  // namespace weft::support
