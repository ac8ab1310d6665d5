#include "base/text.h"

#include <algorithm>
#include <cstdint>

namespace weft {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\v\f";

// Adds `shift` to the letters from `first` on.
std::string Shifted(std::string_view text, char first, int shift) {
    std::string shifted(text);
    for (char& c : shifted) {
        if (c >= first && c < first + 26) c = static_cast<char>(c + shift);
    }
    return shifted;
}

}  // namespace

std::string_view Trim(std::string_view text) {
    const size_t begin = text.find_first_not_of(kBlanks);
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::string_view> Lines(std::string_view text) {
    if (text.ends_with('\n')) text.remove_suffix(1);
    std::vector<std::string_view> lines = Split(text, '\n');
    for (std::string_view& line : lines) {
        if (line.ends_with('\r')) line.remove_suffix(1);
    }
    return lines;
}

std::vector<std::string_view> Words(std::string_view text) {
    std::vector<std::string_view> words;
    size_t at = 0;
    while ((at = text.find_first_not_of(kBlanks, at)) != text.npos) {
        const size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end;
    }
    return words;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(separator, at), text.size());
        pieces.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return pieces;
}

std::string LowerCase(std::string_view text) {
    return Shifted(text, 'A', 'a' - 'A');
}

std::string UpperCase(std::string_view text) {
    return Shifted(text, 'a', 'A' - 'a');
}

char32_t CodePointOf(std::string_view bytes) {
    const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
    if (bytes.size() == 1) return byte(0);
    char32_t code = byte(0) & (0xffu >> (bytes.size() + 1));
    for (size_t i = 1; i < bytes.size(); ++i) code = code << 6 | (byte(i) & 0x3fu);
    return code;
}

std::string UtcText(std::time_t seconds, const char* format) {
    std::tm parts{};
    char text[64];
    if (::gmtime_r(&seconds, &parts) == nullptr) return {};
    return {text, std::strftime(text, sizeof text, format, &parts)};
}

}  // namespace weft
