// Translates command lines of llama.cpp, Ollama, vLLM and transformers' Trainer, and former names
// of Weft's flags. Weft accepts words with the same meaning; the error for any other known word
// names the next step. habit_words.h has the tables.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line/command_tree.h"

namespace weft::cli {

// Replaces the first word if it is another program's name for a command of Weft. program: all
// commands. Errors: kUsage, with the next step.
Status TranslateCommand(const DescribedCommand& program, std::vector<std::string>& words);

// Replaces the words after the command. program: all commands; a command's own flags keep their
// meaning. translated: receives each replaced name of a flag (with "-" for "_") and its
// replacement, except Weft's former names. Errors: kUsage, with the next step.
Status ApplyHabits(const DescribedCommand& program, std::vector<std::string>& words,
                   std::map<std::string, std::string>& translated);

// The flag of the command that a typed one means ("--name" for "-a"), or kModelWord; "": unknown.
// full_name: "weft serve".
std::string MeantFlag(const DescribedCommand& command, const std::string& full_name,
                      const std::string& typed);

}  // namespace weft::cli
