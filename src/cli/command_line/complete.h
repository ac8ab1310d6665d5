// Completes a command line of weft. The scripts of `weft completion bash|zsh|fish` call it at each
// key press, so no script contains a copy of the flags.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line/command_tree.h"

namespace weft::cli {

struct Candidate {
    std::string word;   // complete; replaces the last word
    std::string about;  // one line; "": no description
};

struct Completion {
    std::vector<Candidate> candidates;
    enum class Paths { kNone, kFiles, kFolders } paths = Paths::kNone;  // paths that the shell adds
};

// words: the line as typed, without the program's name; the last word is the one to complete, "" if
// it has not begun. Reads only the cache folder of models, and only for a MODEL; an unreadable
// cache counts as empty.
Completion Complete(const DescribedCommand& program, const std::vector<std::string>& words);

// Prints "WORD<tab>ABOUT" for each candidate, then ":none", ":files" or ":folders".
void PrintCompletion(const Completion& completion);

}  // namespace weft::cli
