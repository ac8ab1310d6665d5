#include "shaders/shaders.h"

#include "shaders/table.h"

namespace weft::shaders {

std::span<const uint32_t> Find(std::string_view name) {
    for (const Row& row : Table()) {
        if (row.name == name) return row.code;
    }
    return {};
}

std::vector<std::string_view> Names() {
    std::vector<std::string_view> names;
    for (const Row& row : Table()) names.push_back(row.name);
    return names;
}

}  // namespace weft::shaders
