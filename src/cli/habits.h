// Words that users of llama.cpp, Ollama and vLLM type out of habit: what means the same here is
// taken; anything else gets an error that says what to do instead.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_tree.h"

namespace weft::cli {

// Replaces such words of a command line. program: all commands; a flag that a command has itself
// always means that. Errors: kUsage: what to do instead.
Status ApplyHabits(const DescribedCommand& program, std::vector<std::string>& words);

}  // namespace weft::cli
