// The program's command line: all commands, and the words that lead to them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line/options.h"

namespace weft::cli {

// Adds every subcommand. status: as in commands.h.
void AddCommands(const Parser& parser, int& status);

// Expands a typed command line to the form that is parsed. translated: as of ApplyHabits.
Status ExpandLine(const Parser& parser, std::vector<std::string>& words,
                  std::map<std::string, std::string>& translated);

// A command line that another host will run.
struct ForeignLine {
    std::string command;             // its first word, by Weft's own name: "serve"
    std::vector<std::string> flags;  // FlagsOf, without the flags of a --config file
};
// Checks the command, its flags and their values. Files that it names may be absent here; with
// --config, nothing is checked, because that file is read there. words: without the program's name,
// at least one. Errors: kUsage.
Result<ForeignLine> ReadForeignLine(std::vector<std::string> words);

}  // namespace weft::cli
