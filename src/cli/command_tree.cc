#include "cli/command_tree.h"

#include <algorithm>

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

}  // namespace weft::cli
