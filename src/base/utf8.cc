#include "base/utf8.h"

#include <cstdint>

namespace weft {
namespace {

struct Lead {
    size_t length;  // of the code point; 0: this byte cannot lead
    uint8_t low;    // range of the second byte
    uint8_t high;
};

Lead LeadOf(uint8_t byte) {
    if (byte < 0x80) return {1, 0, 0};
    if (byte < 0xC2) return {0, 0, 0};
    if (byte < 0xE0) return {2, 0x80, 0xBF};
    if (byte == 0xE0) return {3, 0xA0, 0xBF};
    if (byte == 0xED) return {3, 0x80, 0x9F};
    if (byte < 0xF0) return {3, 0x80, 0xBF};
    if (byte == 0xF0) return {4, 0x90, 0xBF};
    if (byte < 0xF4) return {4, 0x80, 0xBF};
    if (byte == 0xF4) return {4, 0x80, 0x8F};
    return {0, 0, 0};
}

// The number of valid bytes from text[at], at most `lead.length`.
size_t ValidPrefix(std::string_view text, size_t at, Lead lead) {
    size_t count = 1;
    for (; count < lead.length && at + count < text.size(); ++count) {
        const auto byte = static_cast<uint8_t>(text[at + count]);
        const uint8_t low = count == 1 ? lead.low : 0x80;
        const uint8_t high = count == 1 ? lead.high : 0xBF;
        if (byte < low || byte > high) break;
    }
    return count;
}

}  // namespace

size_t CodePointLength(std::string_view text, size_t at) {
    const Lead lead = LeadOf(static_cast<uint8_t>(text[at]));
    if (lead.length <= 1) return lead.length;
    return ValidPrefix(text, at, lead) == lead.length ? lead.length : 0;
}

size_t InvalidLength(std::string_view text, size_t at) {
    const Lead lead = LeadOf(static_cast<uint8_t>(text[at]));
    return lead.length <= 1 ? 1 : ValidPrefix(text, at, lead);
}

size_t IncompleteTail(std::string_view text) {
    for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
        const size_t at = text.size() - back;
        const auto byte = static_cast<uint8_t>(text[at]);
        if ((byte & 0xC0) == 0x80) continue;
        const Lead lead = LeadOf(byte);
        const bool open = lead.length > back && ValidPrefix(text, at, lead) == back;
        return open ? back : 0;
    }
    return 0;
}

bool IsUtf8(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        const size_t length = CodePointLength(text, at);
        if (length == 0) return false;
        at += length;
    }
    return true;
}

}  // namespace weft
