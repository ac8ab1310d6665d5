// Command lines that leave something out, written in full: what is typed most is short.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace weft::cli {

// `weft COMMAND ...` is `weft COMMAND IMPLIED ...` where the next word is no other command of it.
struct ImpliedCommand {
    const char* command;
    const char* implied;
};
std::span<const ImpliedCommand> ImpliedCommands();
// "": the command implies none.
std::string ImpliedBy(const std::string& command);

// weft trace run ...   weft run ... --trace weft-trace.json
// weft net --local 2   weft net table --local 2
// weft hosts --json   weft hosts list --json
// weft bench serve     weft bench-serve: it takes no MODEL, as weft bench does
// weft train MODEL     weft train run MODEL
void ExpandShorthand(std::vector<std::string>& words);

}  // namespace weft::cli
