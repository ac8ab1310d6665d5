// JSON that is about to be parsed: how it is built, without building it, so that hostile text can
// be refused before it costs anything.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft::formats {

struct JsonExtent {
    size_t depth = 0;    // the deepest nesting of objects and arrays
    size_t members = 0;  // of all objects together: colons outside of strings
};
// Of text that is no JSON: anything.
JsonExtent MeasureJson(std::string_view text);

}  // namespace weft::formats
