#include "cli/command_line/command_tree.h"

#include <algorithm>
#include <cctype>

#include "base/nearest_word.h"

namespace weft::cli {

std::string DescribedFlag::LongName() const {
    const auto longest = std::ranges::max_element(names, {}, &std::string::size);
    if (longest == names.end()) return {};
    return longest->substr(std::min(longest->find_first_not_of('-'), longest->size()));
}

const DescribedCommand* DescribedCommand::Find(const std::string& command) const {
    const auto found = std::ranges::find(commands, command, &DescribedCommand::name);
    return found == commands.end() ? nullptr : &*found;
}

const DescribedFlag* DescribedCommand::FindFlag(const std::string& flag) const {
    const auto found = std::ranges::find_if(flags, [&](const DescribedFlag& each) {
        return !each.positional && std::ranges::find(each.names, flag) != each.names.end();
    });
    return found == flags.end() ? nullptr : &*found;
}

bool LooksLikeFlag(std::string_view word) {
    if (word.size() < 2 || word[0] != '-') return false;
    return std::isdigit(static_cast<unsigned char>(word[1])) == 0 && word[1] != '.';
}

const DescribedFlag* AwaitsValue(const DescribedCommand& command, const std::string& word) {
    if (!word.starts_with("--")) {
        // Only the last flag of a group of short flags may take the next word.
        for (size_t i = 1; i < word.size(); ++i) {
            const DescribedFlag* flag = command.FindFlag({'-', word[i]});
            if (flag == nullptr) break;
            if (flag->kind == ValueKind::kNone) continue;
            return i + 1 == word.size() ? flag : nullptr;
        }
    }
    std::string name = word;
    std::replace(name.begin() + 1, name.end(), '_', '-');
    const DescribedFlag* flag = command.FindFlag(name);
    return flag == nullptr || flag->kind == ValueKind::kNone ? nullptr : flag;
}

std::vector<WordKind> KindsOf(const DescribedCommand& program,
                              const std::vector<std::string>& words) {
    std::vector<WordKind> kinds;
    const DescribedCommand* command = &program;
    const DescribedFlag* flag = nullptr;  // may take the next word
    bool needs = false;                   // the flag has no value yet
    bool commands = true;                 // a word may name a command
    for (const std::string& word : words) {
        if (word == "--" && !needs) break;
        const DescribedCommand* below = commands ? command->Find(word) : nullptr;
        if (needs) {
            kinds.push_back(WordKind::kValue);
            needs = false;
            if (!flag->follow) flag = nullptr;
        } else if (LooksLikeFlag(word)) {
            kinds.push_back(WordKind::kFlag);
            flag = AwaitsValue(*command, word);
            needs = flag != nullptr;
        } else if (flag != nullptr) {
            kinds.push_back(WordKind::kValue);
        } else if (below != nullptr) {
            kinds.push_back(WordKind::kCommand);
            command = below;
        } else {
            kinds.push_back(WordKind::kPositional);
            commands = false;
        }
    }
    kinds.resize(words.size(), WordKind::kRest);
    return kinds;
}

bool HasFlag(const DescribedCommand& program, const std::vector<std::string>& words,
             const std::string& flag) {
    const std::vector<WordKind> kinds = KindsOf(program, words);
    for (size_t i = 0; i < words.size(); ++i) {
        if (kinds[i] != WordKind::kFlag) continue;
        if (words[i] == flag || words[i].starts_with(flag + "=")) return true;
    }
    return false;
}

std::vector<std::string> FlagsOf(const DescribedCommand& program,
                                 const std::vector<std::string>& words) {
    const std::vector<WordKind> kinds = KindsOf(program, words);
    std::vector<std::string> flags;
    const DescribedCommand* command = &program;
    for (size_t i = 0; i < words.size(); ++i) {
        if (kinds[i] == WordKind::kCommand) command = command->Find(words[i]);
        if (kinds[i] != WordKind::kFlag) continue;
        const std::string& word = words[i];
        // "--port=1", "-p1" or "-p=1", and words that are a name.
        const size_t end = word.starts_with("--") ? std::min(word.find('='), word.size())
                                                  : std::min<size_t>(2, word.size());
        const DescribedFlag* flag = command->FindFlag(word.substr(0, end));
        if (flag == nullptr) continue;
        const bool next =
            end == word.size() && i + 1 < words.size() && kinds[i + 1] == WordKind::kValue;
        std::string value = next ? words[i + 1] : word.substr(end);
        if (!next && value.starts_with('=')) value.erase(0, 1);
        const bool has_value = flag->kind != ValueKind::kNone;
        flags.push_back("--" + flag->LongName() + (has_value ? "=" + value : ""));
    }
    return flags;
}

Error UnknownFlag(const DescribedCommand& command, const std::string& full_name,
                  const std::string& flag) {
    std::vector<std::string> names;
    for (const DescribedFlag& each : command.flags) {
        for (const std::string& name : each.names) {
            if (name.starts_with("--")) names.push_back(name.substr(2));
        }
    }
    // Compares names without dashes, because dashes do not make flags similar.
    const size_t begin = std::min(flag.find_first_not_of('-'), flag.size());
    const std::string nearest = NearestWord(flag.substr(begin), names);
    return MakeError(ErrorCode::kUsage, "'{}' has no flag {}.{} '--help' lists the flags.",
                     full_name, flag,
                     nearest.empty() ? nearest : " Did you mean '--" + nearest + "'?");
}

}  // namespace weft::cli
