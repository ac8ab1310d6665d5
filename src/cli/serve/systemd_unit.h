// Generates a systemd user unit that runs a command line of this program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::cli {

struct UserUnit {
    std::string name;  // without ".service"
    std::string description;
    std::vector<std::string> words;  // OwnCommandLine
    int64_t stop_seconds = 90;       // time limit of the service to stop
    bool reloads = false;            // whether SIGHUP reloads files
};

// Text for [Service]: an ExecStart= line with exactly these words.
std::string UnitWords(const std::vector<std::string>& words);
// A value for systemd: one line, with escaped specifiers.
std::string UnitText(std::string_view text);

// Prints the unit with this command line, except --unit, and this process's environment as far as
// Weft reads it, on standard output; on standard error, the commands that install it. Errors:
// kUnsupported (words with line breaks).
Status PrintUserUnit(const UserUnit& unit);

}  // namespace weft::cli
