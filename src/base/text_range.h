// A part of a text: bytes [begin, end). Where ranges come in lists they are in order and apart.
#pragma once

#include <cstddef>

namespace weft {

struct TextRange {
    size_t begin = 0;
    size_t end = 0;

    bool operator==(const TextRange&) const = default;
};

}  // namespace weft
