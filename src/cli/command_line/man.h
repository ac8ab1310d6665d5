// Generates manual pages (man 7 man) of commands from the content of --help.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line/command_tree.h"

namespace weft::cli {

struct ManPage {
    std::string name;  // "weft-train-data": the file is NAME.1
    std::string text;  // roff, ASCII
};

// The page of the program first, then one per command. A command that its parent implies
// (shorthand.h) is on the parent's page.
std::vector<ManPage> ManPages(const DescribedCommand& program);

}  // namespace weft::cli
