// Generates a systemd user unit that runs the command line of this process.
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
    int64_t stop_seconds = 90;  // time limit of the service to stop
    bool reloads = false;       // whether SIGHUP reloads files
};

// Text for [Service]: an ExecStart= line with exactly these words.
std::string UnitWords(const std::vector<std::string>& words);
// A value for systemd: one line, with escaped specifiers.
std::string UnitText(std::string_view text);

// Prints the unit with this process's command line, except --unit, on standard output, and the
// commands that install it on standard error. Errors: kUnsupported (words with line breaks), kIo.
Status PrintUserUnit(const UserUnit& unit);

}  // namespace weft::cli
