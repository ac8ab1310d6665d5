#include "cli/command_line/config.h"

#include <algorithm>
#include <iterator>

#include "base/file.h"
#include "cli/command_line/flag_file.h"
#include "cli/command_line/habit_words.h"

namespace weft::cli {
namespace {

// The command that `words` begin with.
const DescribedCommand& CommandIn(const DescribedCommand& program,
                                  const std::vector<std::string>& words) {
    const DescribedCommand* command = &program;
    for (const std::string& word : words) {
        const DescribedCommand* below = command->Find(word);
        if (below == nullptr) break;
        command = below;
    }
    return *command;
}

// A command line whose flags override a file's flags.
class GivenLine {
  public:
    GivenLine(const DescribedCommand& program, const std::vector<std::string>& words)
        : command_(CommandIn(program, words)), words_(words), kinds_(KindsOf(program, words)) {}

    // The flag of a line of the file; null: the command's help does not list it.
    const DescribedFlag* Find(std::string name) const {
        if (const DescribedFlag* flag = command_.FindFlag(name)) return flag;
        std::ranges::replace(name, '_', '-');  // (as in program.cc)
        return command_.FindFlag(name);
    }
    // Whether the line has the flag by any of its names: "--threads 2", "--threads=2", "-t2",
    // "-vt2".
    bool Has(const std::vector<std::string>& names) const {
        for (size_t i = 0; i < words_.size(); ++i) {
            if (kinds_[i] != WordKind::kFlag) continue;
            const std::string& word = words_[i];
            const auto is = [&](const std::string& name) {
                return word == name || word.starts_with(name + "=");
            };
            if (std::ranges::any_of(names, is) || HasInGroup(word, names)) return true;
        }
        return false;
    }
    bool HasPositional() const {
        return std::ranges::find(kinds_, WordKind::kPositional) != kinds_.end();
    }

  private:
    // Whether one of a word's short flags has such a name: "-t2", "-vt2". The first flag that takes
    // a value ends the group.
    bool HasInGroup(const std::string& word, const std::vector<std::string>& names) const {
        for (size_t i = 1; i < word.size() && word[1] != '-'; ++i) {
            const std::string name = {'-', word[i]};
            const DescribedFlag* flag = command_.FindFlag(name);
            if (flag == nullptr) return false;
            if (std::ranges::find(names, name) != names.end()) return true;
            if (flag->kind != ValueKind::kNone) return false;
        }
        return false;
    }

    const DescribedCommand& command_;
    const std::vector<std::string>& words_;
    const std::vector<WordKind> kinds_;
};

// The words of one line of the file.
std::vector<std::string> WordsOf(const FlagLine& line, const GivenLine& given) {
    if (line.name == "model") {
        return given.HasPositional() ? std::vector<std::string>() : line.values;
    }
    std::string flag = "--" + line.name, dashed = flag;
    std::ranges::replace(dashed, '_', '-');
    const auto former = std::ranges::find(Synonyms(), dashed, &Synonym::names);
    if (former != Synonyms().end()) flag = dashed = former->flag;
    const DescribedFlag* known = given.Find(flag);
    const DescribedFlag* negated = given.Find("--no-" + dashed.substr(2));
    const bool off = line.values == std::vector<std::string>{"false"};
    if (known == nullptr && negated != nullptr && off) flag = negated->names.front();
    std::vector<std::string> names = {flag, dashed};
    if (known != nullptr) names.insert(names.end(), known->names.begin(), known->names.end());
    if (given.Has(names)) return {};
    std::vector<std::string> words;
    for (const std::string& value : line.values) {
        const bool is_switch = known == nullptr || known->kind == ValueKind::kNone;
        if (is_switch && known != nullptr && value == "false") continue;
        const bool bare = is_switch && (value == "true" || value == "false");
        words.push_back(bare ? flag : flag + "=" + value);
    }
    return words;
}

Error MoreFiles(const std::string& where) {
    return MakeError(ErrorCode::kUsage,
                     "--config: {} names another file of flags; expected one file in all. Put all "
                     "flags into one file",
                     where);
}

Result<std::vector<std::string>> FlagsOf(const std::string& path, const GivenLine& given) {
    WEFT_ASSIGN(const std::string text, ReadTextFile(path, 1 << 20));
    const auto lines = ParseFlagLines(text);
    if (!lines.ok()) {
        return MakeError(lines.error().code, "{}: {}", path, lines.error().message);
    }
    std::vector<std::string> flags;
    for (const FlagLine& line : *lines) {
        std::ranges::move(WordsOf(line, given), std::back_inserter(flags));
    }
    return flags;
}

}  // namespace

Status ExpandConfig(const DescribedCommand& program, std::vector<std::string>& words) {
    const std::vector<WordKind> kinds = KindsOf(program, words);
    std::vector<size_t> places;
    for (size_t i = 0; i < words.size(); ++i) {
        const bool config = words[i] == "--config" || words[i].starts_with("--config=");
        if (config && kinds[i] == WordKind::kFlag) places.push_back(i);
    }
    if (places.empty()) return {};
    if (places.size() > 1) return MoreFiles("the command line");
    const auto at = words.begin() + static_cast<ptrdiff_t>(places[0]);
    const bool joined = at->size() > 8;
    if (!joined && at + 1 == words.end()) {
        return MakeError(ErrorCode::kUsage, "--config needs a file");
    }
    const std::string path = joined ? at->substr(9) : *(at + 1);
    words.erase(at, at + (joined ? 1 : 2));
    WEFT_ASSIGN(const std::vector<std::string> flags, FlagsOf(path, GivenLine(program, words)));
    const auto after_command = words.begin() + (words.empty() ? 0 : 1);
    words.insert(after_command, flags.begin(), flags.end());
    if (HasFlag(program, words, "--config")) return MoreFiles(path);
    return {};
}

}  // namespace weft::cli
