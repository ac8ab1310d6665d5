// A part of a text: bytes [begin, end). Lists of ranges are sorted and do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

struct TextRange {
    size_t begin = 0;
    size_t end = 0;
    uint32_t source = 0;  // numbered by the owner of the list; 0 if unused

    bool operator==(const TextRange&) const = default;
};

}  // namespace weft
