// Completion of a command line of weft: what the scripts of `weft completion bash|zsh|fish` ask for
// at each press of the key, so that no script has a copy of the flags.
#pragma once

#include <string>
#include <vector>

#include "cli/command_tree.h"

namespace weft::cli {

struct Candidate {
    std::string word;   // whole, in place of the last word
    std::string about;  // a line; "": nothing to say
};

struct Completion {
    std::vector<Candidate> candidates;
    enum class Paths { kNone, kFiles, kFolders } paths = Paths::kNone;  // which the shell adds
};

// words: the line as typed, without the program's name; the last one is that to be completed, ""
// where it has not begun. Reads nothing but the cache folder of models, and that only where a MODEL
// stands; one that can't be read is an empty one.
Completion Complete(const DescribedCommand& program, const std::vector<std::string>& words);

// A line "WORD<tab>ABOUT" for each, then ":none", ":files" or ":folders".
void PrintCompletion(const Completion& completion);

}  // namespace weft::cli
