#include "cli/command_line/config.h"

#include <algorithm>

#include "base/file.h"
#include "cli/command_line/habit_words.h"
#include "cli/command_line/options.h"

namespace weft::cli {
namespace {

bool Given(const std::vector<std::string>& words, const std::string& flag) {
    return std::ranges::any_of(words, [&](const std::string& word) {
        return word == flag || word.starts_with(flag + "=");
    });
}

Result<std::vector<std::string>> FlagsOf(const std::string& path,
                                         const std::vector<std::string>& words) {
    WEFT_ASSIGN(const std::string text, ReadTextFile(path, 1 << 20));
    const auto lines = ParseFlagLines(text);
    if (!lines.ok()) {
        return MakeError(lines.error().code, "{}: {}", path, lines.error().message);
    }
    std::vector<std::string> flags;
    for (const FlagLine& line : *lines) {
        if (!line.tables.empty()) {
            return MakeError(ErrorCode::kUsage, "{}: [{}]: a file of flags has no tables", path,
                             line.tables.front());
        }
        std::string flag = "--" + line.name;
        std::string dashed = flag;  // (as in main.cc)
        std::ranges::replace(dashed, '_', '-');
        const auto former = std::ranges::find(Synonyms(), dashed, &Synonym::names);
        if (former != Synonyms().end()) flag = dashed = former->flag;
        if (Given(words, flag) || Given(words, dashed)) continue;
        for (const std::string& value : line.values) {
            if (line.name == "model") {
                flags.push_back(value);
            } else if (value == "true") {
                flags.push_back(flag);
            } else if (value != "false") {
                flags.push_back(flag + "=" + value);
            }
        }
    }
    return flags;
}

}  // namespace

Status ExpandConfig(std::vector<std::string>& words) {
    // (Words after "--" belong to another command, of `weft submit`.)
    const auto end = std::ranges::find(words, "--");
    const auto at = std::find_if(words.begin(), end, [](const std::string& word) {
        return word == "--config" || word.starts_with("--config=");
    });
    if (at == end) return {};
    const bool joined = at->size() > 8;
    if (!joined && at + 1 == words.end()) {
        return MakeError(ErrorCode::kUsage, "--config needs a file");
    }
    const std::string path = joined ? at->substr(9) : *(at + 1);
    words.erase(at, at + (joined ? 1 : 2));
    WEFT_ASSIGN(const std::vector<std::string> flags, FlagsOf(path, words));
    const auto after_command = words.begin() + (words.empty() ? 0 : 1);
    words.insert(after_command, flags.begin(), flags.end());
    return {};
}

}  // namespace weft::cli
