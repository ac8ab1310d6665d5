// Expands abbreviated command lines, so frequent commands stay short.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace weft::cli {

// `weft COMMAND ...` means `weft COMMAND IMPLIED ...` unless the next word is another subcommand.
struct ImpliedCommand {
    const char* command;
    const char* implied;
};
std::span<const ImpliedCommand> ImpliedCommands();
// "": the command implies no subcommand.
std::string ImpliedBy(const std::string& command);
// The name of a command without an implied word: "weft train" for "weft train run".
std::string TypedName(const std::string& full_name);

// weft net --local 2   weft net table --local 2
// weft hosts --json   weft hosts list --json
// weft train MODEL     weft train run MODEL
void ExpandShorthand(std::vector<std::string>& words);

}  // namespace weft::cli
