// Manual pages (man 7 man) of commands, made of what --help shows.
#pragma once

#include <string>
#include <vector>

#include "cli/command_tree.h"

namespace weft::cli {

struct ManPage {
    std::string name;  // "weft-train-data": of the file NAME.1
    std::string text;  // roff, ASCII
};

// The page of the program first, then one for each command. A command that is implied by the one
// above it (shorthand.h) is on the page of that one.
std::vector<ManPage> ManPages(const DescribedCommand& program);

}  // namespace weft::cli
