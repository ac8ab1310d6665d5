// The table of compiled shaders, which cmake/shaders.cmake writes.
#pragma once

#include "shaders/shaders.h"

namespace weft::shaders {

struct Row {
    std::string_view name;
    std::span<const uint32_t> code;
};
const std::vector<Row>& Table();

}  // namespace weft::shaders
