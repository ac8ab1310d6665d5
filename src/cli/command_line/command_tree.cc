#include "cli/command_line/command_tree.h"

#include <algorithm>

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
