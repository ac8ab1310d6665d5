#include "formats/json_extent.h"

#include <algorithm>

namespace weft::formats {

JsonExtent MeasureJson(std::string_view text) {
    JsonExtent extent;
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            extent.depth = std::max(extent.depth, ++depth);
        } else if (c == '}' || c == ']') {
            depth -= depth > 0 ? 1 : 0;
        } else if (c == ':') {
            ++extent.members;
        }
    }
    return extent;
}

}  // namespace weft::formats
