// A part of a text: bytes [begin, end). Ranges of a list are in order and do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

struct TextRange {
    size_t begin = 0;
    size_t end = 0;
    uint32_t source = 0;  // whatever the owner of the list numbers; most owners number nothing

    bool operator==(const TextRange&) const = default;
};

}  // namespace weft
