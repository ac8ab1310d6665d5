// The table of shaders of a build without Vulkan, for weft_without_vulkan (tests.cmake).
#include "shaders/table.h"

namespace weft::shaders {

const std::vector<Row>& Table() {
    static const std::vector<Row> none;
    return none;
}

std::vector<std::string_view> FeaturesLacking() {
    return {};
}

}  // namespace weft::shaders
