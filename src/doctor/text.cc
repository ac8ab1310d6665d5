#include "doctor/text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>

namespace weft::doctor {
namespace {

// Control characters, invisible ones that change the display of others, and unassigned ones, which
// may become either. Format characters that enclose digits, such as U+0600, are visible.
bool IsHidden(utf8proc_int32_t code) {
    const utf8proc_property_t* properties = utf8proc_get_property(code);
    const auto category = properties->category;
    const bool format =
        category == UTF8PROC_CATEGORY_CF && properties->boundclass != UTF8PROC_BOUNDCLASS_PREPEND;
    return properties->ignorable || format || category == UTF8PROC_CATEGORY_CN ||
           category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_ZL ||
           category == UTF8PROC_CATEGORY_ZP || code == 0x2800 || code == 0xfffc;
}

size_t EndOfNumber(std::string_view text) {
    const size_t end = text.find_first_not_of("0123456789.");
    return end == std::string_view::npos ? text.size() : end;
}

}  // namespace

std::vector<std::vector<std::string_view>> WordLines(std::string_view text) {
    std::vector<std::vector<std::string_view>> lines;
    for (std::string_view line : Lines(text)) {
        if (auto words = Words(line); !words.empty()) lines.push_back(std::move(words));
    }
    return lines;
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

bool ContainsAny(std::string_view text, std::string_view parts) {
    return std::ranges::any_of(Split(parts, '|'),
                               [&](std::string_view part) { return Contains(text, part); });
}

bool IsOneOf(std::string_view word, std::string_view list) {
    if (word.empty() || Contains(word, " ")) return false;
    for (size_t at = list.find(word); at != list.npos; at = list.find(word, at + 1)) {
        const size_t end = at + word.size();
        if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' '))
            return true;
    }
    return false;
}

bool BeginsWithOneOf(std::string_view text, std::string_view list) {
    return std::ranges::any_of(Words(list),
                               [&](std::string_view word) { return text.starts_with(word); });
}

bool AreDigits(std::string_view text, size_t most, int base) {
    const std::string_view digits = std::string_view("0123456789abcdef").substr(0, base);
    return !text.empty() && text.size() <= most &&
           text.find_first_not_of(digits) == std::string_view::npos;
}

std::string_view Bare(std::string_view word) {
    constexpr std::string_view kAround = "()[]{}<>.,:;!'\"";
    const size_t begin = std::min(word.find_first_not_of(kAround), word.size());
    return word.substr(begin, word.find_last_not_of(kAround) + 1 - begin);
}

std::string BaseName(std::string_view path) {
    path = Trim(path);
    return std::string(path.substr(path.rfind('/') + 1));
}

std::string WithoutQuotes(std::string_view text) {
    std::string plain(text);
    std::erase_if(plain, [](char c) { return c == '"' || c == '\''; });
    return plain;
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
        utf8proc_int32_t code = -1;
        const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &code);
        const std::string_view letter =
            text.substr(0, length > 0 ? static_cast<size_t>(length) : 1);
        const bool blank = code == '\t' || code == '\n';
        shown += blank ? " " : length <= 0 || IsHidden(code) ? "?" : letter;
        text.remove_prefix(letter.size());
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
