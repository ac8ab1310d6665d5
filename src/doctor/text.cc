#include "doctor/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace weft::doctor {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\v\f";

struct Letter {
    uint32_t code = 0;
    size_t bytes = 0;  // 0: not UTF-8
};

// The first character of UTF-8 `text`, in its shortest form (RFC 3629).
Letter FirstLetter(std::string_view text) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned char first = byte(0);
    if (first < 0x80) return {first, 1};
    const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {};
    uint32_t code = first & (0xff >> (bytes + 1));
    for (size_t i = 1; i < bytes; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return {};
        code = code << 6 | (byte(i) & 0x3f);
    }
    const uint32_t least = bytes == 2 ? 0x80 : bytes == 3 ? 0x800 : 0x10000;
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
    return {code, bytes};
}

// Control characters, and invisible ones that change the display of others.
bool IsHidden(uint32_t code) {
    struct Range {
        uint32_t first, last;
    };
    constexpr Range kHidden[] = {{0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},
                                 {0x034f, 0x034f},   {0x061c, 0x061c},   {0x115f, 0x1160},
                                 {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f},
                                 {0x2028, 0x202e},   {0x2060, 0x206f},   {0x2800, 0x2800},
                                 {0x3164, 0x3164},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},
                                 {0xffa0, 0xffa0},   {0xfff0, 0xfffc},   {0x13430, 0x1345f},
                                 {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};
    return std::ranges::any_of(kHidden,
                               [&](const Range& r) { return r.first <= code && code <= r.last; });
}

size_t EndOfNumber(std::string_view text) {
    const size_t end = text.find_first_not_of("0123456789.");
    return end == std::string_view::npos ? text.size() : end;
}

}  // namespace

std::string_view Trim(std::string_view text) {
    const size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return {};
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
    while ((at = text.find_first_not_of(kBlanks, at)) != std::string_view::npos) {
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

std::optional<int64_t> Integer(std::string_view text, int base) {
    text = Trim(text);
    if (base == 16 && text.starts_with("0x")) text.remove_prefix(2);
    int64_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return {};
    return value;
}

std::optional<double> Number(std::string_view text) {
    text = Trim(text);
    double value = 0;
    const auto parsed =
        std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return {};
    if (!(value > -1e20 && value < 1e20)) return {};
    return value;
}

std::optional<double> LeadingNumber(std::string_view text) {
    text = Trim(text);
    return Number(text.substr(0, EndOfNumber(text)));
}

std::optional<double> NumberAfter(std::string_view text, std::string_view key) {
    const size_t at = text.find(key);
    if (at == std::string_view::npos) return {};
    return LeadingNumber(text.substr(at + key.size()));
}

std::string_view After(std::string_view text, std::string_view key, std::string_view ends) {
    const size_t at = text.find(key);
    if (at == std::string_view::npos) return {};
    text = text.substr(at + key.size());
    text = text.substr(0, text.find('\n'));
    if (!ends.empty()) text = text.substr(0, text.find_first_of(ends));
    return Trim(text);
}

bool Contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

std::optional<Version> ParseVersion(std::string_view text) {
    text = Trim(text);
    Version version;
    size_t count = 0;
    const char* at = text.data();
    const char* const end = text.data() + text.size();
    while (count < 3) {
        const auto parsed = std::from_chars(at, end, version.part[count]);
        if (parsed.ec != std::errc() || version.part[count] < 0) break;
        ++count;
        at = parsed.ptr;
        if (at == end || *at != '.') break;
        ++at;
    }
    if (count == 0) return {};
    return version;
}

std::optional<int64_t> DateIn(std::string_view text) {
    constexpr std::string_view kDigits = "0123456789";
    for (size_t at = text.find_first_of(kDigits); at < text.size();) {
        const size_t end = std::min(text.find_first_not_of(kDigits, at), text.size());
        const auto date = Integer(text.substr(at, end - at));
        if (end - at == 8 && date && *date >= 20100101 && *date <= 20991231) return date;
        at = text.find_first_of(kDigits, end);
    }
    return {};
}

std::string Printable(std::string_view text) {
    std::string shown;
    while (!text.empty()) {
        const Letter letter = FirstLetter(text);
        if (letter.code == '\t' || letter.code == '\n') {
            shown += ' ';
        } else if (letter.bytes == 0 || IsHidden(letter.code)) {
            shown += '?';
        } else {
            shown += text.substr(0, letter.bytes);
        }
        text.remove_prefix(std::max<size_t>(letter.bytes, 1));
    }
    return shown;
}

std::string RateText(double gigabytes_per_second) {
    return fmt::format("{:.1f} GB/s", gigabytes_per_second);
}

std::string SizeText(double bytes) {
    if (bytes >= 1024.0 * 1024 * 1024) return fmt::format("{:.1f} GiB", bytes / (1 << 30));
    if (bytes >= 1024.0 * 1024) return fmt::format("{:.1f} MiB", bytes / (1 << 20));
    return fmt::format("{:.0f} KiB", bytes / 1024);
}

}  // namespace weft::doctor
