#include "base/shell_word.h"

namespace weft {

std::string ShellWord(std::string_view word) {
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+";
    // zsh expands "=name" to the path of a program.
    const bool plain =
        !word.empty() && word[0] != '=' && word.find_first_not_of(kPlain) == word.npos;
    if (plain) return std::string(word);
    std::string quoted = "'";
    for (const char c : word) {
        if (c == '\'') {
            quoted += "'\\''";
        } else {
            quoted += c;
        }
    }
    return quoted + "'";
}

}  // namespace weft
