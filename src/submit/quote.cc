#include "submit/quote.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/shell_word.h"

namespace weft::submit {
namespace {

template <typename Quote>
std::string Joined(const std::vector<std::string>& words, const char* between, Quote quote) {
    std::string text;
    for (const std::string& word : words) {
        if (!text.empty()) text += between;
        text += quote(word);
    }
    return text;
}

}  // namespace

std::string ShellWords(const std::vector<std::string>& words) {
    return Joined(words, " ", ShellWord);
}

std::string YamlText(std::string_view text) {
    const std::string json =
        nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    // Characters that YAML treats as non-printable or as a line end, though JSON allows them:
    // U+007F to U+009F, U+2028, U+2029, U+FEFF, U+FFFE, U+FFFF.
    std::string out;
    for (size_t i = 0; i < json.size(); ++i) {
        const auto at = [&](size_t k) -> unsigned {
            return i + k < json.size() ? static_cast<unsigned char>(json[i + k]) : 0;
        };
        if (at(0) == 0x7f) {
            out += "\\u007f";
        } else if (at(0) == 0xc2 && at(1) < 0xa0) {
            out += fmt::format("\\u{:04x}", at(1));
            i += 1;
        } else if ((at(0) == 0xe2 && at(1) == 0x80 && (at(2) == 0xa8 || at(2) == 0xa9)) ||
                   (at(0) == 0xef && at(1) == 0xbb && at(2) == 0xbf) ||
                   (at(0) == 0xef && at(1) == 0xbf && at(2) >= 0xbe)) {
            out += fmt::format("\\u{:04x}",
                               (at(0) & 0xf) << 12 | (at(1) & 0x3f) << 6 | (at(2) & 0x3f));
            i += 2;
        } else {
            out += json[i];
        }
    }
    return out;
}

std::string PodWord(std::string_view word) {
    std::string doubled;
    for (const char c : word) doubled.append(c == '$' ? 2 : 1, c);  // "$$" always means one
    return YamlText(doubled);
}

std::string PodWords(const std::vector<std::string>& words) {
    return "[" + Joined(words, ", ", PodWord) + "]";
}

std::string PythonWords(const std::vector<std::string>& words) {
    // YAML's strings are valid Python, if no surrogate pair is written as two escapes.
    return "[" + Joined(words, ", ", YamlText) + "]";
}

}  // namespace weft::submit
