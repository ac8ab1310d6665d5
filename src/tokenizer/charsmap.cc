#include "tokenizer/charsmap.h"

#include "base/byte_codec.h"

namespace weft::tokenizer {
namespace {

// Fields of a unit of the double array.
bool HasLeaf(uint32_t unit) {
    return (unit >> 8) & 1;
}
uint32_t Value(uint32_t unit) {
    return unit & 0x7FFFFFFF;
}
uint32_t Label(uint32_t unit) {
    return unit & (0x80000000 | 0xFF);
}
uint32_t Offset(uint32_t unit) {
    return (unit >> 10) << ((unit & 0x200) >> 6);
}

}  // namespace

Result<Charsmap> Charsmap::Read(std::string_view bytes) {
    Charsmap made;
    if (bytes.empty()) return made;
    ByteReader reader(bytes);
    const auto size = reader.Take<uint32_t>();
    made.units_ = reader.TakeList<uint32_t>(size / 4);
    if (!reader.ok() || size % 4 != 0 || size < 4) {
        return MakeError(ErrorCode::kCorrupt,
                         "tokenizer: precompiled_charsmap has {} bytes and gives {} as the size of "
                         "its trie; expected a multiple of 4 that fits",
                         bytes.size(), size);
    }
    made.replacements_ = reader.rest();
    made.replacements_ += '\0';
    return made;
}

Charsmap::Rule Charsmap::Longest(std::string_view text) const {
    return Find(text, true);
}

Charsmap::Rule Charsmap::Shortest(std::string_view text) const {
    return Find(text, false);
}

Charsmap::Rule Charsmap::Find(std::string_view text, bool longest) const {
    Rule rule;
    if (units_.empty()) return rule;
    uint32_t at = Offset(units_[0]);
    for (size_t i = 0; i < text.size(); ++i) {
        const uint32_t byte = static_cast<uint8_t>(text[i]);
        at ^= byte;
        if (byte == 0 || at >= units_.size() || Label(units_[at]) != byte) break;
        const uint32_t unit = units_[at];
        at ^= Offset(unit);
        if (!HasLeaf(unit)) continue;
        if (at >= units_.size()) break;
        const uint32_t value = Value(units_[at]);
        if (value >= replacements_.size()) continue;  // the table has a gap
        rule = {i + 1, std::string_view(replacements_.c_str() + value)};
        if (!longest) break;
    }
    return rule;
}

}  // namespace weft::tokenizer
