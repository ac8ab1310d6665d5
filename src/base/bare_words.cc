#include "base/bare_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace weft {

std::string WithoutBareWords(std::string_view text) {
    constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
    if (text.find("Infinity") == text.npos && text.find("NaN") == text.npos) {
        return std::string(text);
    }
    std::string out;
    bool quoted = false;
    for (size_t i = 0; i < text.size();) {
        const char c = text[i];
        const std::string_view rest = text.substr(i);
        const auto begins = [&](std::string_view word) { return rest.starts_with(word); };
        const bool maybe = !quoted && (c == '-' || c == 'I' || c == 'N');
        const auto* word = maybe ? std::ranges::find_if(kWords, begins) : std::end(kWords);
        if (word != std::end(kWords)) {
            out += fmt::format(R"({{"__float__": "{}"}})", *word);
            i += word->size();
            continue;
        }
        if (quoted && c == '\\' && rest.size() > 1)
            out += text[i++];
        else if (c == '"')
            quoted = !quoted;
        out += text[i++];
    }
    return out;
}

}  // namespace weft
