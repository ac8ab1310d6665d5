// Translates command lines of llama.cpp, Ollama and vLLM, and former names of Weft's flags. Weft
// takes the words that mean the same, and the error about any other known word names the next step.
// habit_words.h has the tables.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_tree.h"

namespace weft::cli {

// Replaces the command, the first word, where another program's means one of Weft's.
// program: all commands. Errors: kUsage: what to do instead.
Status TranslateCommand(const DescribedCommand& program, std::vector<std::string>& words);

// Replaces the words behind the command. program: all commands; a flag that a command has itself
// always means that. Errors: kUsage: what to do instead.
Status ApplyHabits(const DescribedCommand& program, std::vector<std::string>& words);

}  // namespace weft::cli
